"""The smallest shop's driver."""

from __future__ import annotations

from decimal import Decimal

from tests.smallest_shop.models import ShopOrder
from tillgate import shop
from tillgate.testing.driver import ShopDriver


class SmallestShopDriver(ShopDriver):
    """Places, edits and looks at orders directly in the shop's table."""

    plugin = "smallest-shop"

    def _order(self, order_key: str) -> ShopOrder:
        return ShopOrder.objects.get(pk=order_key)

    def place_order(self, total: Decimal) -> str:
        return str(ShopOrder.objects.create(total=total).pk)

    def is_paid(self, order_key: str) -> bool:
        return self._order(order_key).status == "paid"

    def times_paid(self, order_key: str) -> int:
        return self._order(order_key).times_paid

    def refunded(self, order_key: str) -> Decimal:
        refunded: Decimal = self._order(order_key).refunded
        return refunded

    def is_payable(self, order_key: str) -> bool:
        return self._order(order_key).status == "open"

    def is_released(self, order_key: str) -> bool:
        return self._order(order_key).status == "cancelled"

    def times_released(self, order_key: str) -> int:
        return self._order(order_key).times_released

    def close_order(self, order_key: str) -> None:
        ShopOrder.objects.filter(pk=order_key).update(status="cancelled")
        shop.close_order(self.plugin, order_key)

    def edit_total(self, order_key: str, total: Decimal) -> None:
        ShopOrder.objects.filter(pk=order_key).update(total=total)

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        return str(ShopOrder.objects.create(total=total, status="paid", times_paid=1).pk)

    def place_order_in(self, currency: str, total: Decimal) -> str:
        return str(ShopOrder.objects.create(currency=currency, total=total).pk)
