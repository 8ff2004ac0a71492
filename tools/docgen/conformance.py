"""The tables of scenarios: runs the conformance kits on every shop and gateway here, and writes the
results.

Each run leaves its report in docs/reference/conformance/, as the kit wrote it; the pages are made
of these reports and of nothing else. So one shop can be run again without the others.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tillgate.testing.conformance import Conformance
from tillgate.testing.gateway_conformance import GatewayConformance
from tillgate.testing.report import Table, markdown
from tools.docgen.parts import ROOT, replaced, table_of

__all__ = ["Report", "Suite", "pages", "read_report", "read_reports", "run", "suites"]

COMMAND: Final = "nox -s conformance"
REPORTS: Final = ROOT / "docs" / "reference" / "conformance"
PAGE: Final = Path(__file__).with_suffix(".md")
_SMALLEST: Final = "smallest-shop"
GATEWAY: Final = "gateway"
"""The built-in adapter, by the name of its plugin."""


@dataclass(frozen=True)
class Suite:
    """The conformance tests of one shop or gateway: the plugin's name, where they are, and the
    Python that has its framework.
    """

    plugin: str
    tests: Path
    python: Path

    @property
    def folder(self) -> Path:
        """Return where the tests are run: the folder of the distribution that they are part of."""
        return ROOT if self.plugin in (_SMALLEST, GATEWAY) else self.tests.parents[1]

    @property
    def is_gateway(self) -> bool:
        """Return whether the tests are those of a gateway."""
        return self.tests.name.startswith("test_gateway")

    @property
    def report(self) -> Path:
        """Return where the report of the last run is."""
        return REPORTS / f"{self.plugin}.json"


@dataclass(frozen=True)
class Report:
    """The results of one run: its commit and day, and a table for each class of tests."""

    origin: str
    tables: tuple[Table, ...]

    def columns(self) -> dict[str, Table]:
        """Return the tables by their names beside those of other shops."""
        if len(self.tables) == 1:
            return {self.tables[0].plugin: self.tables[0]}
        return {f"{table.plugin}, {_words(table.name)}": table for table in self.tables}


def suites() -> list[Suite]:
    """Return the suites of the smallest shop and the built-in adapter, and of each plugin that has
    one.
    """
    found = [
        Suite(
            _SMALLEST,
            ROOT / "tests" / "smallest_shop" / "test_conformance.py",
            Path(sys.executable),
        ),
        Suite(
            GATEWAY,
            ROOT / "tests" / "testing" / "test_gateway_presets.py",
            Path(sys.executable),
        ),
    ]
    for tests in sorted(
        [
            *ROOT.glob("plugins/*/tests/test_conformance.py"),
            *ROOT.glob("plugins/*/tests/test_gateway_conformance.py"),
        ],
    ):
        plugin = tests.parents[1].name
        # of a framework that needs other versions than the rest
        own = ROOT / ".nox" / plugin / "bin" / "python"
        found.append(Suite(plugin, tests, own if own.exists() else Path(sys.executable)))
    return found


def run(chosen: Sequence[Suite]) -> list[str]:
    """Run suites, keep their reports, and return the plugins on which something failed."""
    # each has its own
    failed, environment = (
        [],
        {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
    )
    with tempfile.TemporaryDirectory() as folder:
        for suite in chosen:
            print(f"running the conformance kit on {suite.plugin}", flush=True)
            command: list[str | Path] = [
                suite.python,
                "-m",
                "pytest",
                "-q",
                suite.tests.relative_to(suite.folder),
            ]
            command += ["--conformance-report", Path(folder, suite.report.name)]
            done = subprocess.run(command, cwd=suite.folder, env=environment, check=False)
            failed += [suite.plugin] if done.returncode else []
        for report in Path(
            folder,
        ).iterdir():  # at last, since a report tells whether its commit was changed
            REPORTS.mkdir(exist_ok=True)
            shutil.copyfile(report, REPORTS / report.name)
    return failed


def read_reports() -> dict[str, Report]:
    """Return the reports that are there, by plugin; the smallest shop's first."""
    paths = sorted(REPORTS.glob("*.json"), key=lambda path: (path.stem != _SMALLEST, path.stem))
    return {path.stem: read_report(path) for path in paths}


def read_report(path: Path) -> Report:
    """Return the report of one run."""
    told = json.loads(path.read_text("utf-8"))
    return Report(told["origin"], tuple(Table(**table) for table in told["tables"]))


