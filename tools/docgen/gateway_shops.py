"""The tables of the shops on other gateways: runs the scenarios of every shop on each emulator of a
gateway, and writes the results.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.docgen.conformance import Report, Suite, read_report, suites
from tools.docgen.parts import ROOT, replaced, table_of

__all__ = ["GATEWAYS", "Gateway", "run"]


@dataclass(frozen=True)
class Gateway:
    """A gateway plugin with its emulators: the names of its drivers in `<plugin>_emulator.driver`,
    by their names on the page.
    """

    plugin: str
    emulators: Mapping[str, str]

    @property
    def command(self) -> str:
        """Return the session that writes the page."""
        return f"nox -s conformance_{self.plugin}"

    @property
    def page(self) -> Path:
        """Return the page that has the table."""
        return self.folder / "shops.md"

    @property
    def folder(self) -> Path:
        """Return the folder of the distribution, with the emulators."""
        return ROOT / "plugins" / self.plugin

    @property
    def beside(self) -> Path:
        """Return the plugin with its dependencies, for the environment of a framework that pins
        another version or lacks it.
        """
        return ROOT / "var" / self.plugin


_EMULATORS: Final = {"the fake": "FakeDriver", "getpaid's simulator": "SimulatorDriver"}
GATEWAYS: Final = {
    plugin: Gateway(plugin=plugin, emulators=_EMULATORS) for plugin in ("stripe", "payu")
}


def run(gateway: Gateway, chosen: Sequence[str]) -> list[str]:
    """Run the scenarios of the shops on each emulator of a gateway, write the page, and return the
    shops on which something failed.
    """
    found: dict[tuple[str, str], Report] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for suite in suites():
            if suite.is_gateway or (chosen and suite.plugin not in chosen):
                continue
            for emulator, driver in gateway.emulators.items():
                print(f"running {suite.plugin} on {emulator}", flush=True)
                report = Path(folder, f"{suite.plugin}-{driver}.json")
                if _play(gateway, suite, driver, report):
                    failed.append(f"{suite.plugin} on {emulator}")
                found[suite.plugin, emulator] = read_report(report)
    page = gateway.page
    table = "\n".join(_page(gateway, found))
    page.write_text(
        replaced(page.read_text("utf-8"), "conformance", gateway.command, table),
        "utf-8",
    )
    return failed


def _play(gateway: Gateway, suite: Suite, driver: str, report: Path) -> int:
    environment = {
        name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"
    }
    is_here = suite.python == Path(sys.executable)
    paths = [gateway.folder] if is_here else [gateway.folder, gateway.beside]
    environment["TILLGATE_TEST_GATEWAY"] = f"{gateway.plugin}_emulator.driver:{driver}"
    environment["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    environment["TILLGATE_TEST_METHODS"] = "checkout card"
    environment["PRETIX_TILLGATE_PAYMENT_METHODS"] = (
        "checkout,card"  # pretix registers its methods when it starts
    )
    command: list[str | Path] = [
        suite.python,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        suite.tests.relative_to(suite.folder),
        "--conformance-report",
        report,
    ]
    return subprocess.run(command, cwd=suite.folder, env=environment, check=False).returncode


def _page(gateway: Gateway, found: dict[tuple[str, str], Report]) -> Iterator[str]:
    rows = []
    for (_, emulator), report in found.items():
        for name, table in report.columns().items():
            not_held = sum(
                result.startswith(("declined", "skipped")) for result in table.results.values()
            )
            failed = len(table.results) - table.held - not_held
            rows.append(
                [
                    name,
                    emulator,
                    f"{table.held} of {len(table.results)}",
                    str(not_held),
                    str(failed),
                    report.origin,
                ],
            )
    yield from table_of(["shop", "gateway", "held", "cannot be played", "failed", "seen"], rows)
    for emulator in gateway.emulators:
        reasons: dict[str, list[str]] = {}
        for (_, where), report in found.items():
            for table in report.tables if where == emulator else ():
                for scenario, result in table.results.items():
                    word, _, reason = result.partition(": ")
                    if word in ("declined", "skipped") and scenario not in reasons.setdefault(
                        reason,
                        [],
                    ):
                        reasons[reason].append(scenario)
        yield from ("", f"On {emulator} these scenarios cannot be played:", "")
        yield from (
            f"- {', '.join(f'`{one}`' for one in scenarios)}: {reason}"
            for reason, scenarios in reasons.items()
        )
