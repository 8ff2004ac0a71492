"""Orders that await payment: registered with Tillgate when their row is written, by any code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.utils.translation import gettext as _
from oscar.core.loading import get_class

from tillgate import shop
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.orders import find, is_expected, outstanding

_placing_otherwise: ContextVar[bool] = ContextVar(
    "whether the order that is being placed is paid in another way",
    default=False,
)


@contextmanager
def placing_otherwise() -> Iterator[None]:
    """Leave an order alone that the checkout places and that is paid in another way, also if it has
    the status of a waiting order.
    """
    before = _placing_otherwise.set(True)
    try:
        yield
    finally:
        _placing_otherwise.reset(before)


def register_placed(*, instance: Any, raw: bool, created: bool, **_options: Any) -> None:
    """Register a new order that awaits payment, in the transaction that writes its row.

    Tillgate knows an order by its number: if a deleted order had it, the old payments would count
    for the new order.
    """
    if (
        raw
        or not created
        or _placing_otherwise.get()
        or instance.status != get_settings().pending_status
    ):
        return
    written = find(instance.number)  # with its total as the database rounds it
    if written is None or outstanding(written) <= 0:
        return
    if is_expected(written):
        detail = _(
            "The number %(number)s was another order's before. Please tell the shop, which must "
            "never use one twice.",
        )
        raise get_class("order.exceptions", "UnableToPlaceOrder")(
            detail % {"number": instance.number},
        )
    shop.open_order(PLUGIN, written.number)


def payment_url(order: Any) -> str:
    """Return the absolute address where the shopper pays an order, for a mail or an app. It is good
    for a week.

    An order that awaits payment is registered here, if it was not yet: one that staff or code have
    given the pending status.
    """
    number = str(order.number)  # Oscar gives a new order a number that is no text
    if (
        order.status == get_settings().pending_status
        and outstanding(order) > 0
        and not is_expected(order)
    ):
        shop.open_order(PLUGIN, number)
    return shop.pay_url(PLUGIN, number)
