"""The generated parts of the documentation match their commands' output, and the commands describe
the code.
"""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tillgate import lifecycle
from tillgate import shop as public
from tillgate.hooks import hookspecs
from tillgate.shop import http
from tillgate.testing.conformance import Conformance
from tillgate.testing.gateway_conformance import GatewayConformance
from tillgate.testing.report import Table
from tools.docgen import architecture, conformance, coverage, hooks, parts, reliability, shop, site
from tools.docgen.conformance import Report

SCENARIOS = list(Conformance.scenarios())
REPORTS = conformance.read_reports()
BEGIN, END = "<!-- b: written by `make c` -->", "<!-- end of b -->"


def test_only_marked_part_is_replaced() -> None:
    page = f"# A\n\n{BEGIN}\n\nold\n\n{END}\n\nrest\n"
    assert parts.replaced(page, "b", "make c", "new\n") == page.replace("old", "new")


@pytest.mark.parametrize(
    "page",
    ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN.replace('make c', 'make d')}{END}"],
)
def test_page_without_both_marks_is_error(page: str) -> None:
    with pytest.raises(ValueError, match="no part between"):
        parts.replaced(page, "b", "make c", "new")


@pytest.mark.parametrize("page", [hooks, shop], ids=["hooks", "shop"])
def test_the_reference_is_what_make_reference_writes(page: Any) -> None:
    for path, text in page.pages().items():
        assert parts.is_written(path, text), "run `python -m tools.docgen reference`"


def test_the_architecture_is_what_make_architecture_writes() -> None:
    for path, text in architecture.pages().items():
        assert parts.is_written(path, text), "run `python -m tools.docgen architecture`"


def test_architecture_lists_packages_and_review_reasons() -> None:
    """Each review reason stands there with its policy."""
    (page,) = architecture.pages().values()
    packages = {
        f"src/tillgate/{path.parent.name}"
        for path in (parts.ROOT / "src" / "tillgate").glob("*/__init__.py")
    }
    assert [package for package in packages if f"]({package})" not in page] == []
    table = page.partition("\n## Reviews\n")[2]
    for reason, policy in lifecycle.POLICIES.items():
        (row,) = [
            line for line in table.splitlines() if line.startswith("|") and f"`{reason}`" in line
        ]
        _, _, scope, actions, ends, more, _ = (cell.strip() for cell in row.split("|"))
        assert (scope, re.findall(r"`([a-z-]+)`", actions)) == (policy.scope, list(policy.actions))
        assert set(filter(None, ends.split(", "))) == policy.ends
        assert ("means paid" in more, "blocks refunds" in more) == (
            policy.reported_paid,
            policy.blocks_refunds,
        )


def test_the_architecture_follows_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        architecture.MACHINES,
        "order",
        {"open": frozenset({"paid"}), "paid": frozenset()},
    )
    (page,) = architecture.pages().values()
    drawing = page.partition("order: written")[2].partition("<!-- end")[0]
    assert [line.strip() for line in drawing.splitlines() if "-->" in line][1:] == [
        "[*] --> open",
        "open --> paid",
        "paid --> [*]",
    ]


