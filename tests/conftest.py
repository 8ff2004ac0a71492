"""Fixtures for every test here: what plugin authors get, on the smallest shop, and pytest's own for testing fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.smallest_shop.driver import SmallestShopDriver

pytest_plugins = ["pytester", "tillgate.testing.fixtures", "tillgate.testing.shops"]


@pytest.fixture
def shop_driver() -> SmallestShopDriver:
    """The shop of all tests that need one."""
    from tests.smallest_shop.driver import SmallestShopDriver

    return SmallestShopDriver()
