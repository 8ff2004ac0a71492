"""Retention, erasure and export: everything that Tillgate stores about an order, and the part of it
that may be personal.

Details are notifications, answers of the gateway and texts. The worker purges those of an order
that has not changed for long, and erasure does the same immediately. The facts about the money
stay: amounts, statuses, references, numbers and times. An order with anything open is left alone,
since staff and worker still need its details.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Max, Model, ProtectedError, Q, QuerySet, RestrictedError
from django.utils import timezone

from tillgate.django import dates
from tillgate.django.conf import get_settings
from tillgate.django.models import (
    Notification,
    Order,
    OutboxEvent,
    Payment,
    Refund,
    Review,
    TimelineEntry,
    database,
)
from tillgate.django.orders.locking import locked_order
from tillgate.django.orders.timeline import ERASED, record
from tillgate.django.orders.times import PURGE_CHECK
from tillgate.errors import InvalidRequest
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES, RefundStatus, ReviewReason

_TEXT_FACTS: Final = frozenset({"answer", "because", "detail", "error", "name"})
"""The facts of a review that are texts. The others are compared values: amounts, numbers and words
of the gateway.
"""
_CODED_REASONS: Final = tuple(map(str, ReviewReason))
"""The reasons of refunds that the code reads."""
_NOT_EXPORTED: Final = frozenset(
    {"notification_key", "return_key", "payment_url", "open_key", "last_notification"},
)
"""The addresses that grant access to their holder, and hashes."""


def purge_order(order_id: int, leased_until: datetime) -> bool:
    """Purge an order if its details, or all of it, are older than they are kept; set the next
    check, and return whether it did.

    Nothing is purged while anything about the order is open, or the worker polls a payment of it:
    the gateway may still report a change, such as a dispute. An order that the shop's own rows
    protect keeps its payments. A worker has claimed it until `leased_until`.
    """
    settings = get_settings()
    with locked_order(order_id) as order:
        now, changed_at = timezone.now(), _changed_at(order)
        if order.purge_check_at != leased_until:
            return False  # another process was quicker
        is_polled = order.payments.filter(next_poll_at__isnull=False).exists()
        is_open, is_purged = is_polled or _open_business(order) is not None, False
        if (
            not is_open
            and _is_over(changed_at, settings.payments_kept_days, now)
            and _delete(order)
        ):
            return True
        if not is_open and _is_over(changed_at, settings.details_kept_days, now):
            is_purged = _erase(order, "worker")
        order.purge_check_at = now + PURGE_CHECK
        if not is_open and settings.details_kept_days is not None:
            ends = changed_at + timedelta(days=settings.details_kept_days)
            order.purge_check_at = (
                min(order.purge_check_at, ends) if ends > now else order.purge_check_at
            )
        order.save(update_fields=["purge_check_at"])
    return is_purged


def _is_over(changed_at: datetime, days: int | None, now: datetime) -> bool:
    return days is not None and changed_at + timedelta(days=days) <= now


def erase_order(plugin: str, order_key: str, actor: str) -> bool:
    """Erase the details of an order now, and return whether there were any. Touches the database
    only.

    Raises `InvalidRequest` for an order that Tillgate does not know, and for one with anything
    open.
    """
    with transaction.atomic(using=database()):
        order = _found(Order.objects.select_for_update(), plugin, order_key)
        if detail := _open_business(order):
            raise InvalidRequest("order_key", order_key, detail)
        return _erase(order, actor)


def _found(orders: QuerySet[Order], plugin: str, order_key: str) -> Order:
    order = orders.filter(plugin=plugin, key=order_key).first()
    if order is None:
        raise InvalidRequest(
            "order_key",
            order_key,
            f"is no order of plugin {plugin!r} that Tillgate knows",
        )
    return order


def _open_business(order: Order) -> str | None:
    """Return the open case of an order, as a clause that names the remedy, or None."""
    settled = (RefundStatus.SUCCEEDED, RefundStatus.FAILED)
    if order.payments.filter(status__in=OPEN_PAYMENT_STATUSES).exists():
        return "has an open payment: wait until it has ended"
    if Refund.objects.filter(payment__order=order).exclude(status__in=settled).exists():
        return "has a refund without an outcome: settle it first"
    if _reviews(order).filter(resolved_at__isnull=True).exists():
        return "has an open review: resolve it first"
    if order.outbox_events.filter(done_at__isnull=True).exists():
        return "has an event that was not delivered to the shop: let the worker deliver it first"
    return None


def _reviews(order: Order) -> QuerySet[Review]:
    own = (
        Q(order=order)
        | Q(payment__order=order)
        | Q(refund__payment__order=order)
        | Q(outbox_event__order=order)
    )
    return Review.objects.filter(own)


def _changed_at(order: Order) -> datetime:
    """Return when an order last changed: every change leaves an entry in the timeline (I10)."""
    last: datetime | None = order.timeline.exclude(event=ERASED).aggregate(last=Max("at"))["last"]
    return max(order.created_at, last or order.created_at)


def _erase(order: Order, actor: str) -> bool:
    """Erase the details of an order, under its lock, and note that in its timeline if there were
    any.
    """
    kept, _ = Notification.objects.filter(payment__order=order).delete()
    texts = order.timeline.exclude(message="", evidence={}).update(message="", evidence={})
    Payment.objects.filter(order=order).update(
        description="",
        payment_url="",
        last_notification="",
        details={},
        last4="",
    )
    refunds = Refund.objects.filter(payment__order=order)
    texts += refunds.exclude(reason__in=(*_CODED_REASONS, "")).update(reason="")
    refunds.update(answer="")
    order.outbox_events.exclude(fault="").update(fault="")
    for review in _reviews(order):
        texts += bool(review.resolution)
        review.facts = {
            name: fact for name, fact in review.facts.items() if name not in _TEXT_FACTS
        }
        review.evidence, review.resolution = {}, ""
        review.save(update_fields=["facts", "evidence", "resolution"])
    if kept or texts:
        record(ERASED, order, actor, "")
    return bool(kept or texts)


def _delete(order: Order) -> bool:
    """Delete an order with everything about it, under its lock; return whether the shop's own rows
    let it.
    """
    try:
        with transaction.atomic(using=database()):
            Order.objects.filter(pk=order.pk).update(paid_by=None)
            order.outbox_events.all().delete()
            _reviews(order).delete()
            Refund.objects.filter(payment__order=order).delete()
            Payment.objects.filter(order=order).delete()
            Order.objects.filter(pk=order.pk).delete()
    except (ProtectedError, RestrictedError):
        return False
    return True


def export_order(plugin: str, order_key: str) -> dict[str, Any]:
    """Return everything that Tillgate stores about an order, as JSON knows it, without the
    addresses that grant access.

    Raises `InvalidRequest` for an order that Tillgate does not know.
    """
    order = _found(Order.objects.all(), plugin, order_key)
    related: dict[str, QuerySet[Any]] = {
        "payments": order.payments.all(),
        "refunds": Refund.objects.filter(payment__order=order),
        "notifications": Notification.objects.filter(payment__order=order),
        "timeline": TimelineEntry.objects.filter(order=order),
        "reviews": _reviews(order),
        "outbox_events": OutboxEvent.objects.filter(order=order),
    }
    return dict(_exported(order)) | {
        name: [dict(_exported(row)) for row in rows.order_by("pk")]
        for name, rows in related.items()
    }


def _exported(row: Model) -> Iterator[tuple[str, Any]]:
    for column in row._meta.concrete_fields:
        if column.name in _NOT_EXPORTED:
            continue
        value = getattr(row, column.attname)
        if isinstance(value, datetime):
            value = dates.local(value).isoformat()
        yield (
            column.attname,
            value
            if value is None or isinstance(value, bool | int | str | dict | list)
            else str(value),
        )
