"""Stock: items of a paid order that staff put back, each at most once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from django.db.models import F
from django.db.models.functions import Coalesce
from django.utils.translation import gettext
from oscar.core.loading import get_class

from tillgate import shop
from tillgate_oscar.conf import PLUGIN

RELEASED: Final = "released"
"""The key in the data of Tillgate's order: how many of each line were released before it was paid,
until they are allocated again.
"""
RESTOCKED: Final = "restocked"
"""The key in the data of Tillgate's order: how many of each line were put back."""


def missing(order: Any, released: Mapping[str, int]) -> list[str]:
    """Return the titles of released lines that cannot be had any more: the product was deleted, or
    others have bought it.
    """
    lines = order.lines.filter(pk__in=released).select_related("stockrecord__product")
    return [
        line.title
        for line in lines
        if line.stockrecord is None
        or (
            line.stockrecord.can_track_allocations
            and line.stockrecord.net_stock_level < released[str(line.pk)]
        )
    ]


def restockable(order: Any) -> dict[int, int]:
    """Return how many of each line can still be put back: none of a deleted product, or of one
    without counted stock.
    """
    before = _restocked(order)
    return {
        line.pk: left
        for line in order.lines.select_related("stockrecord__product")
        if line.stockrecord
        and line.stockrecord.can_track_allocations
        and (left := line.quantity - before[line.pk]) > 0
    }


def restock(order: Any, quantities: Mapping[int, int]) -> dict[int, int]:
    """Put so many of each line back, at most the rest of it, and return how many were still
    allocated. Call it under the order's lock. A note names the items that were put back and those
    that could not be.

    Items that were not shipped are released; shipped ones are added to the stock.
    """
    before, released = _restocked(order), Counter[int]()
    put, gone = list[str](), list[str]()
    # locked in the same order as Oscar allocates stock
    for line in order.lines.filter(pk__in=quantities).order_by("stockrecord_id"):
        wanted = min(quantities[line.pk], line.quantity - before[line.pk])
        if wanted <= 0:
            continue
        if line.stockrecord is None:
            gone.append(line.title)
            continue
        if not line.stockrecord.can_track_allocations:
            continue
        # an allocation that staff cancelled by hand was put back then
        by_hand = line.allocation_cancelled and not before[line.pk]
        released[line.pk] = _release(order, line, wanted)
        if not by_hand:
            _add(line.stockrecord, wanted - released[line.pk])
        before[line.pk] += wanted
        put.append(f"{wanted} x {line.title}")
    shop.set_order_data(
        PLUGIN,
        order.number,
        **{RESTOCKED: {str(line): number for line, number in before.items() if number}},
    )
    _note(order, gettext("Back in stock: %(products)s."), put)
    _note(order, gettext("Not put back in stock, since it is no longer sold: %(products)s."), gone)
    return dict(+released)


def _release(order: Any, line: Any, wanted: int) -> int:
    """Release so many of a line as are still allocated, and return how many."""
    held = min(wanted, line.num_allocated or 0)
    if held:
        handler = get_class("order.processing", "EventHandler")()
        handler.cancel_stock_allocations(order, [line], [held])
    return held


def _add(stock: Any, shipped: int) -> None:
    """Add items that were shipped to the stock, as Oscar's own methods change it."""
    if shipped:
        stock.pre_save_signal()
        type(stock)._base_manager.filter(pk=stock.pk).update(
            num_in_stock=Coalesce(F("num_in_stock"), 0) + shipped,
        )
        stock.refresh_from_db(fields=["num_in_stock"])
        stock.post_save_signal()


def _restocked(order: Any) -> Counter[int]:
    data = shop.order_data(PLUGIN, order.number).get(RESTOCKED, {})
    return Counter({int(line): number for line, number in data.items()})


def _note(order: Any, said: str, products: list[str]) -> None:
    if products:
        get_class("order.processing", "EventHandler")().create_note(
            order,
            said % {"products": ", ".join(products)},
        )
