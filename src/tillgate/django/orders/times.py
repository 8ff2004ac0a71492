"""Bounds: of the time in which new work may begin, and of the time to pay an order."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from django.utils import timezone

from tillgate.django.conf import get_settings
from tillgate.django.models import Order
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES

Stop = Callable[[], bool]
"""Says that no new work may begin."""

PURGE_CHECK: Final = timedelta(days=30)
"""The longest time between two checks whether details of an order are too old: within it a changed
setting takes effect.
"""


def never() -> bool:
    """Let new work begin at any time: it is a `Stop`."""
    return False


def disputable() -> timedelta:
    """Return how long a payment that has ended is polled: a bank may take its money back, and money
    may come late.
    """
    return timedelta(days=get_settings().disputable_days)


def pay_until(order: Order) -> datetime | None:
    """Return when no payment of an order can start any more, so that its goods are not held for
    ever; None before its first payment. Time in which money is under way does not count.
    """
    if order.tried_since is None:
        return None
    return order.tried_since + _payable_for() + _under_way(order)


def _payable_for() -> timedelta:
    settings = get_settings()
    minutes = max(settings.order_payable_for_minutes, settings.order_unpaid_after_minutes)
    return timedelta(minutes=minutes)


def note_under_way(order: Order) -> None:
    """Note, under the order's lock, whether money of an open payment is under way. The time in
    which it was is taken out of the time to try the order, and its end leaves the time to pay
    again.
    """
    is_under_way = order.payments.filter(
        status__in=OPEN_PAYMENT_STATUSES,
        is_processing=True,
    ).exists()
    if is_under_way is (order.under_way_since is not None):
        return
    if order.tried_since is not None:
        order.tried_since += _under_way(order)
        if not is_under_way:
            again = timedelta(minutes=get_settings().order_unpaid_after_minutes)
            order.tried_since = max(order.tried_since, timezone.now() + again - _payable_for())
    order.under_way_since = timezone.now() if is_under_way else None
    order.save(update_fields=["tried_since", "under_way_since"])


def _under_way(order: Order) -> timedelta:
    """Return the part of the time to try an order in which its money is under way so far."""
    if order.under_way_since is None or order.tried_since is None:
        return timedelta()
    return max(timedelta(), timezone.now() - max(order.under_way_since, order.tried_since))


def unpaid_check_at(until: datetime | None = None) -> datetime:
    """Return when the worker checks whether an order is unpaid: the shopper may pay again until
    then, and no later than `until`.
    """
    check_at = timezone.now() + timedelta(minutes=get_settings().order_unpaid_after_minutes)
    return min(check_at, until or check_at)


def stop_after(seconds: float, stop: Stop = never) -> Stop:
    """Return a `Stop` that says so after some seconds, or once another one does."""
    return partial(_is_after, time.monotonic() + seconds, stop)


def _is_after(ends: float, stop: Stop) -> bool:
    return stop() or time.monotonic() >= ends
