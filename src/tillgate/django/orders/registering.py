"""Orders are registered, opened and closed here. Touches the database only."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from tillgate.django.models import Order, database
from tillgate.django.orders.status import mark_order_closed
from tillgate.django.orders.timeline import record
from tillgate.django.orders.times import PURGE_CHECK, unpaid_check_at
from tillgate.lifecycle import (
    OPEN_PAYMENT_STATUSES,
    OrderStatus,
)


def new_order(plugin: str, order_key: str, **fields: Any) -> Order:
    """Write the row of an order that the shop has named for the first time."""
    now = timezone.now()
    order = Order(
        plugin=plugin,
        key=order_key,
        created_at=now,
        purge_check_at=now + PURGE_CHECK,
        **fields,
    )
    order.save(force_insert=True)
    return order


def open_order(
    plugin: str,
    order_key: str,
    actor: str = "shop",
    until: datetime | None = None,
) -> None:
    """Register an order that waits for its first payment. Touches the database only: call it where
    the shop writes the order.

    If no payment ever starts, the shop receives `order_unpaid` as for any other order. Call it
    again after that if the shop waits for the order once more; `until` is a time of the shop's own.
    """
    check_at = until or unpaid_check_at()
    with contextlib.suppress(IntegrityError), transaction.atomic(using=database()):
        order = new_order(plugin, order_key, unpaid_check_at=check_at)
        record("order.opened", order, actor, "the shop placed the order")
        return
    waiting = Order.objects.filter(
        plugin=plugin,
        key=order_key,
        unpaid_check_at=None,
        paid_by=None,
        closed_at=None,
    )
    waiting.exclude(payments__status__in=OPEN_PAYMENT_STATUSES).update(unpaid_check_at=check_at)


def registered(plugin: str, order_key: str) -> Order:
    """Return an order's row, and write it if there is none: an address names the order by it.
    Nothing else follows from the row.
    """
    orders = Order.objects.filter(plugin=plugin, key=order_key)
    if (order := orders.first()) is not None:
        return order
    with contextlib.suppress(IntegrityError), transaction.atomic(using=database()):
        new_order(plugin, order_key)
    with transaction.atomic(using=database()):
        # a locking read: another process may have written it since this transaction began
        return orders.select_for_update().get()


def close_order(plugin: str, order_key: str, actor: str = "shop") -> None:
    """Register that the shop closed an order: no payment can start any more, and open ones stay
    watched. Touches the database only.

    Does nothing for an order that was never opened, is closed, or that a payment has paid.
    """
    with transaction.atomic(using=database()):
        order = Order.objects.select_for_update().filter(plugin=plugin, key=order_key).first()
        if order is not None and order.status is OrderStatus.OPEN:
            mark_order_closed(order)
            record("order.closed", order, actor, "the shop closed the order")
