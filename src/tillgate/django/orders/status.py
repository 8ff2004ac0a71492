"""The one place that writes a status. Every write asks the table of its machine
(`tillgate.lifecycle`) first.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Model, QuerySet
from django.utils import timezone

from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment, Refund, Review
from tillgate.django.orders.unwanted import want_closed
from tillgate.lifecycle import (
    ORDER_TRANSITIONS,
    OUTBOX_TRANSITIONS,
    PAYMENT_TRANSITIONS,
    REFUND_TRANSITIONS,
    REVIEW_TRANSITIONS,
    OrderStatus,
    OutboxStatus,
    PaymentStatus,
    RefundStatus,
    ReviewStatus,
    Transitions,
    move,
)

_MACHINES: Final[dict[type[Model], tuple[Any, Transitions[Any]]]] = {
    Payment: (PaymentStatus, PAYMENT_TRANSITIONS),
    Refund: (RefundStatus, REFUND_TRANSITIONS),
    Review: (ReviewStatus, REVIEW_TRANSITIONS),
}


def write_status(
    row: Payment | Refund | Review,
    new: PaymentStatus | RefundStatus | ReviewStatus,
    now: datetime | None = None,
) -> list[str]:
    """Give a row a new status in memory, with its time, and return the names of the columns to
    save.

    Raises `IllegalTransition` where the machine's table does not lead there.
    """
    statuses, transitions = _MACHINES[type(row)]
    row.status = move(transitions, statuses(row.status), new).value
    if now is None:
        return ["status"]
    # a review keeps its times in other columns, and gives none
    row.status_since = now  # type: ignore[union-attr]
    return ["status", "status_since"]


def write_status_of(
    rows: QuerySet[Any],
    old: PaymentStatus | ReviewStatus,
    new: PaymentStatus | ReviewStatus,
    **columns: Any,
) -> bool:
    """Move rows from one status to another in one statement, with other columns, and return whether
    there were any.

    Raises `IllegalTransition` where the machine's table does not lead there.
    """
    _, transitions = _MACHINES[rows.model]
    return bool(
        rows.filter(status=old.value).update(status=move(transitions, old, new).value, **columns),
    )


def mark_order_paid(order: Order, payment: Payment) -> None:
    """Note that a payment has paid its order (I4)."""
    move(ORDER_TRANSITIONS, order.status, OrderStatus.PAID)
    order.paid_by = payment
    order.save(update_fields=["paid_by"])
    want_closed(order, but=payment)


def mark_order_closed(order: Order) -> None:
    """Note that the shop closed an unpaid order."""
    move(ORDER_TRANSITIONS, order.status, OrderStatus.CLOSED)
    order.closed_at = timezone.now()
    order.save(update_fields=["closed_at"])
    want_closed(order)


def mark_order_reopened(order: Order) -> None:
    """Note that the shop takes money for a closed order again."""
    move(ORDER_TRANSITIONS, order.status, OrderStatus.OPEN)
    order.closed_at = None
    order.save(update_fields=["closed_at"])


def queue_event(
    order: Order,
    kind: OutboxEventKind,
    *,
    delay: timedelta = timedelta(),
    **fields: Any,
) -> OutboxEvent:
    """Write a shop event to the outbox, due now or after a delay, within the running
    transaction.
    """
    due = timezone.now() + delay
    event = OutboxEvent(order=order, kind=kind, created_at=due, due_at=due, **fields)
    event.save(force_insert=True)
    return event


def mark_delivered(event: OutboxEvent, outcome: str = "") -> None:
    """Note that an outbox event was delivered, and its outcome."""
    move(OUTBOX_TRANSITIONS, event.status, OutboxStatus.DELIVERED)
    event.done_at, event.due_at, event.begun_at, event.fault, event.outcome = (
        timezone.now(),
        None,
        None,
        "",
        outcome,
    )
    event.attempts += 1
    event.save(update_fields=["done_at", "due_at", "begun_at", "attempts", "fault", "outcome"])


def mark_failed(
    event: OutboxEvent,
    fault: str,
    due_at: datetime | None,
    begun_at: datetime | None = None,
) -> None:
    """Note that a delivery failed, and when the worker tries again; `begun_at` where it has begun
    to.
    """
    move(OUTBOX_TRANSITIONS, event.status, OutboxStatus.FAILING)
    event.attempts, event.fault, event.due_at, event.begun_at = (
        event.attempts + 1,
        fault,
        due_at,
        begun_at,
    )
    event.save(update_fields=["attempts", "fault", "due_at", "begun_at"])


def mark_abandoned(event: OutboxEvent) -> None:
    """Note that staff let a failing remote event be."""
    move(OUTBOX_TRANSITIONS, event.status, OutboxStatus.ABANDONED)
    event.done_at, event.due_at, event.outcome = timezone.now(), None, OutboxStatus.ABANDONED.value
    event.save(update_fields=["done_at", "due_at", "outcome"])
