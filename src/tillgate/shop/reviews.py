"""Reviews of an order: shown to the shop's staff, opened by the plugin, and closed by an action of staff."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from tillgate.django import operations
from tillgate.django.models import Payment, Review
from tillgate.django.operations import reviews
from tillgate.django.staff import words
from tillgate.lifecycle import ReviewAction, ReviewReason

__all__ = ["OpenReview", "open_review", "resolve_review", "reviews_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReview:
    """An open review as staff read it, with its actions in order.

    `version` goes back with the action: when the review says something else by then, the action is refused. `title` and `message` are in
    the active language.
    """

    id: str
    reason: ReviewReason
    title: str
    message: str
    version: str
    opened_at: datetime
    reported_paid: bool
    payment_id: str | None
    actions: tuple[ReviewAction, ...]


def reviews_of(plugin: str, order_key: str) -> tuple[OpenReview, ...]:
    """Return the open reviews of an order, the oldest first."""
    rows = Review.objects.filter(order__plugin=plugin, order__key=order_key, resolved_at__isnull=True)
    return tuple(_value(row) for row in rows.select_related("order", "payment", "refund", "outbox_event").order_by("pk"))


def open_review(payment_id: str, message: str, *, actor: str, reason: ReviewReason = ReviewReason.PAID_NOT_PAYABLE) -> None:
    """Open a review about a paid payment, with a message of the plugin's own; nothing happens where the same case is open.

    Touches the database only. `actor` is the plugin's name.
    """
    payment = Payment.objects.select_related("order").get(pk=int(payment_id))
    reviews.open_review(reason, message, actor, order=payment.order, payment=payment, account=payment.account)


def resolve_review(
    review_id: str,
    action: ReviewAction | str,
    *,
    staff: str,
    note: str = "",
    amount: Decimal | str | None = None,
    version: str = "",
) -> tuple[bool, str]:
    """Do what staff chose about a review; return whether it is closed now, and a message for staff. Call it outside any transaction.

    Raises `operations.ActionNotPossible`, `operations.RefundNotPossible` or `InvalidRequest`, and nothing was done.
    """
    done = operations.take_action(int(review_id), str(action), staff=staff, note=note, amount=amount, read=version)
    return done.resolved, done.message


def _value(row: Review) -> OpenReview:
    return OpenReview(
        id=str(row.pk),
        reason=ReviewReason(row.reason),
        title=words.reason(row.reason),
        message=row.message,
        version=row.version,
        opened_at=row.opened_at,
        reported_paid=row.reported_paid,
        payment_id=str(row.payment_id) if row.payment_id else None,
        actions=operations.actions_for(row),
    )
