"""Attempts to deliver an event: their begin, their failure, and the review about it."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from tillgate import hooks
from tillgate.django import dates
from tillgate.django.conf import get_settings
from tillgate.django.models import OutboxEvent, OutboxEventKind
from tillgate.django.orders.locking import (
    durable,
    locked_order,
)
from tillgate.django.orders.status import mark_abandoned, mark_failed
from tillgate.django.orders.timeline import record
from tillgate.django.reviews.closing import settle
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import ReviewReason
from tillgate.wire.personal import without_personal_data
from tillgate.wire.texts import storable

_log = logging.getLogger("tillgate")

LEASE: Final = timedelta(minutes=2)
"""Of a delivery: after it another worker takes the event, if the process was killed or hangs."""
_LONGEST_PAUSE: Final = timedelta(hours=1)
FIRST_PAUSE: Final = timedelta(seconds=10)


class ProcessEnded(Exception):
    """The process that delivered an event was killed, or hung until it was ended."""


def is_free(outbox_event: OutboxEvent, leased_until: datetime | None) -> bool:
    """Return whether an event is due, or this process has claimed it; another worker's claim has
    another end.
    """
    due = outbox_event.due_at
    return due is None or due == leased_until or due <= timezone.now()


def settle_failing(outbox_event: OutboxEvent) -> None:
    """Close the review about an outbox event that had failed and is delivered now."""
    if outbox_event.attempts > 1:  # otherwise there is no review
        settle(outbox_event.reviews.all(), f"the shop was told at attempt {outbox_event.attempts}")


def may_begin(claimed: OutboxEvent, leased_until: datetime) -> bool:
    """Return whether a claimed event may be delivered now. An event that was left by a dead process
    is tried again: the first time immediately, later after a pause.

    `claimed` is the event as it was before the claim.
    """
    if claimed.begun_at is None:
        return True
    ended = ProcessEnded(
        f"the process that began to deliver it at {dates.local(claimed.begun_at):%H:%M:%S} was "
        "killed, or hung",
    )
    _log.error("outbox event %s of order %s: %s", claimed.event_id, claimed.order, ended)
    note_failure(claimed.order_id, claimed.pk, ended, leased_until)
    return claimed.attempts == 0


def note_failure(
    order_id: int,
    outbox_event_id: int,
    error: Exception,
    leased_until: datetime | None = None,
) -> None:
    """Note that an outbox event failed, unless another worker has carried it out since, and when it
    is tried next.

    `leased_until` is the end of this process's lease, where it goes on with an event of a dead
    process.
    """
    with locked_order(order_id) as order:
        outbox_event = order.outbox_events.select_related("payment", "refund").get(
            pk=outbox_event_id,
        )
        if outbox_event.done_at is not None:
            return
        fault = without_personal_data(storable(f"{type(error).__name__}: {error}"))[:1000]
        has_ended = isinstance(error, ProcessEnded)
        # it may have had another cause: this process goes on with it under its own mark
        if has_ended and outbox_event.attempts == 0:
            mark_failed(outbox_event, fault, leased_until, begun_at=timezone.now())
            return
        pause = min(_LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(outbox_event.attempts, 20))
        mark_failed(outbox_event, fault, timezone.now() + pause)
        tries = get_settings().delivery_tries_before_review
        # A handler that ends its process needs staff, and so does a plugin that is not installed.
        if has_ended or not hooks.is_loaded(order.plugin) or outbox_event.attempts >= tries:
            # Without the number of attempts: after a dismissal only another failure opens a new
            # review.
            facts = {"order": str(order), "error": outbox_event.fault[:200], **_named(outbox_event)}
            open_review(
                ReviewReason.DELIVERY_FAILING,
                facts,
                "outbox",
                outbox_event,
                evidence={"attempts": outbox_event.attempts},
            )


def _named(outbox_event: OutboxEvent) -> dict[str, str]:
    is_remote = outbox_event.kind == OutboxEventKind.REMOTE
    return (
        {"case": "remote", "name": outbox_event.name} if is_remote else {"kind": outbox_event.kind}
    )


def abandon(outbox_event: OutboxEvent, staff: str, detail: str) -> None:
    """Abandon a failing remote event, as staff decided, so that the event behind it has its
    turn.
    """
    with locked_order(outbox_event.order_id) as order:
        row = order.outbox_events.select_related("payment").get(pk=outbox_event.pk)
        if row.done_at is not None:
            return
        mark_abandoned(row)
        record(
            "event.abandoned",
            order,
            f"staff:{staff}",
            f"not carried over the network: {row.name}: {without_personal_data(detail)}",
            payment=row.payment,
        )


def retry(outbox_event_id: int) -> None:
    """Make an outbox event due now, as staff decided."""
    with durable():
        OutboxEvent.objects.filter(pk=outbox_event_id, done_at__isnull=True).update(
            due_at=timezone.now(),
        )
