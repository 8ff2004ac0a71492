"""Outbox events: the shop hears of each change, in order per order.

A local one (the shop's database) takes effect exactly once: one transaction runs the handler and marks it done, or does neither (I3). A
remote one (HTTP, mail) is carried at least once under a stable event id, claimed by a lease. The two kinds do not wait for each other.

A claim marks an event with the time at which its delivery begins, and the end of the delivery removes the mark. A claim that finds a mark
knows that the process before it was killed, or hung until it was ended: that counts as an attempt.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.utils import timezone, translation

from tillgate import hooks
from tillgate.django import dates
from tillgate.django.conf import get_settings
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment, Refund, Review
from tillgate.django.operations.locking import (
    AFTER_A_CALL_SECONDS,
    OrderHeld,
    durable,
    in_the_shops_hands,
    locked_order,
    network,
    outside_transactions,
    reconnect_if_cut,
)
from tillgate.django.operations.reviews import open_review, settle
from tillgate.django.operations.status import abandon_event, deliver_event, fail_event, pay_order, queue_event
from tillgate.django.operations.timeline import record
from tillgate.django.operations.values import order_value, payment_value, refund_value, remote_event_value, review_value
from tillgate.errors import ConfigurationError
from tillgate.lifecycle import BOUND_REFUND_STATUSES, OPEN_PAYMENT_STATUSES, End, PaymentStatus, ReviewReason, reasons
from tillgate.wire.personal import without_personal_data
from tillgate.wire.texts import storable

_log = logging.getLogger("tillgate")

AGAIN: Final = "again"
"""In the data of an outbox event that a person wished repeated: the review that it is about."""
_NOT_APPLIED_REASONS: Final = reasons(ends=End.APPLIED)
LEASE: Final = timedelta(minutes=2)
"""For a delivery: after it another worker takes an event of a process that was killed, or whose handler hangs."""
_LONGEST_PAUSE: Final = timedelta(hours=1)
_FIRST_PAUSE: Final = timedelta(seconds=10)
_WAIT_FOR_PLACE_SECONDS: Final = 1.0
_places: Final = threading.BoundedSemaphore(2)
"""So many threads of a web process deliver at a time: handlers that hang hold no more of them."""


class ProcessEnded(Exception):
    """The process that delivered an event was killed, or hung until it was ended."""


def deliver(order_id: int) -> int:
    """Carry out an order's local outbox events that are due, oldest first; return how many were done.

    Leave them to the worker where a handler of another process has the order, or handlers hold the most threads of this process.
    """
    return _deliver_if_free(order_id) or 0


def deliver_due(order_id: int) -> bool:
    """Deliver the due events of an order: the process that wrote them may still deliver them, or has died before it.

    Return whether they had their turn, and are not left to the worker.
    """
    waiting = OutboxEvent.objects.filter(order_id=order_id, done_at__isnull=True)
    return not waiting.exclude(kind=OutboxEventKind.REMOTE).exists() or _deliver_if_free(order_id) is not None


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
    """Carry out an order's local outbox events that are due; raise `OrderHeld` where another process has the order."""
    return _deliver_until(order_id, None)


def deliver_claimed(claimed: OutboxEvent, leased_until: datetime) -> int:
    """Carry out the oldest local event of an order, which a worker has claimed, and those behind it; return how many were done."""
    if not _may_begin(claimed, leased_until):
        return 0
    try:
        return _deliver_until(claimed.order_id, leased_until)
    except OrderHeld:
        # Nothing has begun: the event is due again soon, with the mark that it had.
        held = OutboxEvent.objects.filter(pk=claimed.pk, due_at=leased_until)
        held.update(due_at=timezone.now() + _FIRST_PAUSE, begun_at=claimed.begun_at)
        raise


def _deliver_until(order_id: int, leased_until: datetime | None) -> int:
    done = 0
    while True:
        more, delivered = _deliver_next(order_id, leased_until)
        done += delivered
        if not more:
            return done


def _deliver_next(order_id: int, leased_until: datetime | None) -> tuple[bool, bool]:
    """Carry out the oldest local outbox event, and tell whether there is another and whether this one was done."""
    outbox_event: OutboxEvent | None = None
    try:
        with locked_order(order_id) as order:
            waiting = order.outbox_events.exclude(kind=OutboxEventKind.REMOTE).filter(done_at__isnull=True)
            refunds = Refund.objects.filter(payment=OuterRef("payment"), status__in=BOUND_REFUND_STATUSES)
            oldest = list(waiting.select_related("payment").annotate(has_refunds=Exists(refunds)).order_by("id")[:2])
            if not oldest or not _is_free(oldest[0], leased_until):
                return False, False
            outbox_event = oldest[0]
            _carry_out(order, outbox_event)
    except Exception as error:  # the shop's handler may raise anything, and the payment keeps its true status
        if outbox_event is None:
            raise
        # In a transaction of its own: after a deadlock the database has rolled the whole other one back.
        _log.exception("outbox event %s of order %s failed", outbox_event.event_id, order_id)
        reconnect_if_cut()
        _note_failure(order_id, outbox_event.pk, error)
        return False, False
    return len(oldest) > 1, True


