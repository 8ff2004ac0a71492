"""A driver over HTTP, as a plugin's author has one: staff of the smallest shop work in Django's
admin, with sessions and content types.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

from tests.smallest_shop.driver import SmallestShopDriver
from tests.smallest_shop.models import ShopOrder
from tillgate import shop
from tillgate.testing.driver import ShopDriver

__all__ = ["AdminDriver", "DollarDriver"]


@admin.action(description="Cancel")
def cancel(to_orders: Any, request: HttpRequest, orders: QuerySet[ShopOrder]) -> None:
    """Cancel orders that wait to be paid, as a framework does that refuses to cancel a paid one,
    and write the admin's own history.
    """
    with transaction.atomic():
        for order in orders.select_for_update():
            if order.status != "open":
                raise ValidationError(f"order {order.pk} is {order.status}")
            order.status = "cancelled"
            order.save(update_fields=["status"])
            to_orders.log_change(request, order, "cancelled")
            shop.close_order("smallest-shop", str(order.pk))


@admin.register(ShopOrder)
class ShopOrders(admin.ModelAdmin):  # type: ignore[type-arg]  # it has no types at runtime
    """The orders, as staff see them."""

    fields = ("total", "currency")
    actions = (cancel,)

    def save_model(self, request: HttpRequest, obj: ShopOrder, form: object, change: bool) -> None:
        """Register an order that is new."""
        super().save_model(request, obj, form, change)
        if not change:
            shop.open_order("smallest-shop", str(obj.pk))


class AdminDriver(SmallestShopDriver):
    """Places, edits and cancels orders over HTTP, each time after a new log-in, which writes a
    session.
    """

    def _staff(self) -> Client:
        user, _ = get_user_model().objects.get_or_create(
            username="ann",
            defaults={"is_staff": True, "is_superuser": True},
        )
        client = Client()
        client.force_login(user)
        return client

    def _post(self, page: str, fields: dict[str, Any], *arguments: object) -> None:
        answer = self._staff().post(
            reverse(f"admin:smallest_shop_shoporder_{page}", args=arguments),
            fields,
        )
        assert answer.status_code == 302, f"the admin answered with HTTP {answer.status_code}"

    def place_order(self, total: Decimal) -> str:
        return self.place_order_in("USD", total)

    def place_order_in(self, currency: str, total: Decimal) -> str:
        self._post("add", {"total": total, "currency": currency})
        return str(ShopOrder.objects.latest("pk").pk)

    def edit_total(self, order_key: str, total: Decimal) -> None:
        self._post(
            "change",
            {"total": total, "currency": self._order(order_key).currency},
            order_key,
        )

    def close_order(self, order_key: str) -> None:
        self._post("changelist", {"action": "cancel", "_selected_action": [order_key]})


class DollarDriver(AdminDriver):
    """The same shop, of a driver that places no orders in another currency."""

    place_order_in = ShopDriver.place_order_in

    def place_order(self, total: Decimal) -> str:
        return AdminDriver.place_order_in(self, "USD", total)
