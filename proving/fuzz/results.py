"""The results so far: one JSON object a line, with the commit and the seeds, so a run continues
where the last one ended.
"""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tillgate.testing.report import source_commit

__all__ = ["Results"]

ROOT = Path(__file__).parents[2]


class Results:
    """The file, and the results in it that count for this commit and database."""

    def __init__(self, path: Path, database: str) -> None:
        self._path = path
        self._key = {"commit": source_commit(ROOT), "database": database}

    def lines(self) -> Iterator[Mapping[str, Any]]:
        """Yield the results for this commit and database."""
        if self._path.exists():
            for line in self._path.read_text("utf-8").splitlines():
                noted = json.loads(line)
                if all(noted[name] == value for name, value in self._key.items()):
                    yield noted

    def seeds(self) -> set[int]:
        """Return the seeds that need not be run again."""
        return {
            seed
            for line in self.lines()
            for first, last in line["seeds"]
            for seed in range(first, last + 1)
        }

    def add(self, seeds: Iterable[int], met: Mapping[str, Counter[str]], faults: int) -> None:
        """Note some seeds that were run."""
        inputs = sum(sum(counts.values()) for counts in met.values())
        line = {
            **self._key,
            "python": platform.python_version(),
            "seeds": _ranges(seeds),
            "inputs": inputs,
            "faults": faults,
            "met": met,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _ranges(seeds: Iterable[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for seed in sorted(seeds):
        if ranges and ranges[-1][1] == seed - 1:
            ranges[-1] = (ranges[-1][0], seed)
        else:
            ranges.append((seed, seed))
    return ranges