def _is_free(outbox_event: OutboxEvent, leased_until: datetime | None) -> bool:
    """Return whether an event is due, or this process has claimed it; another worker's claim has another end."""
    due = outbox_event.due_at
    return due is None or due == leased_until or due <= timezone.now()


def _carry_out(order: Order, outbox_event: OutboxEvent) -> None:
    # The notification's request may have another language than the shop's staff.
    with translation.override(settings.LANGUAGE_CODE), in_the_shops_hands():
        outcome = _HANDLERS[OutboxEventKind(outbox_event.kind)](order, outbox_event)
    deliver_event(outbox_event, outcome)
    _settle_failing(outbox_event)
    message = f"the shop was told: {outbox_event.kind}" + (f" ({outbox_event.outcome})" if outbox_event.outcome else "")
    record("event.delivered", order, f"outbox:{outbox_event.event_id}", message, payment=outbox_event.payment, refund=outbox_event.refund)


def _payment_paid(order: Order, outbox_event: OutboxEvent) -> str:
    """Deliver a paid payment, unless the order was paid by another, closed, or costs more by now (I4)."""
    payment = outbox_event.payment
    assert payment is not None
    payment.order = order
    if detail := _over(outbox_event, payment):
        return detail
    if order.paid_by_id and order.paid_by_id != payment.pk:
        _hold(payment, ReviewReason.SECOND_PAYMENT, {})
        return "second-payment"
    described = hooks.call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
    if described is None:
        _hold(payment, ReviewReason.PAID_NOT_PAYABLE, {"case": "unknown"})
        return hooks.PaidOutcome.NOT_PAYABLE.value
    if order.closed_at or described.not_payable_detail is not None:
        because = described.not_payable_detail
        facts = {"case": "shop", "because": because} if because else {"case": "closed"}
        _hold(payment, ReviewReason.PAID_NOT_PAYABLE, facts)
        return hooks.PaidOutcome.NOT_PAYABLE.value
    if described.currency != payment.currency:
        facts = {"case": "currency", "found": payment.currency, "expected": described.currency}
        _hold(payment, ReviewReason.PAID_NOT_PAYABLE, facts)
        return hooks.PaidOutcome.NOT_PAYABLE.value
    if described.amount > payment.amount:
        _hold(payment, ReviewReason.UNDERPAID, _costs_by_now(payment, described))
        return hooks.PaidOutcome.UNDERPAID.value
    outcome = hooks.call_owner(order.plugin, "tillgate_payment_paid", payment=payment_value(payment))
    if outcome is None and not hooks.implements(order.plugin, "tillgate_payment_paid"):
        raise ConfigurationError("plugin", order.plugin, "does not implement tillgate_payment_paid, which marks an order paid")
    if outcome not in set(hooks.PaidOutcome):
        raise ConfigurationError("tillgate_payment_paid", outcome, f"of plugin {order.plugin} must return a PaidOutcome")
    if outcome == hooks.PaidOutcome.APPLIED:
        pay_order(order, payment)
        if AGAIN in outbox_event.data:  # staff have decided about the former refusal
            held = Review.objects.filter(payment=payment, reason__in=_NOT_APPLIED_REASONS)
            settle(held, "the shop was told again, and has applied the payment")
        if described.amount < payment.amount:
            _hold(payment, ReviewReason.OVERPAID, _costs_by_now(payment, described))
    else:
        reason = ReviewReason.UNDERPAID if outcome == hooks.PaidOutcome.UNDERPAID else ReviewReason.PAID_NOT_PAYABLE
        _hold(payment, reason, {"case": "outcome", "outcome": outcome})
    return str(outcome)


def _over(outbox_event: OutboxEvent, payment: Payment) -> str:
    """Say why there is nothing to deliver any more, or nothing if there is."""
    # The statement that found the event tells of refunds; nearly all payments have none.
    if vars(outbox_event)["has_refunds"] and (AGAIN in outbox_event.data or payment.refunded_amount >= payment.amount):
        return "given-back"  # it pays nothing any more, and a payment that staff redeliver must be whole
    if AGAIN in outbox_event.data and Review.objects.filter(pk=outbox_event.data[AGAIN], resolved_at__isnull=False).exists():
        return "settled-otherwise"  # while it waited; resolving takes the order's lock too
    return ""


