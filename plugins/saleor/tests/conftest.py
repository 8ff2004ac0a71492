"""The App on the sandbox, and the double of a Saleor that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.double import SaleorDouble
from tests.driver import SaleorDriver, running_double
from tests.storefront import Storefront
from tillgate.testing.world import World
from tillgate_saleor import api


@pytest.fixture(scope="session", autouse=True)
def _closed_connections() -> Iterator[None]:
    """At the end close the App's connections to a Saleor."""
    yield
    api.client().close()


@pytest.fixture
def shop_driver() -> SaleorDriver:
    """The shop of every test."""
    return SaleorDriver()


@pytest.fixture(autouse=True)
def double(settings: Any) -> SaleorDouble:
    """The double of a Saleor, allowed to install the App, as new."""
    double = Storefront.saleor = running_double()
    double.faults.clear()
    double.requests.clear()
    double.is_down, double.strategy, double.version = False, "CHARGE", "3.23.28"
    settings.TILLGATE_SALEOR = {"SALEORS": {double.origin: {"STOREFRONTS": ["http://testserver"]}}}
    return double


@pytest.fixture
def saleor(world: World, double: SaleorDouble) -> Iterator[SaleorDouble]:
    """That double, with the App installed; every answer that it had was as Saleor requires."""
    assert double.install() == (200, {"success": True})
    yield double
    assert double.faults == []
