"""Events that are carried over the network, at least once under a stable id."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.utils import timezone, translation

from tillgate import hooks
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment, Refund
from tillgate.django.orders.locking import (
    AFTER_A_CALL_SECONDS,
    locked_order,
    network,
    outside_transactions,
)
from tillgate.django.orders.status import mark_delivered, queue_event
from tillgate.django.orders.timeline import record
from tillgate.django.orders.values import remote_event_value
from tillgate.django.outbox.attempts import LEASE, is_free, may_begin, note_failure, settle_failing
from tillgate.wire.personal import without_personal_data
from tillgate.wire.texts import storable

_log = logging.getLogger("tillgate")


NOT_SENT: Final = "not-sent"
"""The outcome of a remote event that the plugin did not send."""


def enqueue_remote(
    plugin: str,
    order_key: str,
    name: str,
    *,
    data: dict[str, Any] | None = None,
    payment_id: str | None = None,
    refund_id: str | None = None,
    delay: timedelta = timedelta(),
) -> str:
    """Queue something that the plugin carries over the network after commit, by its
    `tillgate_deliver`; return its event id.

    Called by a plugin inside its own local handler, so that both happen or neither. An event with a
    `delay`, such as a reminder, is due after it, and holds up no other event of the order before.
    """
    order = Order.objects.get(plugin=plugin, key=order_key)
    payment, refund = (
        Payment(pk=int(payment_id)) if payment_id else None,
        Refund(pk=int(refund_id)) if refund_id else None,
    )
    outbox_event = queue_event(
        order,
        OutboxEventKind.REMOTE,
        payment=payment,
        refund=refund,
        name=name,
        data=data or {},
        delay=delay,
    )
    return str(outbox_event.event_id)


def deliver_remote(order_id: int) -> int:
    """Carry an order's remote outbox events that are due over the network, oldest first; return how
    many were done.
    """
    outside_transactions("deliver_remote")
    done = 0
    while claimed := _claim_remote(order_id):
        carried = carry_claimed(*claimed)
        done += carried
        if not carried:
            break
    return done


def carry_claimed(claimed: OutboxEvent, leased_until: datetime) -> int:
    """Carry a remote event over the network, which this process has claimed; return 1, or 0 where
    that failed or must wait.
    """
    if not may_begin(claimed, leased_until):
        return 0
    order_id, plugin = claimed.order_id, claimed.order.plugin
    for row in (claimed.payment, claimed.refund.payment if claimed.refund else None):
        if row:
            row.order = claimed.order
    try:
        with network(), translation.override(settings.LANGUAGE_CODE):
            answer = hooks.call_owner(
                plugin,
                "tillgate_deliver",
                outbox_event=remote_event_value(claimed),
            )
    except Exception as error:  # a plugin may raise anything, and the delivery is tried again
        _log.exception("remote outbox event %s of order %s failed", claimed.event_id, claimed.order)
        note_failure(order_id, claimed.pk, error)
        return 0
    with locked_order(order_id, patience_seconds=AFTER_A_CALL_SECONDS) as order:
        # As it is by now: where the lease ran out, another worker may have carried it too, or
        # failed to.
        event = (
            order.outbox_events.filter(pk=claimed.pk, done_at__isnull=True)
            .select_related("payment")
            .first()
        )
        if event:
            mark_delivered(event, NOT_SENT if isinstance(answer, str) else "")
            settle_failing(event)
            message = (
                without_personal_data(storable(answer))
                if isinstance(answer, str)
                else f"carried over the network: {event.name}"
            )
            record(
                "event.delivered",
                order,
                f"outbox:{event.event_id}",
                message,
                payment=event.payment,
            )
    return 1


def _claim_remote(order_id: int) -> tuple[OutboxEvent, datetime] | None:
    """Take the order's oldest remote event for the length of the lease, unless it is not due or
    another process has it.

    Return it as it was, and the end of the lease.
    """
    now = timezone.now()
    with locked_order(order_id) as order:
        waiting = order.outbox_events.filter(
            kind=OutboxEventKind.REMOTE,
            done_at__isnull=True,
            created_at__lte=now,
        )
        event = waiting.select_related("order", "payment", "refund__payment").order_by("id").first()
        if event is None or not is_free(event, None):
            return None
        order.outbox_events.filter(pk=event.pk).update(due_at=now + LEASE, begun_at=now)
    return event, now + LEASE
