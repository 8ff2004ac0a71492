"""A driver of the smallest shop on a core that is broken as the mutant that MUTANT names: for tools
that run in their own process.
"""

from __future__ import annotations

import os

import pytest

from tests.smallest_shop.driver import SmallestShopDriver
from tests.smallest_shop.mutants import MUTANTS


class BrokenDriver(SmallestShopDriver):
    """The smallest shop on a broken core."""

    def __init__(self) -> None:
        mutant = next(one for one in MUTANTS if one.name == os.environ["MUTANT"])
        mutant.breaks(pytest.MonkeyPatch())  # for as long as the process lives
