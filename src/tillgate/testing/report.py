"""The report as text, markdown or JSON: the result of each scenario, the reasons of declined ones,
and the versions.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import pkgutil
import platform
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

import tillgate
from tillgate import hooks
from tillgate.testing.scenarios import Scenarios

PROPERTY: Final = "tillgate-conformance"
"""The name of the property that holds a test's description; properties travel from xdist's workers
too.
"""

_OPTION: Final = "--conformance-report"
_NOT_RUN: Final = "not run"
_GIT_SECONDS: Final = 10
_DOCUMENTATION: Final = (":(top,exclude)docs", ":(top,exclude)*.md")
"""Paths that do not count as changes of the code: reports are written there, and do not change the
tested code.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one option."""
    group = parser.getgroup("tillgate", "conformance")
    group.addoption(
        _OPTION,
        type=Path,
        default=None,
        metavar="FILE",
        help="write which scenarios held to a file in markdown, or .json",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the tests' results. An unwritable report file is an error here, before the tests
    run.
    """
    path: Path | None = config.getoption("conformance_report", default=None)
    if path and path.is_dir():
        raise pytest.UsageError(f"{_OPTION}: {path} is a folder: name a file in it")
    if path and not path.parent.is_dir():
        raise pytest.UsageError(
            f"{_OPTION}: {path} cannot be written, since {path.parent} is no folder: make it first",
        )
    config.pluginmanager.register(_Collector(config), "tillgate-conformance-report")


