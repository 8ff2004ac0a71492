"""A pytest plugin for mutmut: the likeliest and quickest tests run first, since the first that
fails ends it, and nothing is shrunk.

The tests in the file that mirrors the mutant's all run. Of the others that come by, those that need
more than some seconds are left out, and a mutant may survive because of that.
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
_AT_MOST_SECONDS: Final = 10.0


def pytest_configure() -> None:
    """Let hypothesis say that it has found something, and not look for the smallest."""
    hypothesis.settings.register_profile(
        "mutation",
        deadline=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    hypothesis.settings.load_profile("mutation")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of the mirroring file first, and the quickest of each; leave out those that the
    time does not suffice for.
    """
    mutant = os.environ.get("MUTANT_UNDER_TEST", "")
    if config.option.collectonly or mutant == "stats" or not _STATISTICS.exists():
        return  # mutmut wants to know of all
    seconds: dict[str, float] = json.loads(_STATISTICS.read_text("utf-8"))["duration_by_test"]
    module = mutant.partition(".x")[0].rpartition(".")[2]
    order = {
        item: (item.path.stem != f"test_{module}", seconds.get(item.nodeid, 0.0)) for item in items
    }
    items.sort(key=order.__getitem__)
    ends = accumulate(order[item][1] for item in items)
    kept = sum(
        end <= _AT_MOST_SECONDS or item.path.stem == f"test_{module}"
        for item, end in zip(items, ends, strict=True)
    )
    config.hook.pytest_deselected(items=items[kept:])
    del items[kept:]
