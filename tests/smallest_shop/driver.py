"""The smallest shop's driver."""

from __future__ import annotations

from decimal import Decimal

from django.test import Client

from tests.smallest_shop.models import ShopOrder
from tests.smallest_shop.placing import place
from tillgate import shop
from tillgate.testing.driver import ShopDriver, pay_link


class SmallestShopDriver(ShopDriver):
    """Places orders as a checkout does, takes the way to pay from the order's page, and looks
    directly into the shop's table.
    """

    plugin = "smallest-shop"

    def _order(self, order_key: str) -> ShopOrder:
        return ShopOrder.objects.get(pk=order_key)

    def place_order(self, total: Decimal) -> str:
        return str(place(total, plugin=self.plugin).pk)

    def pay_path(self, order_key: str) -> str | None:
        return pay_link(Client().get(f"/orders/{order_key}/"))

    def is_paid(self, order_key: str) -> bool:
        return self._order(order_key).status == "paid"

    def times_paid(self, order_key: str) -> int:
        return self._order(order_key).times_paid

    def paid_amount(self, order_key: str) -> Decimal:
        paid_amount: Decimal = self._order(order_key).paid_amount
        return paid_amount

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
        if ShopOrder.objects.filter(pk=order_key, status="open").update(status="cancelled"):
            shop.close_order(self.plugin, order_key)

    def edit_total(self, order_key: str, total: Decimal) -> None:
        ShopOrder.objects.filter(pk=order_key).update(total=total)

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        return str(
            ShopOrder.objects.create(
                total=total, status="paid", paid_amount=total, times_paid=1
            ).pk,
        )

    def place_order_in(self, currency: str, total: Decimal) -> str:
        return str(place(total, currency, self.plugin).pk)


class BareShopDriver(SmallestShopDriver):
    """Orders that Tillgate does not know before their first payment, led to Tillgate's own page in
    any status.

    For the tests of the Django app, which must hold for a shop that registers nothing.
    """

    def place_order(self, total: Decimal) -> str:
        return str(ShopOrder.objects.create(total=total).pk)

    def pay_path(self, order_key: str) -> str:
        return shop.pay_url(self.plugin, order_key)

    def close_order(self, order_key: str) -> None:
        ShopOrder.objects.filter(pk=order_key).update(status="cancelled")
        shop.close_order(self.plugin, order_key)

    def place_order_in(self, currency: str, total: Decimal) -> str:
        return str(ShopOrder.objects.create(currency=currency, total=total).pk)
