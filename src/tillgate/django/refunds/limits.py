"""The refundable amount of a payment, and the reviews that block refunds."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from django.utils.translation import gettext as _

from tillgate import money
from tillgate.django.amounts import money_text
from tillgate.django.models import (
    NOTHING,
    Payment,
    Refund,
    Review,
)
from tillgate.errors import TillgateError
from tillgate.lifecycle import (
    BOUND_REFUND_STATUSES,
    PaymentStatus,
    ReviewReason,
    reasons,
)

ELSEWHERE_REASONS: Final = reasons(blocks_refunds=True)
"""Reasons of money that may have left without a refund here."""


class RefundNotPossible(TillgateError):
    """The payment cannot be refunded now, and nothing was; the message says why.

    `for_staff` says it to staff, in the active language: a clause without "nothing was refunded".
    """

    def __init__(self, message: str, for_staff: str = "") -> None:
        super().__init__(message)
        self.for_staff = for_staff or message


def refundable(payment: Payment, refunds: Iterable[Refund] | None = None) -> Decimal:
    """Return how much of a payment can still be refunded. `refunds` are its refunds, if the caller
    has read them.
    """
    if payment.status != PaymentStatus.PAID:
        return NOTHING
    if refunds is None:
        refunds = payment.refunds.filter(status__in=BOUND_REFUND_STATUSES)
    return max(
        NOTHING,
        money.left_of(
            payment.amount,
            [one.amount for one in refunds if one.status in BOUND_REFUND_STATUSES],
        ),
    )


def blocking_reason(payment: Payment) -> str | None:
    """Return the reason of an open review that blocks refunds, a dispute's first, or None."""
    blocking = Review.objects.filter(
        payment=payment,
        reason__in=ELSEWHERE_REASONS,
        resolved_at__isnull=True,
    )
    reasons_found = set(blocking.values_list("reason", flat=True))
    return next(
        (one for one in (ReviewReason.DISPUTED, *reasons_found) if one in reasons_found),
        None,
    )


def check_newest_refund(payment: Payment, newest_refund: int | None) -> None:
    """Raise when there is a newer refund than the newest on the form."""
    if newest_refund is not None and (
        newer := payment.refunds.filter(pk__gt=newest_refund).first()
    ):
        said = _(
            "a refund of %(amount)s was asked for in the meantime. Open the page again, and see "
            "whether this one is still needed",
        )
        raise RefundNotPossible(
            f"a refund of {newer.money} of payment {payment.reference} was asked for in the "
            "meantime",
            said % {"amount": money_text(newer.amount, payment.currency)},
        )


def check_open(about: Review | None) -> None:
    """Raise when the review that a refund is to resolve is resolved, or has other facts by now.
    Both need the order's lock too.
    """
    if about is None:
        return
    by_now = Review.objects.select_for_update().get(pk=about.pk)
    if by_now.resolved_at:
        raise RefundNotPossible(
            f"{by_now.resolved_by} had resolved it already: {by_now.resolution}",
        )
    if by_now.version != about.version:
        raise RefundNotPossible(f"it says something else by now: {by_now.message}")
