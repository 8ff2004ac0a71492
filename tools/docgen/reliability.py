"""The page of reliability: the results of the long proofs so far, their commits, and the gaps.

Each proof appends its results to a file in var/proofs/, which stays on the machine. From these a
summary is made, which is kept in docs/reference/reliability.json, and the page from the summary and
nothing else: proofs may run on other machines and days.
"""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from proving.arguments import ranges
from proving.killing.results import HELD
from proving.simulation import together
from tools.docgen.parts import ROOT, replaced

__all__ = ["PAGE", "SUMMARY", "as_text", "folded", "pages", "proven", "read_summary", "summarised"]

COMMAND: Final = "python -m tools.docgen reliability"
PROOFS: Final = ROOT / "var" / "proofs"
SUMMARY: Final = ROOT / "docs" / "reference" / "reliability.json"
PAGE: Final = ROOT / "proving" / "reliability.md"
_PROVE: Final = "prove"

Line = Mapping[str, Any]
Summary = dict[str, dict[str, dict[str, Any]]]
"""For each proof its results, by the key that tells one source and setting from another."""


def read_summary() -> Summary:
    """Return the summary that is kept."""
    summary: Summary = json.loads(SUMMARY.read_text("utf-8"))
    return summary


def summarised(kept: Summary, proofs: Path = PROOFS) -> Summary:
    """Return the summary with the results in the files. A kept result stays, unless they know more
    of the same source and setting, or the module that it names is gone.
    """
    summary = {
        name: {key: entry for key, entry in kept.get(name, {}).items() if _is_there(entry)}
        for name in (*_FOLDS, *kept)
    }
    for name in _FOLDS:
        file = proofs / f"{name}.jsonl"
        lines = (
            [
                json.loads(line)
                for line in file.read_text("utf-8").splitlines()
                if line.endswith("}")
            ]
            if file.exists()
            else []
        )
        for key, found in folded(
            name,
            [line for line in lines if not _is_kept(name, line, summary[name])],
        ).items():
            summary[name][key] = (
                _joined(name, summary[name][key], found) if key in summary[name] else found
            )
    return summary


def _is_there(entry: Mapping[str, Any]) -> bool:
    """Tell whether an entry names no module, or one that the code still has."""
    return "module" not in entry or module_file(entry["module"]).is_file()


def module_file(module: str) -> Path:
    """Return the file of a module, whether it exists or not."""
    return ROOT / "src" / Path(*module.split(".")).with_suffix(".py")


def proven(summary: Summary, commit: str, day: datetime.date) -> Summary:
    """Return the summary with the commits, with spaces, and the day of the last `python -m proving
    all`. Its rows come first.
    """
    return {**summary, _PROVE: {"last": {"commit": commit, "date": f"{day}"}}}


