"""The table of coverage: runs the tests of `make test` and of the plugins, and writes how many lines
and branches of each room they reach.

Lines that only another process runs, such as a worker's, count as missed.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tillgate.testing.report import source_commit
from tools.docgen.parts import ROOT, replaced, table_of

__all__ = ["RESULTS", "pages", "rooms", "run"]

COMMAND: Final = "nox -s coverage"
PAGE: Final = ROOT / "proving" / "reliability.md"
RESULTS: Final = ROOT / "docs" / "reference" / "coverage.json"
_CORE: Final = "tillgate"
_COUNTED: Final = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def run(distributions: Sequence[str], left_out: Sequence[str], *, at_once: str = "2") -> list[str]:
    """Run the tests with coverage, keep the counts, and return the distributions on which a test
    failed.
    """
    kept: dict[str, dict[str, Any]] = (
        json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    )
    failed = []
    for name in distributions:
        print(f"counting the lines of {name} ...", flush=True)
        folder = ROOT if name == _CORE else ROOT / "plugins" / name
        package = _CORE if name == _CORE else f"tillgate_{name.replace('-', '_')}"
        ignored = [f"--ignore={path}" for path in left_out] if name == _CORE else []
        with tempfile.TemporaryDirectory() as place:
            report = Path(place, "coverage.json")
            command = [sys.executable, "-m", "pytest", "-q", "-n", at_once, *ignored]
            command += [f"--cov={package}", "--cov-branch", f"--cov-report=json:{report}"]
            environment = {**os.environ, "COVERAGE_FILE": str(Path(place, "data"))}
            done = subprocess.run(command, cwd=folder, env=environment, check=False)
            failed += [name] if done.returncode else []
            found = rooms(json.loads(report.read_text("utf-8"))["files"])
        day = datetime.datetime.now(datetime.UTC).date()
        kept[name] = {"seen": f"commit {source_commit(ROOT)}, {day}", "rooms": found}
    RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
    return failed


def rooms(files: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Add up the counts of the files of each room, from coverage's report."""
    found: dict[str, Counter[str]] = {}
    for path, file in files.items():
        counts = {name: file["summary"][name] for name in _COUNTED}
        found.setdefault(_room(path), Counter()).update(counts)
    return {name: {one: counts[one] for one in _COUNTED} for name, counts in found.items()}


def _room(path: str) -> str:
    """Return the room of a file: a package of Tillgate or of its Django app, or a whole plugin."""
    parts = path.partition("src/")[2].split("/")[:-1]
    depth = 3 if parts[:2] == ["tillgate", "django"] else 2
    return ".".join(parts[: 1 if parts[0] != _CORE else depth])


def pages() -> dict[Path, str]:
    """Return the page as its results have it."""
    text = "\n".join(table_of(["room", "lines", "reached", "branches", "reached", "seen"], _rows()))
    return {PAGE: replaced(PAGE.read_text("utf-8"), "coverage", COMMAND, text)}


def _rows() -> Iterator[list[str]]:
    for one in json.loads(RESULTS.read_text("utf-8")).values():
        for room, counts in one["rooms"].items():
            if counts["num_statements"]:
                yield [room, *_shares(counts), one["seen"]]


def _shares(counts: Mapping[str, int]) -> list[str]:
    lines, reached, branches, taken = (counts[name] for name in _COUNTED)
    return [f"{lines:,}", _share(reached, lines), f"{branches:,}", _share(taken, branches)]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""
