"""Outbox events: the shop hears of each change, in order per order.

A local one (the shop's database) takes effect exactly once: one transaction runs the handler and
marks it done, or does neither (I3). A remote one (HTTP, mail) is carried at least once under a
stable event id, claimed by a lease. The two kinds do not wait for each other.

A claim marks an event with the time at which its delivery begins, and the end of the delivery
removes the mark. A claim that finds a mark knows that the process before it was killed, or hung
until it was ended: that counts as an attempt.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from typing import Final

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.utils import timezone, translation

from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Refund
from tillgate.django.orders.locking import (
    OrderHeld,
    locked_order,
    reconnect_if_cut,
    shop_savepoint,
)
from tillgate.django.orders.status import mark_delivered
from tillgate.django.orders.timeline import record
from tillgate.django.outbox.attempts import (
    FIRST_PAUSE,
    is_free,
    may_begin,
    note_failure,
    settle_failing,
)
from tillgate.django.outbox.handlers import HANDLERS
from tillgate.lifecycle import BOUND_REFUND_STATUSES

_log = logging.getLogger("tillgate")
_WAIT_FOR_PLACE_SECONDS: Final = 1.0
_places: Final = threading.BoundedSemaphore(2)
"""So many threads of a web process deliver at a time: handlers that hang hold no more of them."""


def deliver(order_id: int) -> int:
    """Carry out an order's local outbox events that are due, oldest first; return how many were
    done.

    Leave them to the worker where a handler of another process has the order, or handlers hold the
    most threads of this process.
    """
    return _deliver_if_free(order_id) or 0


def deliver_due(order_id: int) -> bool:
    """Deliver the due events of an order: the process that wrote them may still deliver them, or
    has died before it.

    Return whether they had their turn, and are not left to the worker.
    """
    waiting = OutboxEvent.objects.filter(order_id=order_id, done_at__isnull=True)
    return (
        not waiting.exclude(kind=OutboxEventKind.REMOTE).exists()
        or _deliver_if_free(order_id) is not None
    )


def _deliver_if_free(order_id: int) -> int | None:
    if not _places.acquire(timeout=_WAIT_FOR_PLACE_SECONDS):
        return None
    try:
        return deliver_now(order_id)
    except OrderHeld as error:
        _log.info("outbox events are left to the worker: %s", error)
        return None
    finally:
        _places.release()


def deliver_now(order_id: int) -> int:
    """Carry out an order's local outbox events that are due; raise `OrderHeld` where another
    process has the order.
    """
    return _deliver_until(order_id, None)


def deliver_claimed(claimed: OutboxEvent, leased_until: datetime) -> int:
    """Carry out the oldest local event of an order, which a worker has claimed, and those behind
    it; return how many were done.
    """
    if not may_begin(claimed, leased_until):
        return 0
    try:
        return _deliver_until(claimed.order_id, leased_until)
    except OrderHeld:
        # Nothing has begun: the event is due again soon, with the mark that it had.
        held = OutboxEvent.objects.filter(pk=claimed.pk, due_at=leased_until)
        held.update(due_at=timezone.now() + FIRST_PAUSE, begun_at=claimed.begun_at)
        raise


def _deliver_until(order_id: int, leased_until: datetime | None) -> int:
    done = 0
    while True:
        more, delivered = _deliver_next(order_id, leased_until)
        done += delivered
        if not more:
            return done


def _deliver_next(order_id: int, leased_until: datetime | None) -> tuple[bool, bool]:
    """Carry out the oldest local outbox event, and tell whether there is another and whether this
    one was done.
    """
    outbox_event: OutboxEvent | None = None
    try:
        with locked_order(order_id) as order:
            waiting = order.outbox_events.exclude(kind=OutboxEventKind.REMOTE).filter(
                done_at__isnull=True,
            )
            refunds = Refund.objects.filter(
                payment=OuterRef("payment"),
                status__in=BOUND_REFUND_STATUSES,
            )
            oldest = list(
                waiting.select_related("payment")
                .annotate(has_refunds=Exists(refunds))
                .order_by("id")[:2],
            )
            if not oldest or not is_free(oldest[0], leased_until):
                return False, False
            outbox_event = oldest[0]
            _carry_out(order, outbox_event)
    except (
        Exception
    ) as error:  # the shop's handler may raise anything, and the payment keeps its true status
        if outbox_event is None:
            raise
        # In a transaction of its own: after a deadlock the database has rolled the whole other one
        # back.
        _log.exception("outbox event %s of order %s failed", outbox_event.event_id, order)
        reconnect_if_cut()
        note_failure(order_id, outbox_event.pk, error)
        return False, False
    return len(oldest) > 1, True


def _carry_out(order: Order, outbox_event: OutboxEvent) -> None:
    # The notification's request may have another language than the shop's staff.
    with translation.override(settings.LANGUAGE_CODE), shop_savepoint():
        outcome = HANDLERS[OutboxEventKind(outbox_event.kind)](order, outbox_event)
    mark_delivered(outbox_event, outcome)
    settle_failing(outbox_event)
    message = f"the shop was told: {outbox_event.kind}" + (
        f" ({outbox_event.outcome})" if outbox_event.outcome else ""
    )
    record(
        "event.delivered",
        order,
        f"outbox:{outbox_event.event_id}",
        message,
        payment=outbox_event.payment,
        refund=outbox_event.refund,
    )
