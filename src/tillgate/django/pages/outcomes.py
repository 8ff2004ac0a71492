"""The texts about a payment for its shopper: one table, by stored facts. The words of a return may
choose a text, never a status (I7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from django.utils.functional import Promise, lazy
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from tillgate.django.models import Payment
from tillgate.django.pages.awaited import awaited, may_be_paid
from tillgate.django.payments.handing_out import is_order_paid
from tillgate.django.reviews.opening import reported_paid
from tillgate.hooks import OrderDescription
from tillgate.lifecycle import PaymentStatus, ReviewReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The texts of the return page. `sign` is the style of its icon. `awaits`: the page checks by
    itself until there is other news.

    `offers`: the page offers to pay, as "buttons" where nothing was paid, and as quiet "links"
    where the shopper may have paid. `is_needless`: the order takes no money. `step_url` is the
    page of a voucher that is still to be paid, and `step_text` the text of its button.
    """

    title: str | Promise
    text: str | Promise
    sign: str = "note-sign"
    awaits: bool = False
    offers: str = ""
    is_needless: bool = False
    step_url: str = ""
    step_text: str = ""


PAID: Final = Outcome(
    title=_("Thank you, your payment has arrived"),
    text=_("The shop knows about it. You can close this page."),
    sign="paid-sign",
)
_REFUNDED: Final = Outcome(
    title=_("Your payment was refunded"),
    text=_("Your money is on its way back. Your payment method decides how long this takes."),
)
_CHANGED: Final = Outcome(
    title=_("Your payment has arrived, and the shop reviews it"),
    text=_(
        "The order has changed or was cancelled before. The shop will be in touch with you. You "
        "do not have to do anything.",
    ),
)
_REVIEWED: Final = {
    ReviewReason.SECOND_PAYMENT: Outcome(
        title=_("This order was paid twice"),
        text=_(
            "The shop reviews this and refunds one of the two payments. You do not have to do "
            "anything.",
        ),
    ),
    ReviewReason.OVERPAID: Outcome(
        title=_("You have paid more than the order costs"),
        text=_("The shop reviews this and refunds the difference. You do not have to do anything."),
    ),
    ReviewReason.REFUND_RETURNED: Outcome(
        title=_("Your refund came back to the shop"),
        text=_(
            "Your bank did not take it. The shop will be in touch with you. You do not have to do "
            "anything.",
        ),
        sign="warn-sign",
    ),
    ReviewReason.PAID_NOT_PAYABLE: _CHANGED,
    ReviewReason.UNDERPAID: _CHANGED,
}
"""A paid payment with an open review."""

_UNDER_REVIEW: Final = Outcome(
    title=_("Your payment is under review"),
    text=_(
        "The payment service says that you have paid, and something about it is not in order. The "
        "shop knows about it. Please ask the shop "
        "before you pay again.",
    ),
)
_PAID_OTHERWISE: Final = Outcome(
    title=_("This order is already paid"),
    text=_("You do not have to do anything."),
    sign="paid-sign",
)
_PAID_AND_OPEN: Final = replace(
    _PAID_OTHERWISE,
    text=_(
        "Another payment of this order is still open: please do not pay it. If it is paid too, the "
        "shop refunds it.",
    ),
)
_CONFIRMING: Final = Outcome(
    title=_("Confirming your payment"),
    text=_(
        "This usually takes a few seconds. You do not have to do anything, and you may close this "
        "page: your order is safe.",
    ),
    awaits=True,
)
"""A shopper that has just paid is never invited to pay again. The text also stands while the shop
event is delivered; the page does not wait for it.
"""
_UNANSWERED: Final = Outcome(
    title=_("We are still waiting for the payment service"),
    text=_(
        "If you have paid, the shop marks your order as paid as soon as the payment service "
        "confirms it. You need not pay again. If you "
        "have not paid, nothing was charged.",
    ),
    awaits=True,
    offers="links",
)
_NOT_RECEIVED: Final = Outcome(
    title=_("We have not received a payment yet"),
    text=lazy(may_be_paid, str)(),
    awaits=True,
    offers="buttons",
)


_FREE: Final = Outcome(
    title=_("There is nothing to pay for this order"),
    text=_("You do not have to do anything."),
    is_needless=True,
)


def _unpaid(title: str | Promise, text: str | Promise) -> Outcome:
    return Outcome(title=title, text=text, sign="warn-sign", offers="buttons")


