"""A checkout's work: it writes an order, and registers it with Tillgate in the same transaction."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction

from tests.smallest_shop.models import ShopOrder
from tillgate import shop

__all__ = ["place", "unregistered"]


@transaction.atomic
def place(total: Decimal, currency: str = "USD", plugin: str = "smallest-shop") -> ShopOrder:
    """Place an order that awaits payment. One that costs nothing is paid immediately."""
    order = ShopOrder.objects.create(
        total=total,
        currency=currency,
        status="open" if total else "paid",
    )
    if total:
        shop.open_order(plugin, str(order.pk))
    return order


def unregistered(total: str = "12.50") -> str:
    """Return the key of an order that is not registered with Tillgate: its payment is its first
    sign.
    """
    return str(ShopOrder.objects.create(total=Decimal(total)).pk)
