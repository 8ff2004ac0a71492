"""The kit that every plugin passes, on the real Saleor that was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from tests.real.driver import APP_ID, RealSaleorDriver, Shop
from tests.real.saleor import Saleor
from tests.storefront import Storefront
from tillgate.testing.conformance import Conformance
from tillgate_saleor.conf import origin_of

pytestmark = pytest.mark.saleor


@pytest.fixture(scope="module")
def shop(saleor: Saleor) -> Iterator[Shop]:
    """Return the Saleor with everything that the kit needs."""
    shop = Shop(saleor)
    yield shop
    shop.close()


@pytest.fixture
def shop_driver(shop: Shop, live_server: Any, double: object, settings: Any) -> RealSaleorDriver:
    """Return the driver; Saleor reaches the App, which is in this process, by the live server."""
    settings.TILLGATE = {**settings.TILLGATE, "PUBLIC_URL": live_server.url}
    settings.TILLGATE_SALEOR = {
        "APP_ID": APP_ID,
        "SALEORS": {origin_of(shop.saleor.url): {"STOREFRONTS": ["http://testserver"]}},
    }
    Storefront.saleor = shop  # in place of the double
    shop.install(f"{live_server.url}/api/manifest")
    return RealSaleorDriver(shop)


class TestRealSaleor(Conformance):
    """All scenarios, on checkouts. Saleor has no mutation that closes one, and cancels none because
    of a report.
    """

    declined: ClassVar = {
        "nothing_starts_on_a_closed_order": "Saleor's staff can cancel what was begun, and not "
        "close a checkout: another attempt may begin",
        "paid_after_close": "Saleor keeps a checkout open whose transaction was canceled: the "
        "money is reported, and pays it",
        "order_in_another_currency": "a checkout has its channel's currency, and these are of one "
        "channel: test_paying tries one in złoty",
        "currency_without_decimals": "the same: no channel sells in won",
        "late_money_for_a_released_order": "Saleor keeps a checkout open that it was told nobody "
        "paid: late money is reported, and pays it",
    }