def _settle_failing(outbox_event: OutboxEvent) -> None:
    """Close the review about an outbox event that had failed and is delivered now."""
    if outbox_event.attempts > 1:  # otherwise there is no review
        settle(outbox_event.reviews.all(), f"the shop was told at attempt {outbox_event.attempts}")


def _costs_by_now(payment: Payment, described: hooks.OrderDescription) -> dict[str, Any]:
    return {"found": payment.amount, "expected": described.amount, "currency": payment.currency}


def _hold(payment: Payment, reason: ReviewReason, facts: Mapping[str, Any]) -> None:
    open_review(reason, facts, "outbox", order=payment.order, payment=payment, account=payment.account)


def is_unpaid(order: Order) -> bool:
    """Return whether no payment has paid an order and none of it is open. Entirely refunded money that never paid it does not count."""
    if order.paid_by_id or order.payments.filter(status__in=OPEN_PAYMENT_STATUSES).exists():
        return False
    return all(payment.refunded_amount >= payment.amount for payment in order.payments.filter(status=PaymentStatus.PAID))


def _order_unpaid(order: Order, outbox_event: OutboxEvent) -> str:
    is_expected_anew = order.unpaid_check_at is not None and order.unpaid_check_at > timezone.now()
    if is_expected_anew or not is_unpaid(order):
        return "not-any-more"
    described = hooks.call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
    if described is not None and described.payable and described.is_free:
        return "nothing-to-pay"
    hooks.call_owner(order.plugin, "tillgate_order_unpaid", order=order_value(order))
    return ""


def _refund_changed(order: Order, outbox_event: OutboxEvent) -> str:
    refund, payment = outbox_event.refund, outbox_event.payment
    assert refund is not None
    assert payment is not None
    refund.payment, payment.order = payment, order
    hooks.call_owner(order.plugin, "tillgate_refund_changed", refund=refund_value(refund, outbox_event.data.get("status")))
    return str(outbox_event.data.get("status", ""))


def _review_opened(order: Order, outbox_event: OutboxEvent) -> str:
    review = outbox_event.review
    assert review is not None
    review.order = order
    if review.payment is not None:
        review.payment.order = order
    hooks.call_owner(order.plugin, "tillgate_review_opened", review=review_value(review))
    return ""


_HANDLERS: Final[dict[OutboxEventKind, Any]] = {
    OutboxEventKind.PAYMENT_PAID: _payment_paid,
    OutboxEventKind.ORDER_UNPAID: _order_unpaid,
    OutboxEventKind.REFUND_CHANGED: _refund_changed,
    OutboxEventKind.REVIEW_OPENED: _review_opened,
}


def _may_begin(claimed: OutboxEvent, leased_until: datetime) -> bool:
    """Return whether a claimed event may be delivered now. One whose process ended is tried at once the first time, later after a pause.

    `claimed` is the event as it was before the claim.
    """
    if claimed.begun_at is None:
        return True
    ended = ProcessEnded(f"the process that began to deliver it at {dates.local(claimed.begun_at):%H:%M:%S} was killed, or hung")
    _log.error("outbox event %s of order %s: %s", claimed.event_id, claimed.order_id, ended)
    _note_failure(claimed.order_id, claimed.pk, ended, leased_until)
    return claimed.attempts == 0


def _note_failure(order_id: int, outbox_event_id: int, error: Exception, leased_until: datetime | None = None) -> None:
    """Note that an outbox event failed, unless another worker has carried it out since, and when it is tried next.

    `leased_until` is the end of this process's lease, where it goes on with an event whose process ended.
    """
    with locked_order(order_id) as order:
        outbox_event = order.outbox_events.select_related("payment", "refund").get(pk=outbox_event_id)
        if outbox_event.done_at is not None:
            return
        fault = without_personal_data(storable(f"{type(error).__name__}: {error}"))[:1000]
        has_ended = isinstance(error, ProcessEnded)
        if has_ended and outbox_event.attempts == 0:  # it may have had another cause: this process goes on with it under its own mark
            fail_event(outbox_event, fault, leased_until, begun_at=timezone.now())
            return
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(outbox_event.attempts, 20))
        fail_event(outbox_event, fault, timezone.now() + pause)
        tries = get_settings().delivery_tries_before_review
        # Neither a handler that ends its process nor an uninstalled plugin comes back by itself.
        if has_ended or not hooks.is_loaded(order.plugin) or outbox_event.attempts >= tries:
            payment, refund = outbox_event.payment, outbox_event.refund
            # Without the number of attempts: after a dismissal only another failure opens a new review.
            facts = {"order": str(order), "error": outbox_event.fault[:200], **_named(outbox_event)}
            open_review(
                ReviewReason.DELIVERY_FAILING,
                facts,
                "outbox",
                order=order,
                payment=payment,
                refund=refund,
                outbox_event=outbox_event,
                account=payment.account if payment else "",
                evidence={"attempts": outbox_event.attempts},
            )