def _is_kept(name: str, line: Line, kept: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether the result of a line is in the summary by its seeds; of several seeds one is
    enough, since none may count twice.
    """
    entry = kept.get(_key(name, line), {})
    return "seeds" in entry and not _numbers(entry["seeds"]).isdisjoint(_seeds(line))


def _joined(name: str, kept: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Add other seeds to those that were kept; where there are none, return the one that knows
    more.

    Of an exhaustion the files count, as the newer run: a smaller count may be the better one.
    """
    if name == "exhaustion":
        return found
    if "seeds" not in kept:
        return max(found, kept, key=lambda entry: int(entry["count"]))
    key_of, _ = _FOLDS[name]
    added = {
        field: kept[field] + value
        for field, value in found.items()
        if isinstance(value, int) and field not in key_of
    }
    joined = {**found, **added, "seeds": ranges(_numbers(kept["seeds"]) | _numbers(found["seeds"]))}
    if "kinds" in found:
        joined["kinds"] = max(kept["kinds"], found["kinds"])
        joined["digest"] = together([kept["digest"], found["digest"]])
    return joined


def folded(name: str, lines: Iterable[Line]) -> dict[str, dict[str, Any]]:
    """Fold the lines of one proof into one entry for each source and setting."""
    key_of, fold = _FOLDS[name]
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(_key(name, line), []).append(line)
    return {
        key: {**{field: those[0][field] for field in key_of}, **fold(those)}
        for key, those in groups.items()
    }


def _key(name: str, line: Line) -> str:
    key_of, _ = _FOLDS[name]
    return " · ".join(str(line[field]) for field in key_of)


def _seeds(line: Line) -> set[int]:
    """Return the seeds of a line: the fuzzer's have ranges of them, the others' one."""
    return (
        {seed for first, last in line["seeds"] for seed in range(first, last + 1)}
        if "seeds" in line
        else {line["seed"]}
    )


def _simulation(lines: list[Line]) -> dict[str, Any]:
    of_seed = {line["seed"]: line for line in lines}
    seeds = sorted(of_seed)
    sums = {
        name: sum(of_seed[seed][name] for seed in seeds)
        for name in ("orders", "payments", "paid", "refunds", "steps", "judged")
    }
    faults: Counter[str] = Counter()
    for seed in seeds:
        faults.update(of_seed[seed]["struck"])
    return {
        "count": sums["payments"],
        "seeds": ranges(seeds),
        **sums,
        "days": round(sum(of_seed[seed]["days"] for seed in seeds)),
        "seconds": round(sum(of_seed[seed]["seconds"] for seed in seeds)),
        "kinds": len(faults),
        "faults": faults.total(),
        "digest": together(of_seed[seed]["digest"] for seed in seeds),
    }


def _mutants(lines: list[Line]) -> dict[str, Any]:
    last = lines[-1]
    return {
        "count": 1,
        **{name: last[name] for name in ("scenario", "noticed", "payments", "commit")},
    }


def _exhaustion(lines: list[Line]) -> dict[str, Any]:
    last = lines[-1]
    names = (
        "parts",
        "states",
        "steps",
        "ends",
        "played",
        "followed",
        "seconds",
        "commit",
        "python",
    )
    return {"count": last["states"], **{name: last[name] for name in names}}


def _outage(lines: list[Line]) -> dict[str, Any]:
    of_seed = {line["seed"]: line for line in lines}
    sums = {
        name: sum(line[name] for line in of_seed.values())
        for name in ("paid", "lost_notifications", "vain_worker_runs", "polled", "made_good")
    }
    return {
        "count": sum(line["payments"] for line in of_seed.values()),
        "seeds": ranges(of_seed),
        **sums,
    }


def _mutation(lines: list[Line]) -> dict[str, Any]:
    last = lines[-1]
    noticed = last["killed"] + last["timeouts"]
    counts = {name: last[name] for name in ("killed", "timeouts", "survived", "equivalent")}
    return {
        "count": last["mutants"],
        **counts,
        "score": f"{noticed / (last['mutants'] - last['equivalent']):.1%}",
    }


def _killing(lines: list[Line]) -> dict[str, Any]:
    of_point = {line["point"]: line for line in lines}
    newest, last = list(of_point.values()), max(of_point)
    killed = [line for line in newest if line["place"]]
    places = {line["place"] for line in killed}
    return {
        "count": len(killed),
        "places": len(places),
        "ours": sum(place.startswith("tillgate/") for place in places),
        "whole": "yes"
        if len(newest) == last and not of_point[last]["place"]
        else "no",  # it was over before the last
        "violations": sum(line["outcome"] != HELD for line in newest),
    }


def _fuzz(lines: list[Line]) -> dict[str, Any]:
    seeds = {seed for line in lines for seed in _seeds(line)}
    return {
        "count": sum(line["inputs"] for line in lines),
        "seeds": ranges(seeds),
        "faults": sum(line["faults"] for line in lines),
    }


def _chaos(lines: list[Line]) -> dict[str, Any]:
    kills: Counter[str] = Counter()
    for line in lines:
        kills.update({name: number for name, number in line["kills"].items() if name})
    return {
        "count": sum(line["payments"] for line in lines),
        "minutes": sum(line["minutes"] for line in lines),
        "kills": kills.total(),
        "paid_orders": sum(line["paid_orders"] for line in lines),
        "refunds": sum(line["refunds"] for line in lines),
        "lost": sum(len(line["lost"]) for line in lines),
        "doubled": sum(len(line["doubled"]) for line in lines),
        "wrong": sum(len(line["wrong"]) for line in lines),
    }


def _storm(lines: list[Line]) -> dict[str, Any]:
    """Add up the runs of one setting; of their times the longest stand, so that no run hides
    another.
    """
    told, traffic = [line["one_effect"] for line in lines], [line["mixed"] for line in lines]
    peers = [line["peer"] for line in lines if line["peer"]]
    seconds = sum(part["seconds"] for part in traffic)
    return {
        "count": sum(part["payments"] for part in told),
        "effects": _effects(told),
        "peer": _effects(peers) if peers else "not measured",
        "requests": sum(part["requests"] for part in traffic),
        "seconds": round(seconds),
        "per_second": round(sum(part["requests"] for part in traffic) / seconds),
        "p50_ms": max(part["p50_ms"] for part in traffic),
        "p99_ms": max(part["p99_ms"] for part in traffic),
        **{name: sum(line[name] for line in lines) for name in ("errors", "lost", "doubled")},
    }


def _effects(parts: list[Line]) -> str:
    effects, orders, payments = (
        sum(part[name] for part in parts) for name in ("effects", "orders", "payments")
    )
    return f"{effects:,} on {orders:,} orders" + (
        "" if orders == payments else f" of {payments:,} payments"
    )


_FOLDS: Final[dict[str, tuple[tuple[str, ...], Callable[[list[Line]], dict[str, Any]]]]] = {
    "simulation": (("commit", "database", "orders_each", "python", "django"), _simulation),
    "mutants": (("mutant",), _mutants),
    "exhaustion": (("scope", "part"), _exhaustion),
    "outage": (("commit", "database", "days", "python"), _outage),
    "mutation": (("commit", "module", "mutmut", "python", "django"), _mutation),
    "kill-lines": (("commit", "source", "database", "action"), _killing),
    "fuzz": (("commit", "database", "python"), _fuzz),
    "chaos": (("commit", "python"), _chaos),
    "storm": (("commit", "database", "copies", "connections", "python"), _storm),
}


def _numbers(ranges: str) -> set[int]:
    numbers: set[int] = set()
    for part in ranges.split(", "):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


# The page -----------------------------------------------------------------------------------------


def pages(summary: Summary) -> dict[Path, str]:
    """Return the page as the summary has it."""
    page, last = PAGE.read_text("utf-8"), summary.get(_PROVE, {}).get("last", {})
    for name, (title, wanted, columns) in _TABLES.items():
        kept = summary.get(name, {})
        entries = [
            kept[key] for key in sorted(kept, key=lambda key: (-int(kept[key]["count"]), key))
        ]
        page = replaced(
            page,
            name,
            COMMAND,
            _table(title, wanted, columns, entries, _ALIKE[name], _SUMS.get(name, list), last),
        )
    return {PAGE: page}


_ALIKE: Final[dict[str, tuple[str, ...]]] = {
    "simulation": ("database",),
    "mutants": ("mutant",),
    "exhaustion": ("scope", "part"),
    "outage": ("database", "days"),
    "mutation": ("module",),
    "kill-lines": ("database", "action"),
    "fuzz": ("database",),
    "chaos": (),
    "storm": ("database",),
}
"""For each proof the common part of two runs that differ in their source or versions alone. The
page has `python -m proving all`, and of the others the one with most.
"""


_TABLES: Final[dict[str, tuple[str, str, tuple[tuple[str, str], ...]]]] = {
    "simulation": (
        "payments were simulated",
        "60,000 payments on SQLite, and 4,000 each on PostgreSQL and MariaDB",
        (
            *(
                ("database", "database"),
                ("payments", "payments"),
                ("paid", "paid"),
                ("refunds", "refunds"),
                ("seeds", "seeds"),
            ),
            *(
                ("faults", "faults"),
                ("judged", "judgements"),
                ("days", "virtual days"),
                ("commit", "commit"),
                ("digest", "hash"),
            ),
        ),
    ),
    "mutants": (
        "mutants were simulated",
        "each mutant of the conformance kit, and of the simulator",
        (
            ("noticed", "noticed by"),
            ("mutants", "mutants"),
            ("payments", "payments at most"),
            ("commit", "commit"),
        ),
    ),
    "exhaustion": (
        "states were explored",
        "two payments, one refund, one crash and one fault, in 25 parts",
        (
            *(
                ("scope", "scope"),
                ("parts", "parts"),
                ("states", "states"),
                ("steps", "steps between them"),
                ("ends", "ends"),
            ),
            *(
                ("played", "played"),
                ("followed", "followed"),
                ("seconds", "seconds"),
                ("commit", "commit"),
                ("python", "Python"),
            ),
        ),
    ),
    "outage": (
        "payments went through an outage",
        "30 virtual days",
        (
            *(
                ("days", "days"),
                ("count", "payments"),
                ("paid", "paid meanwhile"),
                ("lost_notifications", "notifications lost"),
                ("vain_worker_runs", "worker runs in vain"),
            ),
            *(
                ("polled", "queries of the one worker run"),
                ("made_good", "made good by it"),
                ("seeds", "seeds"),
                ("commit", "commit"),
                ("python", "Python"),
            ),
        ),
    ),
    "mutation": (
        "changes of the code were tried",
        "signing, the lifecycle and six rooms of the Django app, at 95 % each",
        (
            *(
                ("module", "code"),
                ("modules", "modules"),
                ("count", "mutants"),
                ("killed", "noticed"),
                ("timeouts", "timed out"),
                ("survived", "survived"),
            ),
            *(
                ("equivalent", "of them equivalent"),
                ("score", "score"),
                ("lowest", "lowest of a module"),
                ("commit", "commit"),
                ("mutmut", "mutmut"),
                ("python", "Python"),
                ("django", "Django"),
            ),
        ),
    ),
    "kill-lines": (
        "kills were made",
        "every line on all three databases",
        (
            *(
                ("database", "database"),
                ("actions", "actions"),
                ("whole", "of them at every line"),
                ("count", "kills"),
            ),
            *(("violations", "violations"), ("commit", "commit"), ("source", "source")),
        ),
    ),
    "fuzz": (
        "inputs were made up",
        "200,000 inputs",
        (
            ("database", "database"),
            ("count", "inputs"),
            ("seeds", "seeds"),
            ("faults", "defects found"),
            ("commit", "commit"),
            ("python", "Python"),
        ),
    ),
    "chaos": (
        "payments were made while processes were killed",
        "5 minutes",
        (
            *(
                ("minutes", "minutes"),
                ("kills", "kills"),
                ("count", "payments"),
                ("paid_orders", "paid orders"),
                ("refunds", "refunds"),
            ),
            *(
                ("lost", "lost"),
                ("doubled", "doubled"),
                ("wrong", "wrong"),
                ("commit", "commit"),
                ("python", "Python"),
            ),
        ),
    ),
    "storm": (
        "payments were each told of by many copies of a notification at once",
        "1,000 with 64 copies, and 60 seconds of mixed traffic, each on PostgreSQL and MariaDB",
        (
            *(
                ("database", "database"),
                ("count", "payments"),
                ("copies", "copies of each notification"),
                ("effects", "effects"),
            ),
            *(
                ("peer", "effects of dj-stripe"),
                ("requests", "mixed requests"),
                ("per_second", "a second"),
            ),
            *(
                ("p50_ms", "p50, ms"),
                ("p99_ms", "p99, ms"),
                ("errors", "errors"),
                ("lost", "lost"),
                ("doubled", "doubled"),
                ("commit", "commit"),
            ),
        ),
    ),
}
"""For each proof: the counted unit, the full run, and the columns of its table."""


def _mutants_in_all(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "count": len(group),
            "noticed": noticed,
            "mutants": len(group),
            "payments": max(entry["payments"] for entry in group),
            **_run(group),
        }
        for noticed, group in sorted(
            _grouped(entries, lambda entry: _noticed(entry["noticed"])),
            key=lambda item: (len(item[0]), item[0]),
        )
    ]


