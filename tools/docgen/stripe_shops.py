"""The table of the shops on another gateway: runs the scenarios of every shop on each emulator of
Stripe, and writes what was seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.docgen.conformance import Report, Suite, read_report, suites, table_of
from tools.docgen.parts import ROOT, replaced

__all__ = ["COMMAND", "PAGE", "run"]

COMMAND: Final = "nox -s conformance_stripe"
_FOLDER: Final = ROOT / "plugins" / "stripe"
PAGE: Final = _FOLDER / "shops.md"
_BESIDE: Final = ROOT / "var" / "stripe"
"""The plugin with its `stripe`, for the environment of a framework that pins another one."""
EMULATORS: Final = {"the fake": "FakeDriver", "getpaid's simulator": "SimulatorDriver"}


def run(chosen: Sequence[str]) -> list[str]:
    """Run the scenarios of the shops on each emulator, write the page, and return the shops on
    which something failed.
    """
    found: dict[tuple[str, str], Report] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for suite in suites():
            if suite.is_gateway or (chosen and suite.plugin not in chosen):
                continue
            for emulator, driver in EMULATORS.items():
                print(f"running {suite.plugin} on {emulator}", flush=True)
                report = Path(folder, f"{suite.plugin}-{driver}.json")
                failed += [f"{suite.plugin} on {emulator}"] if _play(suite, driver, report) else []
                found[suite.plugin, emulator] = read_report(report)
    PAGE.write_text(
        replaced(PAGE.read_text("utf-8"), "conformance", COMMAND, "\n".join(_page(found))),
        "utf-8",
    )
    return failed


def _play(suite: Suite, driver: str, report: Path) -> int:
    environment = {
        name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"
    }
    paths = [_FOLDER] if suite.python == Path(sys.executable) else [_FOLDER, _BESIDE]
    environment["TILLGATE_TEST_GATEWAY"] = f"stripe_emulator.driver:{driver}"
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


def _page(found: dict[tuple[str, str], Report]) -> Iterator[str]:
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
    for emulator in EMULATORS:
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