def describe(
    test_class: type[Scenarios],
    test: str,
    plugin: str,
    distributions: Iterable[str] = (),
    further: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the description of a test in words that travel between processes: its class, its
    scenario and its versions.

    `further` holds versions that no distribution has, such as the database's.
    """
    kit = test_class.kit()
    named = dict.fromkeys((*_distribution(plugin), *distributions, *test_class.distributions))
    return {
        "class": test_class.__name__,
        "kit": f"{kit.__module__}:{kit.__name__}",
        "plugin": plugin,
        "scenario": test.removeprefix("test_"),
        "is_overridden": getattr(test_class, test) is not getattr(kit, test, None),
        "versions": {
            "tillgate": tillgate.__version__,
            **{name: importlib.metadata.version(name) for name in named if name != "tillgate"},
            "Python": platform.python_version(),
            **(further or {}),
        },
    }


def _distribution(plugin: str) -> list[str]:
    """Return the distribution of a plugin, if it has the name of its package, as plugins have."""
    found = hooks.plugin_manager().get_plugin(plugin)
    module = getattr(found, "__name__", type(found).__module__)
    name = module.partition(".")[0].replace("_", "-")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return [importlib.metadata.distribution(name).name]
    return []


@dataclass
class Table:
    """The results of the scenarios of one class, with its plugin and its versions, and the kit that
    they are of.
    """

    name: str
    plugin: str
    versions: Mapping[str, str]
    results: dict[str, str] = field(default_factory=dict)
    kit: str = "tillgate.testing.conformance:Conformance"

    @property
    def scenarios(self) -> dict[str, str]:
        """Return the name of every scenario of the kit and its promise."""
        kit: type[Scenarios] = pkgutil.resolve_name(self.kit)
        return kit.scenarios()

    @property
    def held(self) -> int:
        """Return how many scenarios held."""
        return sum(result == "held" for result in self.results.values())

    @property
    def summary(self) -> str:
        """Return how many scenarios held, and how many were declined, overridden, skipped, not run
        or failed.
        """
        kinds = Counter(_kind(result) for result in self.results.values())
        others = [f"{kinds[kind]} {kind}" for kind in _KINDS if kinds[kind]]
        more = f" ({', '.join(others)})" if others else ""
        return f"{self.held} of {len(self.results)} scenarios held{more}"


_KINDS: Final = {
    "declined": "declined",
    "overridden": "not proven",
    "skipped": "skipped",
    "not run": _NOT_RUN,
    "failed": "FAILED",
}
"""The kinds of results but "held", with the beginning of their texts."""


def _kind(result: str) -> str:
    return next((kind for kind, begin in _KINDS.items() if result.startswith(begin)), "held")


class _Collector:
    """Collects the result of every test, and reports at the end of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tables: dict[str, Table] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the result of a scenario."""
        about: Any = dict(report.user_properties).get(PROPERTY)
        result = _result(report)
        if about is None or result is None:
            return
        # By its place, since classes in two files may have one name.
        new = Table(about["class"], about["plugin"], about["versions"], kit=about["kit"])
        table = self._tables.setdefault(report.nodeid.rpartition("::")[0], new)
        if result == "held" and about["is_overridden"]:
            result = f"not proven: {about['class']} overrides the scenario"
        if not table.results.get(about["scenario"], "").startswith("FAILED"):
            table.results[about["scenario"]] = result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the tables, and write them to the file that the option names."""
        if not self._tables:
            return
        for table in self._tables.values():
            table.results = {
                scenario: table.results.get(scenario, _NOT_RUN)
                for scenario in (*table.scenarios, *table.results)
            }
            terminalreporter.section(f"conformance of {table.plugin} ({table.name})")
            for line in _text(table, self._origin()):
                terminalreporter.write_line(line)
        path: Path | None = self._config.getoption("conformance_report", default=None)
        if path:
            tables = list(self._tables.values())
            if path.suffix == ".json":
                text = json.dumps(
                    {"origin": self._origin(), "tables": [asdict(table) for table in tables]},
                    indent=2,
                )
            else:
                command = shlex.join(["pytest", *map(str, self._config.invocation_params.args)])
                text = markdown(tables, self._origin(), command)
            path.write_text(text, "utf-8")
            terminalreporter.write_line(f"written to {path}")

    def _origin(self) -> str:
        """Return the commit and the day."""
        day = datetime.now(UTC).date().isoformat()
        commit = source_commit(self._config.rootpath)
        return f"commit {commit}, {day}" if commit else day


def source_commit(folder: Path) -> str:
    """Return the commit of a clone and whether code has changed since (documentation does not
    count); empty without git.
    """
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    is_changed = commit and _git(
        folder,
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ":/",
        *_DOCUMENTATION,
    )
    return f"{commit} and uncommitted changes" if is_changed else commit


def _result(report: pytest.TestReport) -> str | None:
    """Return the scenario's result that a test report adds, or None if it adds none."""
    if report.outcome == "failed":
        said = str(report.longrepr)
        return (
            "FAILED: declined, and it holds by now"
            if said.startswith("[XPASS")
            else f"FAILED in {report.when}"
        )
    if report.outcome == "skipped":
        if hasattr(report, "wasxfail"):
            return f"declined: {report.wasxfail.removeprefix('reason: ')}"
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        return f"skipped: {reason.removeprefix('Skipped: ')}"
    return "held" if report.when == "call" else None


def markdown(tables: Iterable[Table], origin: str, command: str) -> str:
    """Return the tables in markdown, with each scenario's promise, the commit, the day and the
    command.
    """
    lines = []
    for table in tables:
        cells = {
            name: " ".join(result.replace("|", "\\|").split())
            for name, result in table.results.items()
        }
        messages = table.scenarios
        rows = [
            f"| {name} | {messages.get(name, '')} | {result} |" for name, result in cells.items()
        ]
        lines += [
            f"## Conformance of {table.plugin}",
            "",
            f"{table.summary}: {_versions(table)}; {origin}. Printed by `{command}`.",
            "",
            "| scenario | promise | result |",
            "|---|---|---|",
            *rows,
            "",
        ]
    return "\n".join(lines)


def _text(table: Table, origin: str) -> list[str]:
    width = max(map(len, table.results))
    lines = [f"{name:<{width}}  {result}" for name, result in table.results.items()]
    return [
        *lines,
        "",
        f"{table.summary}: {_versions(table)}; {origin}",
    ]


def _versions(table: Table) -> str:
    return ", ".join(f"{name} {version}" for name, version in table.versions.items())


def _git(folder: Path, *arguments: str) -> str:
    """Return git's answer about a folder, or an empty text without git or a repository."""
    try:
        done = subprocess.run(  # noqa: S603  # no argument comes from outside
            ["git", *arguments],  # noqa: S607  # the git on the author's path
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