def _exhaustion_in_all(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = ("count", "states", "steps", "ends", "played", "followed")
    return [
        {
            "scope": scope,
            "parts": f"{len(group)} of {group[0]['parts']}",
            **_sums(group, names),
            "seconds": round(sum(entry["seconds"] for entry in group)),
            **_run(group),
        }
        for scope, group in _grouped(entries, lambda entry: entry["scope"])
    ]


def _mutation_in_all(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for code, group in _grouped(
        entries,
        lambda entry: re.sub(r"^(tillgate\.(?:lifecycle|django\.\w+))\..*", r"\1", entry["module"]),
    ):
        sums = _sums(group, ("count", "killed", "timeouts", "survived", "equivalent"))
        score = (sums["killed"] + sums["timeouts"]) / (sums["count"] - sums["equivalent"])
        lowest = min(
            (entry["score"] for entry in group),
            key=lambda shown: float(shown.rstrip("%")),
        )
        rows.append(
            {
                "module": code,
                "modules": len(group),
                **sums,
                "score": f"{score:.1%}",
                "lowest": lowest,
                **_run(group),
            },
        )
    return rows


def _killing_in_all(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "database": database,
            "actions": len(group),
            "whole": sum(entry["whole"] == "yes" for entry in group),
            **_sums(group, ("count", "violations")),
            **_run(group),
        }
        for database, group in _grouped(entries, lambda entry: entry["database"])
    ]


def _grouped(
    entries: list[dict[str, Any]],
    key: Callable[[dict[str, Any]], str],
) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return groups.items()


def _sums(group: list[dict[str, Any]], names: Iterable[str]) -> dict[str, int]:
    return {name: sum(entry[name] for entry in group) for name in names}


def _run(group: list[dict[str, Any]]) -> dict[str, str]:
    """Return the commits and versions of a group, each once."""
    names = ("commit", "source", "python", "django", "mutmut")
    return {
        name: ", ".join(sorted({entry[name] for entry in group}))
        for name in names
        if name in group[0]
    }


_SUMS: Final[dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]]] = {
    "mutants": _mutants_in_all,
    "exhaustion": _exhaustion_in_all,
    "mutation": _mutation_in_all,
    "kill-lines": _killing_in_all,
}
"""For a proof of many parts: the rows that add them up. The summary has each part."""


