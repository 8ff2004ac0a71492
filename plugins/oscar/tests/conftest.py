"""A real Oscar shop on the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from oscar.apps.catalogue.abstract_models import MissingProductImage
from oscar.test.factories import create_product

from tests.driver import OscarDriver
from tests.shopper import Shopper
from tillgate.testing.world import World


@pytest.fixture(scope="session", autouse=True)
def missing_image() -> None:
    """Let Oscar link its picture for products without one now: two threads that show one at the
    same moment would both try.
    """
    MissingProductImage()


@pytest.fixture
def shop_driver() -> OscarDriver:
    """The shop of every test."""
    return OscarDriver()


@pytest.fixture
def shopper(world: World) -> Shopper:
    """One browser, in front of a shop on the sandbox."""
    return Shopper(world.client)


@pytest.fixture
def product() -> Callable[..., Any]:
    """Make something to buy."""

    def make(price: str = "12.50", title: str = "Green tea", stock: int = 5, **more: Any) -> Any:
        return create_product(title=title, price=Decimal(price), num_in_stock=stock, **more)

    return make
