"""The outcome of a refund: an answer, a notification or a person settles it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone

from tillgate.django.models import (
    Order,
    OutboxEventKind,
    Payment,
    Refund,
    Review,
)
from tillgate.django.orders.locking import (
    AFTER_A_CALL_SECONDS,
    locked_order,
)
from tillgate.django.orders.status import queue_event, write_status
from tillgate.django.orders.timeline import record
from tillgate.django.orders.times import unpaid_check_at
from tillgate.django.outbox.delivering import deliver
from tillgate.django.refunds.limits import RefundNotPossible
from tillgate.django.reviews.closing import ITSELF, settle
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import (
    UNSETTLED_REFUND_STATUSES,
    End,
    RefundStatus,
    ReviewReason,
    next_refund_poll,
    reasons,
)
from tillgate.money import Money

OVER_ONCE_REFUNDED: Final = reasons(ends=End.FULL_REFUND)
_UNSETTLED_REASONS: Final = (ReviewReason.REFUND_UNKNOWN, ReviewReason.REFUND_LATE)
_SEND_AGAIN_AFTER: Final = timedelta(minutes=1)
LONGEST_PAUSE: Final = timedelta(hours=1)
_REVIEW_AFTER: Final = timedelta(hours=3)
"""A refund that could not leave for so long opens a review."""


def settle_refund(
    sent: Refund,
    status: RefundStatus,
    answer: str,
    actor: str,
    *,
    only_from: Collection[RefundStatus] = (RefundStatus.SENDING,),
    staff: str = ITSELF,
    refund_no: str | None = None,
    patience_seconds: float = AFTER_A_CALL_SECONDS,
) -> Refund:
    """Settle a refund under its order's lock, and tell the shop."""
    with locked_order(sent.payment.order_id, patience_seconds=patience_seconds) as order:
        refund, has_moved = settle_locked(
            order,
            sent.pk,
            status,
            answer,
            actor,
            only_from=only_from,
            staff=staff,
            refund_no=refund_no,
        )
    if has_moved:
        deliver(order.pk)
    return refund


def settle_locked(
    order: Order,
    refund_id: int,
    status: RefundStatus,
    answer: str,
    actor: str,
    *,
    only_from: Collection[RefundStatus],
    staff: str = ITSELF,
    refund_no: str | None = None,
) -> tuple[Refund, bool]:
    """Write a refund's new status, its timeline entry, its outbox event and its reviews together.

    Return the refund as it is then, and whether it has moved.
    """
    refund = Refund.objects.select_related("payment").get(pk=refund_id)
    refund.payment.order = order
    if refund.status not in only_from:
        if staff == ITSELF:
            _review_contradiction(refund, status, actor)
        return refund, False
    was, now = RefundStatus(refund.status), timezone.now()
    nobody_refused = status is not RefundStatus.FAILED or was in UNSETTLED_REFUND_STATUSES
    if refund.confirmed and status is not RefundStatus.SUCCEEDED and nobody_refused:
        status, answer = RefundStatus.SUCCEEDED, f"{answer}; a notification had confirmed it"
    changed = write_status(refund, status, now)
    refund.answer, refund.refund_no = answer[:255], refund.refund_no or refund_no
    refund.due_at = due_after(refund, status, now)
    refund.save(update_fields=[*changed, "answer", "refund_no", "due_at"])
    message = answer or str(refund.money)
    record(f"refund.{status}", order, actor, message, payment=refund.payment, refund=refund)
    if was in UNSETTLED_REFUND_STATUSES:
        settle(Review.objects.filter(refund=refund, reason__in=_UNSETTLED_REASONS), answer, staff)
    _review_outcome(refund, status, answer, actor)
    if status not in (RefundStatus.QUEUED, RefundStatus.PENDING):
        queue_refund_changed(refund)
    return refund, True


def _review_contradiction(refund: Refund, status: RefundStatus, actor: str) -> None:
    """Open a review where the gateway says the opposite of the outcome that a refund has."""
    if (refund.status, status) == (RefundStatus.FAILED, RefundStatus.SUCCEEDED):
        _review_failed(refund, "notification" if actor == "webhook" else "answer", actor)
    if (refund.status, status) == (RefundStatus.SUCCEEDED, RefundStatus.FAILED):
        # The shopper has no money, and the shop's books say otherwise.
        _open_review_once(ReviewReason.REFUND_RETURNED, {}, actor, refund)