def _table(
    what: str,
    wanted: str,
    columns: tuple[tuple[str, str], ...],
    entries: list[dict[str, Any]],
    alike: tuple[str, ...],
    summed: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
    last: Mapping[str, Any],
) -> str:
    # some proofs note seven digits, others twelve
    proven_at = {commit[:7] for commit in last.get("commit", "").split()}
    of_last: dict[tuple[object, ...], dict[str, Any]] = {}
    most: dict[tuple[object, ...], dict[str, Any]] = {}
    for entry in entries:
        chosen = of_last if entry["commit"][:7] in proven_at else most
        chosen.setdefault(tuple(entry[field] for field in alike), entry)
    said = _counted(what, most.values())
    if of_last:
        said = (
            f"{sum(entry['count'] for entry in of_last.values()):,} {what} by the last `python "
            f"-m proving all`, on {last['date']}"
        )
    lines = [f"{said}. A full run is {wanted}."]
    if entries:
        lines += [
            "",
            "| " + " | ".join(title for _, title in columns) + " |",
            "|" + "---|" * len(columns),
        ]
        rows = [row for some in (of_last, most) if some for row in summed(list(some.values()))]
        lines += [
            "| " + " | ".join(_cell(name, row[name]) for name, _ in columns) + " |" for row in rows
        ]
    return "\n".join(lines)


def _counted(what: str, entries: Iterable[Mapping[str, Any]]) -> str:
    """Say how much the rows have of one commit, the one with most, and of all."""
    of_commit: Counter[str] = Counter()
    for entry in entries:
        of_commit[entry["commit"]] += entry["count"]
    most, all_of_them = max(of_commit.values(), default=0), of_commit.total()
    return f"{most:,} {what} so far" + (
        "" if most == all_of_them else f" at one commit, {all_of_them:,} in all commits"
    )


def _noticed(by: str) -> str:
    """Return the invariant or comparison that failed; an error of an action has no name of its
    own.
    """
    found = str(by).partition(":")[0]
    if not found:
        return "not noticed"
    return (
        found if re.fullmatch(r"I\d+|personal data|the books", found) else "an error of the action"
    )


def _cell(name: str, value: object) -> str:
    if name == "digest":
        return f"`{str(value)[:16]}`"
    return f"{value:,}" if isinstance(value, int) else str(value)


def as_text(summary: Summary) -> str:
    """Return the summary as it is kept."""
    return json.dumps(summary, indent=1, sort_keys=True) + "\n"