def test_reference_documents_every_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the parameters, the effect of the hook, and the time of its call."""
    (page,) = hooks.pages().values()
    names = [name for name in vars(hookspecs) if name.startswith("tillgate_")]
    assert re.findall(r"^- `(tillgate_\w+)\(", page, re.MULTILINE) == names
    assert "\n- `tillgate_refund(account, request)`: Refund money at the gateway, " in page
    monkeypatch.setattr(
        hookspecs.tillgate_deliver,
        "__doc__",
        "Do something else.\n\n    It raises `Refused`. More.\n\n    Even more.",
    )
    (page,) = hooks.pages().values()
    assert ": Do something else. It raises [`Refused`](errors.md#refused).\n" in page


def test_reference_has_every_public_plugin_name() -> None:
    (page,) = shop.pages().values()
    for name in (*public.__all__, *http.__all__):
        assert re.search(rf"\n- `{name}\b|\n\| [^|]*`{name}`[^|]* \|", page), name
    assert '\n- `close_order(plugin, order_key, *, actor="shop", kept=Decimal(0))`: Note' in page
    assert "[`tillgate_deliver`](hooks.md#the-shops-side)" in page


# Conformance --------------------------------------------------------------------------------------


def test_scenario_tables_use_reports_alone() -> None:
    for path, text in conformance.pages(REPORTS).items():
        assert parts.is_written(path, text), f"{path.name}: run `nox -s conformance`"


def test_every_shop_with_kit_has_report() -> None:
    """No other report exists."""
    assert set(REPORTS) == {suite.plugin for suite in conformance.suites()}, (
        "run `nox -s conformance`"
    )


@pytest.mark.parametrize("plugin", REPORTS)
def test_every_report_has_exactly_all_scenarios(plugin: str) -> None:
    for table in REPORTS[plugin].tables:
        assert sorted(table.results) == sorted(table.scenarios), (
            "scenarios have changed since: run `nox -s conformance`"
        )


@pytest.mark.parametrize("plugin", REPORTS)
def test_every_scenario_held_or_was_declined(plugin: str) -> None:
    """Each declined scenario has a reason."""
    for table in REPORTS[plugin].tables:
        others = {
            name: result
            for name, result in table.results.items()
            if result != "held" and not result.startswith("declined: ")
        }
        assert all(
            name.startswith(("exact_amount_with", "closed_page")) and result.startswith("skipped: ")
            for name, result in others.items()
        ), others


@pytest.mark.parametrize("plugin", REPORTS)
def test_every_report_names_its_origin(plugin: str) -> None:
    """It says which versions, commit and day it is about."""
    assert REPORTS[plugin].origin.startswith("commit ")
    for table in REPORTS[plugin].tables:
        assert set(table.versions) >= {"tillgate", "Python"}
        assert "Django" in table.versions or plugin in {
            suite.plugin for suite in conformance.suites() if suite.is_gateway
        }


def reported(**results: str) -> Report:
    table = Table(
        "TestShop",
        "some-shop",
        {"tillgate": "9.9"},
        dict.fromkeys(SCENARIOS, "held") | results,
    )
    return Report("commit abc, 2026-01-02", (table,))


def test_tables_show_scenarios_without_success() -> None:
    """These have failed, were declined or were not run."""
    report = reported(
        notification_only="FAILED in call",
        decline="declined: by | hand",
        expiry="declined: by | hand",
    )
    del report.tables[0].results["full_refund"]
    written = conformance.pages({"some-shop": report})
    page = written[conformance.PAGE]
    assert (
        f"| some-shop | {len(SCENARIOS) - 4} of {len(SCENARIOS) - 1} | tillgate 9.9 | commit abc, "
        "2026-01-02 |" in page
    )
    for row in (
        "notification_only` | FAILED in call",
        "decline` | declined (1)",
        "expiry` | declined (1)",
        "full_refund` | not run",
    ):
        assert f"| `{row} |" in page
    assert f"\n{len(SCENARIOS) - 4} scenarios held on every framework; the others:\n" in page
    assert "late_money" not in page
    assert page.count("\n1. by | hand\n") == 1
    paying = sum(f"test_{name}" in vars(Conformance.groups()[0]) for name in SCENARIOS)
    assert (
        f"| Paying: a shopper who pays, leaves, comes back or does not | {paying - 3} of {paying} |"
        in page
    )
    assert f"| **all** | {len(SCENARIOS) - 4} of {len(SCENARIOS)} |" in page


def test_gateway_has_table_with_preset_columns() -> None:
    shop_report = reported()
    results = dict.fromkeys(GatewayConformance.scenarios(), "held") | {
        "same_refund_id": "declined: no ids",
    }
    kit = "tillgate.testing.gateway_conformance:GatewayConformance"
    tables = [
        Table(f"Test{name}", "gateway", {}, dict(results), kit) for name in ("Reference", "V3")
    ]
    tables[1].results["same_refund_id"] = "held"
    written = conformance.pages(
        {"some-shop": shop_report, "gateway": Report("commit abc, 2026-01-02", tuple(tables))},
    )
    assert "| scenario | gateway, reference | gateway, v3 |" in written[conformance.PAGE]
    assert "| `same_refund_id` | declined (1) | held |" in written[conformance.PAGE]
    assert (
        "gateway"
        not in written[conformance.PAGE].partition("| scenarios that held |")[2].partition("\n")[0]
    )


def test_each_shop_class_is_one_column() -> None:
    (table,) = reported().tables
    report = Report(
        "commit abc, 2026-01-02",
        (table, Table("TestFixedMethods", "some-shop", {}, table.results)),
    )
    assert list(report.columns()) == ["some-shop, shop", "some-shop, fixed methods"]


def test_run_keeps_report_and_tells_failures(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, result in (("good", "held"), ("bad", "FAILED in call")):
        report = json.dumps(
            {
                "origin": "o",
                "tables": [
                    {"name": "T", "plugin": name, "versions": {}, "results": {"expiry": result}},
                ],
            },
        )
        python = tmp_path / name
        python.write_text(
            f"#!/bin/sh\ncat > \"$6\" <<'END'\n{report}\nEND\ntest {name} = good\n",
            "utf-8",
        )
        python.chmod(0o755)
    monkeypatch.setattr(conformance, "REPORTS", tmp_path / "reports")
    chosen = [
        conformance.Suite(name, parts.ROOT / "tests" / "test_x.py", tmp_path / name)
        for name in ("good", "bad")
    ]
    monkeypatch.setattr(conformance.Suite, "folder", parts.ROOT)
    assert conformance.run(chosen) == ["bad"]
    assert [
        report.tables[0].results["expiry"] for report in conformance.read_reports().values()
    ] == ["FAILED in call", "held"]


# Reliability --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("points", "places", "whole"),
    [
        ((1, 2, 3), ("tillgate/a.py:1", "tillgate/a.py:2", ""), "yes"),
        ((1, 3), ("tillgate/a.py:1", ""), "no"),
        ((1, 2), ("tillgate/a.py:1", "tillgate/a.py:2"), "no"),
    ],
)
def test_fully_killed_act_counts_as_whole(
    points: tuple[int, ...],
    places: tuple[str, ...],
    whole: str,
) -> None:
    """It was killed at every line until it was over."""
    about = {
        "commit": "c",
        "source": "s",
        "database": "sqlite",
        "action": "start",
        "outcome": "held",
    }
    lines = [
        {**about, "point": point, "place": place}
        for point, place in zip(points, places, strict=True)
    ]
    [entry] = reliability.folded("kill-lines", lines).values()
    assert (entry["whole"], entry["count"], entry["violations"]) == (
        whole,
        sum(map(bool, places)),
        0,
    )


def test_reliability_page_uses_summary_alone() -> None:
    for path, text in reliability.pages(reliability.read_summary()).items():
        assert parts.is_written(path, text), "run `python -m tools.docgen reliability`"


def counted(lines: int, reached: int) -> dict[str, dict[str, int]]:
    branches = {"num_branches": 4, "covered_branches": 1}
    return {"summary": {"num_statements": lines, "covered_lines": reached, **branches}}


def test_coverage_adds_up_each_room() -> None:
    files = {
        "src/tillgate/errors.py": counted(10, 10),
        "src/tillgate/wire/signing.py": counted(20, 10),
        "src/tillgate/django/admin.py": counted(5, 5),
        "src/tillgate/django/pages/web/a.py": counted(30, 15),
        "src/tillgate/django/pages/b.py": counted(10, 5),
        "/somewhere/plugins/payu/src/tillgate_payu/api.py": counted(3, 3),
    }
    found = {room: tuple(counts.values()) for room, counts in coverage.rooms(files).items()}
    assert found == {
        "tillgate": (10, 10, 4, 1),
        "tillgate.wire": (20, 10, 4, 1),
        "tillgate.django": (5, 5, 4, 1),
        "tillgate.django.pages": (40, 20, 8, 2),
        "tillgate_payu": (3, 3, 4, 1),
    }


def test_coverage_table_uses_results_alone() -> None:
    for path, text in coverage.pages().items():
        assert parts.is_written(path, text), "run `nox -s coverage`"


def test_reliability_names_modules_that_exist() -> None:
    summary = reliability.summarised(reliability.read_summary(), Path("/nowhere"))
    kept = reliability.read_summary()["mutation"]
    assert summary["mutation"] == kept, "run `python -m tools.docgen reliability`"
    gone = {**kept, "x": {"module": "tillgate.django.operations.audit", "count": 1}}
    assert reliability.summarised({"mutation": gone}, Path("/nowhere"))["mutation"] == kept


def seed(number: int, payments: int, commit: str = "aaa") -> dict[str, object]:
    noted = {
        "commit": commit,
        "database": "sqlite",
        "orders_each": 10,
        "python": "3.11.7",
        "django": "5.2",
        "seed": number,
    }
    counted = dict.fromkeys(("orders", "paid", "refunds", "steps", "judged"), payments)
    return {
        **noted,
        **counted,
        "payments": payments,
        "days": 1.5,
        "seconds": 2.0,
        "struck": {"crash": 2},
        "digest": f"d{number}",
    }


def test_each_commits_seeds_are_counted_once() -> None:
    """Another commit has a row of its own."""
    lines = [seed(1, 10), seed(2, 20), seed(2, 20), seed(5, 30), seed(1, 7, "bbb")]
    first, second = reliability.folded("simulation", lines).values()
    assert (first["count"], first["seeds"], first["faults"], second["count"]) == (
        60,
        "1-2, 5",
        6,
        7,
    )


def test_kept_count_yields_only_to_larger(tmp_path: Path) -> None:
    """A count in the summary stays until the files have more."""
    file = tmp_path / "simulation.jsonl"
    file.write_text("".join(f"{json.dumps(seed(number, 10))}\n" for number in (1, 2)))
    kept = reliability.summarised({}, tmp_path)
    file.write_text(f'{json.dumps(seed(2, 5))}\n{{"cut off')
    assert reliability.summarised(kept, tmp_path) == kept
    assert reliability.summarised(kept, tmp_path / "none") == kept


def test_seeds_of_another_machine_are_added(
    tmp_path: Path,
) -> None:
    def summary_of(name: str, *numbers: int, kept: reliability.Summary) -> reliability.Summary:
        (tmp_path / name).mkdir()
        (tmp_path / name / "simulation.jsonl").write_text(
            "".join(f"{json.dumps(seed(number, 10))}\n" for number in numbers),
        )
        return reliability.summarised(kept, tmp_path / name)

    together = summary_of("one", 1, 2, 3, 5, kept={})
    assert summary_of("third", 2, 5, kept=summary_of("second", 1, 3, kept={})) == together
    [entry] = together["simulation"].values()
    assert (entry["count"], entry["seeds"], entry["faults"], entry["kinds"]) == (40, "1-3, 5", 8, 1)


@pytest.mark.parametrize("name", ["simulation", "fuzz"])
def test_new_seeds_join_kept_ones_once(
    name: str,
    tmp_path: Path,
) -> None:
    def line(number: int) -> dict[str, object]:
        drawn = {
            "commit": "aaa",
            "database": "sqlite",
            "python": "3.11.7",
            "seeds": [[number, number]],
            "inputs": 10,
            "faults": 0,
        }
        return drawn if name == "fuzz" else seed(number, 10)

    def summary_of(*numbers: int, kept: reliability.Summary) -> reliability.Summary:
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(f"{json.dumps(line(number))}\n" for number in numbers),
        )
        return reliability.summarised(kept, tmp_path)

    kept = summary_of(1, 2, 3, 4, kept={})
    assert summary_of(3, 4, 5, 6, kept=kept) == summary_of(1, 2, 3, 4, 5, 6, kept={})
    assert summary_of(2, 3, kept=kept) == kept


def test_partly_kept_seed_range_is_skipped(tmp_path: Path) -> None:
    def summary_of(first: int, last: int, kept: reliability.Summary) -> reliability.Summary:
        line = {
            "commit": "aaa",
            "database": "sqlite",
            "python": "3.11.7",
            "seeds": [[first, last]],
            "inputs": 100,
            "faults": 1,
        }
        (tmp_path / "fuzz.jsonl").write_text(f"{json.dumps(line)}\n")
        return reliability.summarised(kept, tmp_path)

    kept = summary_of(1, 50, {})
    assert summary_of(50, 99, kept) == kept
    [entry] = summary_of(51, 100, kept)["fuzz"].values()
    assert (entry["count"], entry["seeds"], entry["faults"]) == (200, "1-100", 2)


def test_headline_names_best_commit() -> None:
    """It counts all commits only if there is more than one."""

    def headline(*commits: str) -> str:
        lines = [
            seed(number, 10 * number, commit) | {"database": f"of {commit}"}
            for number, commit in enumerate(commits, 1)
        ]
        [page] = reliability.pages({"simulation": reliability.folded("simulation", lines)}).values()
        return page.partition(
            "simulation: written by `python -m tools.docgen reliability` -->\n\n",
        )[2].partition(". A full run is")[0]

    assert headline("aaa", "aaa") == "30 payments were simulated so far"
    assert (
        headline("aaa", "bbb", "bbb")
        == "50 payments were simulated so far at one commit, 60 in all commits"
    )
    assert headline() == "0 payments were simulated so far"


def test_the_headline_counts_what_its_table_shows() -> None:
    lines = [seed(1, 10, "aaa"), seed(2, 20, "bbb")]
    [page] = reliability.pages({"simulation": reliability.folded("simulation", lines)}).values()
    said = page.partition("simulation: written by `python -m tools.docgen reliability` -->\n\n")[2]
    assert said.startswith("20 payments were simulated so far. A full run is")


def test_page_shows_longest_of_similar_runs() -> None:
    """They differ in nothing but their source."""

    def table(*commits: str) -> list[str]:
        lines = [seed(number, 10 * number, commit) for number, commit in enumerate(commits, 1)]
        [page] = reliability.pages({"simulation": reliability.folded("simulation", lines)}).values()
        return (
            page.partition("simulation: written by `python -m tools.docgen reliability` -->\n\n")[2]
            .partition("\n\n<!--")[0]
            .splitlines()
        )

    alone, pair, three = table("aaa"), table("aaa", "bbb"), table("aaa", "bbb", "ccc")
    assert [lines[-1].split(" | ")[1] for lines in (alone, pair, three)] == ["10", "20", "30"]
    assert len(alone) == len(pair) == len(three)


def test_last_prove_rows_come_first() -> None:
    """They stand before longer ones of older code and are counted separately."""
    lines = [seed(1, 10, "aaaaaaabbbbb"), seed(2, 20, "ccc"), seed(3, 30, "ddd")]
    summary = reliability.proven(
        {"simulation": reliability.folded("simulation", lines)},
        "aaaaaaa",
        datetime.date(2026, 11, 28),
    )
    [page] = reliability.pages(summary).values()
    part = page.partition("simulation: written by `python -m tools.docgen reliability` -->\n\n")[2]
    said, *_, first, second = part.partition("\n\n<!--")[0].splitlines()
    assert [line.split(" | ")[1] for line in (first, second)] == ["10", "30"]
    assert said.startswith(
        "10 payments were simulated by the last `python -m proving all`, on 2026-11-28. A full "
        "run is",
    )


def test_both_commits_of_prove_have_rows() -> None:
    lines = [
        {
            "mutant": "logs the token",
            "scenario": "logs",
            "noticed": "I11: it is logged",
            "payments": 7,
            "commit": "cccccccddddd",
        },
    ]
    kept = {
        "simulation": reliability.folded("simulation", [seed(1, 10, "aaaaaaabbbbb")]),
        "mutants": reliability.folded("mutants", lines),
    }
    [page] = reliability.pages(
        reliability.proven(kept, "aaaaaaa ccccccc", datetime.date(2026, 11, 28)),
    ).values()
    assert "10 payments were simulated by the last `python -m proving all`" in page
    assert "1 mutants were simulated by the last `python -m proving all`" in page


def explored(states: int) -> dict[str, object]:
    part = {
        "scope": "whole",
        "part": "shopper dies, clerk fails",
        "parts": 25,
        "states": states,
        "steps": 9,
        "ends": 2,
        "played": 3,
    }
    return {**part, "followed": 4, "seconds": 5.5, "commit": "aaa", "python": "3.11.2"}


def test_newest_exploration_of_part_counts(tmp_path: Path) -> None:
    file = tmp_path / "exhaustion.jsonl"
    file.write_text(f"{json.dumps(explored(200))}\n")
    kept = reliability.summarised({}, tmp_path)
    file.write_text(f"{json.dumps(explored(100))}\n")
    [entry] = reliability.summarised(kept, tmp_path)["exhaustion"].values()
    assert entry["states"] == 100


def stormed(
    effects: int,
    p99_ms: float,
    *,
    peer: bool = True,
    doubled: int = 0,
) -> dict[str, object]:
    setting = {
        "commit": "aaa",
        "database": "mariadb",
        "copies": 64,
        "connections": 32,
        "python": "3.11.7",
    }
    told = {"payments": 1000, "effects": effects, "orders": 1000}
    traffic = {"requests": 4000, "seconds": 20.0, "p50_ms": 9.5, "p99_ms": p99_ms}
    theirs = {"payments": 100, "effects": 131, "orders": 99} if peer else None
    return {
        **setting,
        "one_effect": told,
        "mixed": traffic,
        "peer": theirs,
        "errors": 0,
        "lost": 0,
        "doubled": doubled,
    }


def test_storms_of_one_setting_are_added() -> None:
    """No storm hides a bad result of another."""
    [entry] = reliability.folded(
        "storm",
        [stormed(1001, 80.5, doubled=1), stormed(1000, 20.5, peer=False)],
    ).values()
    assert (entry["effects"], entry["doubled"], entry["p99_ms"], entry["per_second"]) == (
        "2,001 on 2,000 orders",
        1,
        80.5,
        200,
    )
    assert entry["peer"] == "131 on 99 orders of 100 payments"


def test_storm_row_shows_peers_result() -> None:
    """It says so if the peer was not measured."""
    summary = {"storm": reliability.folded("storm", [stormed(1000, 20.5, peer=False)])}
    [page] = reliability.pages(summary).values()
    row = (
        "| mariadb | 1,000 | 64 | 1,000 on 1,000 orders | not measured | 4,000 | 200 | 9.5 | "
        "20.5 | 0 | 0 | 0 | aaa |"
    )
    assert row in page.partition("## The storm")[2].partition("\n## ")[0]


# The site -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "on_the_site"),
    [
        ("[a](how-to/celery.md#beat)", "[a](how-to/celery.md#beat)"),
        ("[a](../plugins/oscar/README.md#install)", "[a](plugins/oscar.md#install)"),
        ("[a](../README.md)", "[a](readme.md)"),
        ("[`a`](../src/tillgate/money.py)", "[`a`](source/src/tillgate/money.py.md)"),
        ("see [`src/`](../src/tillgate).", "see `src/`."),
        ("[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("```\n[a](../README.md)\n```\n", "```\n[a](../README.md)\n```\n"),
    ],
)
def test_page_link_follows_page_on_site(
    written: str,
    on_the_site: str,
) -> None:
    assert site.moved(written, "docs/index.md", "index.md") == on_the_site


def test_picture_of_moved_page_is_found() -> None:
    moved = site.moved('<img src="docs/images/checkout.png" alt="">', "README.md", "a/readme.md")
    assert moved == '<img src="../images/checkout.png" alt="">'


def test_site_menu_has_every_page() -> None:
    """It has every page of the documentation and every plugin."""
    menu = (site.ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    pages = {
        path.relative_to(site.ROOT / "docs").as_posix() for path in site.ROOT.glob("docs/**/*.md")
    }
    in_detail = {page for page in pages if page.startswith("reference/conformance/")}
    assert [
        page
        for page in sorted((pages | set(site.pages().values())) - in_detail)
        if page not in menu
    ] == []


def test_site_calls_no_other_host() -> None:
    """The theme would load fonts from one, and Mermaid from another for each drawing."""
    config = (site.ROOT / "mkdocs.yml").read_text("utf-8")
    assert "font: false" in config
    assert "custom_fences" not in config


def test_linked_source_is_shown_on_site() -> None:
    assert "src/tillgate/money.py" in site.linked()


@pytest.mark.parametrize(
    ("page", "boosted"),
    [("faq.md", True), ("reference/lifecycle.md", True), ("reference/hooks.md", False)],
)
def test_search_shows_owners_pages_first(page: str, boosted: bool) -> None:
    assert site.is_for_owners(page) is boosted