def _review_outcome(refund: Refund, status: RefundStatus, answer: str, actor: str) -> None:
    """Open the reviews that a refund's new status calls for, and close those that it has ended."""
    review_waiting(refund, answer)
    if status is RefundStatus.UNKNOWN:
        open_refund_review(ReviewReason.REFUND_UNKNOWN, {"answer": answer}, actor, refund)
    if status is RefundStatus.FAILED and refund.confirmed:
        _review_failed(refund, "notification", actor)
    if status is RefundStatus.SUCCEEDED:
        _conclude_refund(refund)


def due_after(refund: Refund, status: RefundStatus, now: datetime) -> datetime | None:
    """Return when a refund that came to a status is sent or asked about next."""
    if status is RefundStatus.QUEUED:
        # twice as long each time
        return now + min(max(_SEND_AGAIN_AFTER, now - refund.created_at), LONGEST_PAUSE)
    return next_refund_poll(now, now) if status in UNSETTLED_REFUND_STATUSES else None


def review_waiting(refund: Refund, answer: str) -> None:
    """Open a review about a refund that could not be sent for hours, and take it back once it waits
    no longer.
    """
    if refund.status != RefundStatus.QUEUED:
        settle(
            Review.objects.filter(refund=refund, reason=ReviewReason.REFUND_NOT_SENT),
            f"it waits no longer: {refund.status}",
        )
        return
    waited = timezone.now() - refund.created_at
    if waited >= _REVIEW_AFTER:
        hours = int(waited.total_seconds() // 3600)
        _open_review_once(
            ReviewReason.REFUND_NOT_SENT,
            {"answer": answer, "hours": hours},
            "refund",
            refund,
        )


def _conclude_refund(refund: Refund) -> None:
    staff = refund.requested_by or ITSELF
    if refund.reason == ReviewReason.OVERPAID:
        settle(
            Review.objects.filter(payment=refund.payment, reason=ReviewReason.OVERPAID),
            f"{refund.money} was refunded",
            staff,
        )
    # Behind two orders there may be the same money: refunded for another reason, it leaves the
    # other order without.
    asked = (
        {ReviewReason.DUPLICATE_TRANSACTION_NO}
        if refund.reason == ReviewReason.DUPLICATE_TRANSACTION_NO
        else set()
    )
    conclude_refunded(refund.payment, staff, OVER_ONCE_REFUNDED | asked)


def conclude_refunded(payment: Payment, staff: str, over: Collection[ReviewReason]) -> None:
    """Resolve the reviews that an entirely refunded payment has ended (I4).

    `over` has their reasons: all of them where staff entered an external refund. A refund of ours
    that completes the amount may follow a *failed* one that was made after all, and then more than
    the paid amount was refunded.

    If the payment never paid its order, the order may be unpaid by now, and its stock is to be
    released.
    """
    refunded_amount, order = payment.refunded_amount, payment.order
    if refunded_amount < payment.amount:
        return
    settle(
        Review.objects.filter(payment=payment, reason__in=over),
        f"all of it was refunded: {Money(refunded_amount, payment.currency)}",
        staff,
    )
    if order.paid_by_id is None:
        # The shopper may try again, however long the shop held the money.
        order.unpaid_check_at, order.tried_since = unpaid_check_at(), None
        order.save(update_fields=["unpaid_check_at", "tried_since"])


def queue_refund_changed(refund: Refund) -> None:
    """Queue the shop event about a refund's new status."""
    payment = refund.payment
    queue_event(
        payment.order,
        OutboxEventKind.REFUND_CHANGED,
        payment=payment,
        refund=refund,
        data={"status": str(refund.status)},
    )


def settle_by_notification(order: Order, refund_id: int) -> bool:
    """Let a notification on the refund's own address settle a pending or unknown refund: the one
    thing that it settles alone (I7).

    Under the order's lock, in the transaction that stores the notification; returns whether there
    is an event for the shop. The worker soon books a queued refund, since its request was thought
    not to have left.
    """
    Refund.objects.filter(pk=refund_id, status=RefundStatus.QUEUED).update(due_at=timezone.now())
    answer = "the gateway's notification confirmed it"
    _, has_moved = settle_locked(
        order,
        refund_id,
        RefundStatus.SUCCEEDED,
        answer,
        "webhook",
        only_from=UNSETTLED_REFUND_STATUSES,
    )
    return has_moved


def _review_failed(refund: Refund, case: str, actor: str) -> None:
    """Open a review about a failed refund that was made after all: it blocks refunds (I5)."""
    _open_review_once(
        ReviewReason.REFUND_CONTRADICTED,
        {"answer": refund.answer, "case": case},
        actor,
        refund,
    )


def _open_review_once(
    reason: ReviewReason,
    facts: Mapping[str, Any],
    actor: str,
    refund: Refund,
) -> None:
    """Open a review about a refund that had none for this reason, not even a closed one: gateways
    repeat their notifications.
    """
    if not Review.objects.filter(refund=refund, reason=reason).exists():
        open_refund_review(reason, facts, actor, refund)


def open_refund_review(
    reason: ReviewReason,
    facts: Mapping[str, Any],
    actor: str,
    refund: Refund,
) -> None:
    """Open a review about a refund."""
    payment = refund.payment
    facts = {
        "amount": refund.amount,
        "currency": payment.currency,
        "payment": payment.reference,
        **facts,
    }
    open_review(reason, facts, actor, refund)


def settle_by_staff(refund_id: int, *, done: bool, staff: str) -> Refund:
    """Settle a refund that is unknown or pending as a person found it at the gateway."""
    refund = Refund.objects.select_related("payment").get(pk=refund_id)
    status = RefundStatus.SUCCEEDED if done else RefundStatus.FAILED
    answer = f"{staff} found that it was {'done' if done else 'not done'}"
    return settle_refund(
        refund,
        status,
        answer,
        f"staff:{staff}",
        only_from=UNSETTLED_REFUND_STATUSES,
        staff=staff,
    )


def mark_sent(order: Order, payment: Payment, refund_id: int, actor: str, message: str) -> None:
    """Let a queued refund count as sent, since its request has left after all: it can be settled,
    and is never sent again (I6).
    """
    refund = Refund.objects.get(pk=refund_id)
    refund.save(update_fields=write_status(refund, RefundStatus.SENDING, timezone.now()))
    record("refund.sending", order, actor, message, payment=payment, refund=refund)


def withdraw(refund_id: int, *, staff: str) -> Refund:
    """Give up a refund that waits to be sent, as a person wishes. Raises `RefundNotPossible` when
    it does not wait any more.
    """
    row = Refund.objects.select_related("payment").get(pk=refund_id)
    with locked_order(row.payment.order_id) as order:
        refund = Refund.objects.get(pk=refund_id)
        if refund.status != RefundStatus.QUEUED:
            raise RefundNotPossible(
                f"the refund is {refund.status} by now, and only one that waits to be sent can be "
                "withdrawn",
            )
        if refund.confirmed:
            raise RefundNotPossible(
                "a notification says that the refund was done; it is booked when it is sent next, "
                "and not sent again",
            )
        withdrawn = withdraw_locked(refund, order, f"staff:{staff}", f"by {staff}")
    deliver(order.pk)
    return withdrawn


def withdraw_locked(refund: Refund, order: Order, actor: str, detail: str) -> Refund:
    """Give up a refund that was not sent, under the order's lock."""
    answer = f"withdrawn before it was sent: {detail}"
    withdrawn, _ = settle_locked(
        order,
        refund.pk,
        RefundStatus.FAILED,
        answer,
        actor,
        only_from=(RefundStatus.QUEUED,),
    )
    return withdrawn


def mark_unknown(refund_id: int, actor: str, message: str) -> bool:
    """Note that a queued refund may have been sent before: its outcome is unknown (I6). Return
    whether it was queued.
    """
    row = Refund.objects.select_related("payment").get(pk=refund_id)
    with locked_order(row.payment.order_id) as order:
        if not Refund.objects.filter(pk=refund_id, status=RefundStatus.QUEUED).exists():
            return False
        row.payment.order = order
        mark_sent(order, row.payment, refund_id, actor, message)
        settle_locked(
            order,
            refund_id,
            RefundStatus.UNKNOWN,
            message,
            actor,
            only_from=(RefundStatus.SENDING,),
        )
    deliver(order.pk)
    return True