def pages(reports: Mapping[str, Report]) -> dict[Path, str]:
    """Return the pages as the reports have them: the whole table, and a table for each plugin's
    README.
    """
    written = {
        PAGE: replaced(PAGE.read_text("utf-8"), "conformance", COMMAND, "\n".join(_whole(reports))),
    }
    for suite in suites():
        if suite.folder != ROOT and suite.plugin in reports:
            report = reports[suite.plugin]
            written[suite.folder / "conformance.md"] = markdown(
                report.tables,
                report.origin,
                COMMAND,
            )
    return written


def _columns(reports: Mapping[str, Report]) -> dict[str, Table]:
    return {name: table for report in reports.values() for name, table in report.columns().items()}


def _whole(reports: Mapping[str, Report]) -> Iterator[str]:
    names = _gateway_names()
    shops, gateways = (
        _shops(reports),
        {name: report for name, report in reports.items() if name in names},
    )
    reasons: list[str] = []
    yield from ("## Runs", "")
    yield from table_of(["framework", "held", "with", "seen"], _runs(shops))
    yield from ("", "## Scenarios", "")
    yield from _summary(shops)
    yield ""
    yield from _differences(_columns(shops), "framework", list(Conformance.scenarios()), reasons)
    if gateways:
        yield from ("", "## Gateways", "")
        yield from table_of(["gateway", "held", "with", "seen"], _runs(gateways))
        yield ""
        yield from _differences(
            _columns(gateways),
            "gateway",
            list(GatewayConformance.scenarios()),
            reasons,
        )
    if reasons:
        yield from (
            "",
            "## Reasons",
            "",
            *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1)),
        )


def _differences(
    columns: Mapping[str, Table],
    what: str,
    scenarios: Sequence[str],
    reasons: list[str],
) -> Iterator[str]:
    """Yield the table of the scenarios that did not hold in every column; the reasons go into a
    list.
    """
    rows = [
        [
            f"`{name}`",
            *(_cell(table.results.get(name, "not run"), reasons) for table in columns.values()),
        ]
        for name in scenarios
    ]
    rows = [row for row in rows if set(row[1:]) != {"held"}]
    if not rows:
        yield f"Every scenario held on every {what}."
        return
    yield from (f"{len(scenarios) - len(rows)} scenarios held on every {what}; the others:", "")
    yield from table_of(["scenario", *columns], rows)


def _shops(reports: Mapping[str, Report]) -> dict[str, Report]:
    names = _gateway_names()
    return {name: report for name, report in reports.items() if name not in names}


def _gateway_names() -> set[str]:
    return {suite.plugin for suite in suites() if suite.is_gateway}


def _runs(reports: Mapping[str, Report]) -> Iterator[list[str]]:
    for report in reports.values():
        for name, table in report.columns().items():
            versions = ", ".join(f"{what} {version}" for what, version in table.versions.items())
            yield [name, f"{table.held} of {len(table.results)}", versions, report.origin]


def _summary(shops: Mapping[str, Report]) -> Iterator[str]:
    columns = _columns(shops)
    groups = {_about(name): scenarios for name, scenarios in _groups().items()} | {
        "**all**": list(Conformance.scenarios()),
    }
    rows = [
        [group, *(_count(table, scenarios) for table in columns.values())]
        for group, scenarios in groups.items()
    ]
    yield from table_of(["scenarios that held", *columns], rows)


def _count(table: Table, scenarios: Sequence[str]) -> str:
    return f"{sum(table.results.get(name) == 'held' for name in scenarios)} of {len(scenarios)}"


def _groups() -> dict[str, list[str]]:
    """Return the names of the scenarios under the name of each group."""
    known = Conformance.scenarios()
    return {
        group.__name__: [name for name in known if f"test_{name}" in vars(group)]
        for group in Conformance.groups()
    }


def _about(group: str) -> str:
    """Return the name of a group and the subject of its scenarios."""
    found = next((one.__doc__ or "" for one in Conformance.groups() if one.__name__ == group), "")
    message = " ".join(found.split())
    return f"{group}: {message.removeprefix('Scenarios ').removeprefix('of ').removeprefix('in which ').rstrip('.')}"


def _cell(result: str, reasons: list[str]) -> str:
    """Return a result in a word, with the number of its reason, which is added to the others."""
    word, found, reason = result.partition(": ")
    if not found:
        return word
    if reason not in reasons:
        reasons.append(reason)
    return f"{word} ({reasons.index(reason) + 1})"


def _words(class_name: str) -> str:
    """Return the name of a class of tests as words: `TestFixedMethods` is "fixed payment
    methods".
    """
    name = class_name.removeprefix("Test")
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
