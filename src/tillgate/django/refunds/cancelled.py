"""A cancelled order with money that the gateway still holds: staff decide about it."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction

from tillgate.django.models import Order, Payment, Review, database
from tillgate.django.refunds.limits import RefundNotPossible, refundable
from tillgate.django.reviews.closing import resolve
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import ReviewReason
from tillgate.money import left_of

_REASON = ReviewReason.CANCELLED_HELD
_NOTHING = Decimal(0)


def review_cancelled(order: Order, actor: str, kept: Decimal = _NOTHING) -> None:
    """Open a review about the money of a cancelled order that was paid, under the order's lock;
    nothing happens where its refunds, done or under way, take all of it but `kept`.
    """
    if payment := _paid_by(order):
        _open(payment, max(_NOTHING, left_of(refundable(payment), [kept])), actor)


def keep_money(order_id: int, *, staff: str, note: str) -> None:
    """Note that staff keep the money of a cancelled order: its review is dismissed, and no other
    one opens about the same amount.
    """
    with transaction.atomic(using=database()):
        order = Order.objects.select_for_update().get(pk=order_id)
        payment = _paid_by(order)
        if payment is None:
            raise RefundNotPossible(f"no payment has paid order {order}")
        if held := refundable(payment):
            _open(payment, held, f"staff:{staff}")
            about = Review.objects.filter(payment=payment, reason=_REASON, resolved_at=None)
            for pk in about.values_list("pk", flat=True):
                resolve(pk, note, staff, dismissed=True)


def _paid_by(order: Order) -> Payment | None:
    if order.paid_by_id is None:
        return None
    payment = Payment.objects.select_for_update().get(pk=order.paid_by_id)
    payment.order = order
    return payment


def _open(payment: Payment, held: Decimal, actor: str) -> None:
    if held:
        facts = {"amount": held, "currency": payment.currency}
        open_review(_REASON, facts, actor, payment)
