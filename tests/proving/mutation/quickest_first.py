"""A pytest plugin for mutmut: the quickest tests run first, since the first that fails ends the matter, and nothing is shrunk.

Of the tests that come by a mutant those are left out that would take it longer than some seconds: it may survive for that.
"""

from __future__ import annotations

import json
import os
from itertools import accumulate
from pathlib import Path
from typing import Final

import hypothesis
import pytest

_STATISTICS: Final = Path("mutmut-stats.json")
"""Where mutmut notes how long each test took, in the folder that it runs pytest in."""
_AT_MOST_SECONDS: Final = 20.0


def pytest_configure() -> None:
    """Let hypothesis say that it has found something, and not look for the smallest."""
    hypothesis.settings.register_profile("mutation", deadline=None, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
    hypothesis.settings.load_profile("mutation")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the quickest first, and leave out what there is no time for."""
    if config.option.collectonly or os.environ.get("MUTANT_UNDER_TEST") == "stats" or not _STATISTICS.exists():
        return  # mutmut wants to know of all
    seconds: dict[str, float] = json.loads(_STATISTICS.read_text("utf-8"))["duration_by_test"]
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
    ends = accumulate(seconds.get(item.nodeid, 0.0) for item in items)
    kept = sum(1 for end in ends if end <= _AT_MOST_SECONDS)
    config.hook.pytest_deselected(items=items[kept:])
    del items[kept:]