_DECLINED: Final = _unpaid(
    _("Your payment was declined"),
    _("Your bank or the payment service did not accept it. Nothing was charged."),
)
_CANCELLED: Final = _unpaid(_("The payment was cancelled"), _("Nothing was charged."))
_CLOSED: Final = _unpaid(
    _("The payment was not made"),
    _("It was cancelled, or its time had passed. Nothing was charged."),
)
_EXPIRED: Final = _unpaid(
    _("The time to pay has passed"),
    _("The payment page has closed. Nothing was charged."),
)
_UNAVAILABLE: Final = _unpaid(
    _("This payment method is not available now"),
    _("Nothing was charged."),
)

_UNPAID: Final[dict[tuple[PaymentStatus, str | None], Outcome]] = {
    (PaymentStatus.FAILED, None): _DECLINED,
    (
        PaymentStatus.FAILED,
        "",
    ): _UNAVAILABLE,  # no answer of the gateway: it refused to begin the payment
    (PaymentStatus.CLOSED, None): _CLOSED,
    (PaymentStatus.CLOSED, "cancelled"): _CANCELLED,
    (PaymentStatus.CLOSED, "canceled"): _CANCELLED,
    (PaymentStatus.CLOSED, "expired"): _EXPIRED,
    (PaymentStatus.EXPIRED, None): _EXPIRED,
}
"""By the status and the gateway's own word for it; None stands for every other word."""


def _under_way(payment: Payment) -> Outcome:
    found = awaited(payment)
    assert found is not None
    return Outcome(
        title=found.title,
        text=found.text,
        offers="links" if found.is_voucher else "",
        step_url=found.url,
        step_text=found.link_text,
    )


_INSTEAD: Final[tuple[tuple[Callable[[Payment], object], Callable[[Payment], Outcome]], ...]] = (
    (lambda payment: reported_paid([payment.pk]), lambda _payment: _UNDER_REVIEW),
    # it may be a second payment
    (
        lambda payment: payment.is_open and is_order_paid(payment.order),
        lambda payment: (
            _PAID_AND_OPEN if payment.is_processing else replace(_PAID_OTHERWISE, awaits=True)
        ),
    ),
    (lambda payment: payment.is_open and payment.is_processing, _under_way),
    (
        lambda payment: not payment.is_open and is_order_paid(payment.order),
        lambda _payment: _PAID_OTHERWISE,
    ),
)
"""The cases that count before the status of a payment that is not paid. The first that applies
counts.
"""


def outcome_of(
    payment: Payment,
    *,
    says_paid: bool = False,
    is_patient: bool = True,
    is_told: bool = True,
) -> Outcome:
    """Return the texts about a payment.

    `says_paid`: the return's own words say so, which is a hint and no more (I7); `is_patient`: the
    page has not waited for long; `is_told`: the shop has had its turn to hear of the payment.
    """
    if payment.status == PaymentStatus.PAID:
        reasons = payment.reviews.filter(
            resolved_at__isnull=True,
            reason__in=_REVIEWED,
        ).values_list("reason", flat=True)
        if payment.refunded_amount >= payment.amount:
            returned = ReviewReason.REFUND_RETURNED
            return _REVIEWED[returned] if returned in reasons else _REFUNDED
        return next(
            (_REVIEWED[ReviewReason(reason)] for reason in reasons),
            PAID if is_told else _CONFIRMING,
        )
    if instead := next((outcome for applies, outcome in _INSTEAD if applies(payment)), None):
        return instead(payment)
    if not payment.is_open:
        return _of_unpaid(payment.status, payment.status_text)
    if payment.is_in_doubt or (says_paid and not is_patient):
        return _UNANSWERED
    return _CONFIRMING if says_paid else _NOT_RECEIVED


def of_order(
    outcome: Outcome,
    payment: Payment,
    order: OrderDescription,
    detail: str | None,
) -> Outcome:
    """Return the texts about an unpaid payment where its order takes no money now: it is free, or
    cannot be paid, and `detail` says why. Any other outcome stays.
    """
    if outcome.offers != "buttons":
        return outcome
    if order.is_free:
        return _FREE if detail is None else replace(_FREE, text=_says(detail))
    if detail is None or not payment.is_open:
        return outcome
    title = gettext("This order cannot be paid")
    return Outcome(title=title, text=_says(detail), sign="warn-sign", is_needless=True)


def _says(detail: str) -> str:
    return gettext("The shop says: %(detail)s.") % {"detail": detail}


def _of_unpaid(status: str, status_text: str) -> Outcome:
    reached = PaymentStatus(status)
    return _UNPAID.get((reached, status_text)) or _UNPAID[reached, None]


def unpaid_detail(payment: Payment) -> str:
    """Return in a sentence why a payment ended unpaid, for the shopper; empty for any other
    payment.
    """
    is_unpaid = not payment.is_open and payment.status != PaymentStatus.PAID
    return f"{_of_unpaid(payment.status, payment.status_text).title}." if is_unpaid else ""
