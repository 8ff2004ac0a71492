"""The kit of shops on a gateway unlike the built-in one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.smallest_shop.driver import SmallestShopDriver
from tests.toy_gateway import ToyDriver
from tillgate.testing.conformance import Conformance
from tillgate.testing.gateway_driver import GatewayDriver


@pytest.fixture
def shop_gateway() -> Iterator[GatewayDriver]:
    with ToyDriver() as driver:
        yield driver


class TestSmallestShop(Conformance):
    driver = SmallestShopDriver()
