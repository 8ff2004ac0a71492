"""The results: a line of JSON for each kill, appended, so an interrupted run continues at its last
point.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from proving.killing.lines import EVERY

__all__ = ["HELD", "Part", "Result", "Results", "fingerprint", "section", "table"]

HELD = "held"


@dataclass(frozen=True, slots=True)
class Part:
    """One of so many parts of the work, counted from 1, that several runs do beside each other."""

    number: int = 1
    of: int = 1

    def has(self, point: int) -> bool:
        """Tell whether a point is in this part."""
        return point % self.of == self.number - 1

    @property
    def suffix(self) -> str:
        """Return the suffix of its database's name."""
        return f"_{self.number}" if self.of > 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One kill: in which act, at which point and place, and whether everything held; no place when
    the act was done before.
    """

    database: str
    action: str
    recovery: str
    point: int
    place: str
    outcome: str
    source: str
    commit: str
    seed: int | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """The key of the point that was tried."""
        return (self.database, self.action, self.point)


class Results:
    """A file of results; those of other sources than this stay in it and count for nothing."""

    def __init__(self, file: Path, source: str, commit: str) -> None:
        self._file, self.source, self.commit = file, source, commit
        self.all = [one for one in _read(file) if one.source == source]
        self._held = {one.key for one in self.all if one.outcome == HELD}

    def is_known(self, database: str, action: str, point: int) -> bool:
        """Tell whether everything held when this was tried."""
        return (database, action, point) in self._held

    def add(self, results: Iterable[Result]) -> None:
        """Append some."""
        new = list(results)
        self.all += new
        self._held |= {one.key for one in new if one.outcome == HELD}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open(
            "ab",
            buffering=0,
        ) as file:  # one write, since other runs append to it too
            file.write("".join(f"\n{json.dumps(asdict(one))}" for one in new).encode())


def _read(file: Path) -> list[Result]:
    lines = file.read_text().splitlines() if file.exists() else []
    # not the last, if its writer died
    return [Result(**json.loads(line)) for line in lines if line.endswith("}")]


def fingerprint(packages: Iterable[Path]) -> tuple[str, str]:
    """Return a digest of some packages' source, and the commit where there is one."""
    digest = hashlib.sha256()
    for file in sorted(file for package in packages for file in package.rglob("*.py")):
        digest.update(file.read_bytes())
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return digest.hexdigest()[:12], "unknown"
    return digest.hexdigest()[:12], told.stdout.strip()


_SECTION = """## Kill at every line

A process dies by SIGKILL at the n-th line that it runs, for every n: every line of {packages} and every {every}th of all other packages
is a point. Then somebody recovers, as people and gateways do: the notification comes again, the shopper reloads or presses again, or
nobody but
the worker does anything; so many ways as there are take turns from point to point. Hours pass, and gateway, Tillgate and shop must agree
to the cent. "Done before" are points that a run did not reach: its number of lines varies a little. "Places" are different lines of code.

Source `{source}` of commit `{commit}`; `python -m proving kill-lines` goes on where it was.

{table}
That a process is killed is not a power cut: what a database has been told to commit stays.
"""


def section(results: Results, packages: Iterable[str]) -> str:
    """Return the section of proving/reliability.md about these results."""
    return _SECTION.format(
        packages=" and ".join(f"`{name}`" for name in packages),
        every=EVERY,
        source=results.source,
        commit=results.commit,
        table=table(results.all),
    )


def table(results: Iterable[Result]) -> str:
    """Return the newest of the results as a table in Markdown: kills and places for each database
    and act.
    """
    newest = list({one.key: one for one in results}.values())
    rows = [
        "| database | act | killed | done before | places | of them in tillgate | violations |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for database, action in sorted({(one.database, one.action) for one in newest}):
        those = [one for one in newest if (one.database, one.action) == (database, action)]
        rows.append(f"| {database} | {action} | {_counted(those)} |")
    rows.append(f"| all | | {_counted(newest)} |")
    return "\n".join(rows) + "\n"


def _counted(results: list[Result]) -> str:
    killed = [one for one in results if one.place]
    places = {one.place for one in killed}
    ours = sum(place.startswith("tillgate/") for place in places)
    violated = sum(one.outcome != HELD for one in results)
    counted = (len(killed), len(results) - len(killed), len(places), ours, violated)
    return " | ".join(f"{number:,}" for number in counted)