def _named(outbox_event: OutboxEvent) -> dict[str, str]:
    """Return the facts that name an outbox event in a review."""
    is_remote = outbox_event.kind == OutboxEventKind.REMOTE
    return {"case": "remote", "name": outbox_event.name} if is_remote else {"kind": outbox_event.kind}


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
    """Queue something that the plugin carries over the network after commit, by its `tillgate_deliver`; return its event id.

    Called by a plugin inside its own local handler, so that both happen or neither. An event with a `delay`, such as a reminder, is due
    after it, and holds up no other event of the order before.
    """
    order = Order.objects.get(plugin=plugin, key=order_key)
    payment, refund = Payment(pk=int(payment_id)) if payment_id else None, Refund(pk=int(refund_id)) if refund_id else None
    outbox_event = queue_event(order, OutboxEventKind.REMOTE, payment=payment, refund=refund, name=name, data=data or {}, delay=delay)
    return str(outbox_event.event_id)


def deliver_remote(order_id: int) -> int:
    """Carry an order's remote outbox events that are due over the network, oldest first; return how many were done."""
    outside_transactions("deliver_remote")
    done = 0
    while claimed := _claim_remote(order_id):
        carried = carry_claimed(*claimed)
        done += carried
        if not carried:
            break
    return done


def carry_claimed(claimed: OutboxEvent, leased_until: datetime) -> int:
    """Carry a remote event over the network, which this process has claimed; return 1, or 0 where that failed or must wait."""
    if not _may_begin(claimed, leased_until):
        return 0
    order_id, plugin = claimed.order_id, claimed.order.plugin
    for row in (claimed.payment, claimed.refund.payment if claimed.refund else None):
        if row:
            row.order = claimed.order
    try:
        with network(), translation.override(settings.LANGUAGE_CODE):
            said = hooks.call_owner(plugin, "tillgate_deliver", outbox_event=remote_event_value(claimed))
    except Exception as error:  # a plugin may raise anything, and the delivery is tried again
        _log.exception("remote outbox event %s of order %s failed", claimed.event_id, claimed.order)
        _note_failure(order_id, claimed.pk, error)
        return 0
    with locked_order(order_id, patience_seconds=AFTER_A_CALL_SECONDS) as order:
        # As it is by now: where the lease ran out, another worker may have carried it too, or failed to.
        event = order.outbox_events.filter(pk=claimed.pk, done_at__isnull=True).select_related("payment").first()
        if event:
            deliver_event(event)
            _settle_failing(event)
            message = without_personal_data(storable(said)) if isinstance(said, str) else f"carried over the network: {event.name}"
            record("event.delivered", order, f"outbox:{event.event_id}", message, payment=event.payment)
    return 1


def abandon(outbox_event: OutboxEvent, staff: str, detail: str) -> None:
    """Abandon a failing remote event, as staff decided, so that the event behind it has its turn."""
    with locked_order(outbox_event.order_id) as order:
        row = order.outbox_events.select_related("payment").get(pk=outbox_event.pk)
        if row.done_at is not None:
            return
        abandon_event(row)
        record(
            "event.abandoned",
            order,
            f"staff:{staff}",
            f"not carried over the network: {row.name}: {without_personal_data(detail)}",
            payment=row.payment,
        )


def _claim_remote(order_id: int) -> tuple[OutboxEvent, datetime] | None:
    """Take the order's oldest remote event for the length of the lease, unless it is not due or another process has it.

    Return it as it was, and the end of the lease.
    """
    now = timezone.now()
    with locked_order(order_id) as order:
        waiting = order.outbox_events.filter(kind=OutboxEventKind.REMOTE, done_at__isnull=True, created_at__lte=now)
        event = waiting.select_related("order", "payment", "refund__payment").order_by("id").first()
        if event is None or not _is_free(event, None):
            return None
        order.outbox_events.filter(pk=event.pk).update(due_at=now + LEASE, begun_at=now)
    return event, now + LEASE


def retry(outbox_event_id: int) -> None:
    """Make an outbox event due now, as staff decided."""
    with durable():
        OutboxEvent.objects.filter(pk=outbox_event_id, done_at__isnull=True).update(due_at=timezone.now())
