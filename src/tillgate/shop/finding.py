"""Finding: the orders that fit a number, a name or an amount that staff have."""

from __future__ import annotations

from typing import Final

from tillgate.django.models import Order
from tillgate.django.pages.searching import search

__all__ = ["find_orders"]

_MOST: Final = 200


def find_orders(plugin: str, text: str) -> list[str]:
    """Return the keys of a plugin's orders that a text of staff may mean, the newest first, at most
    200.

    It finds an order's number with or without "#", a name or an e-mail address by the plugin's own
    `tillgate_find_orders`, our reference, the gateway's numbers of payments and refunds, an amount
    as the language of the page writes it, and the last four digits of a card. A text that can be
    none of them finds nothing.
    """
    found = Order.objects.filter(search(text).of_orders, plugin=plugin)
    return list(found.order_by("-pk").values_list("key", flat=True)[:_MOST])
