"""Everything that a page of staff says about one payment, as one value: from its row, from the
gateway's newest answer, and from the shop's description of the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.utils import timezone
from django.utils.translation import gettext as _

from tillgate import hooks
from tillgate.django import words
from tillgate.django.accounts import dialect_of
from tillgate.django.masking import Mask
from tillgate.django.models import Payment
from tillgate.django.pages import owner
from tillgate.lifecycle import PaymentStatus
from tillgate.money import Money
from tillgate.wire.details import DeclineReason, NextStep, PaidWith, ReportedDispute
from tillgate.wire.messages import Goods


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeSummary:
    """A dispute of a payment for staff. `state` says in words how it stands, and `respond_by` is
    the deadline for an answer at the gateway, and `url` the gateway's page about it, or empty.
    """

    number: str
    amount: Money
    state: str
    is_open: bool
    reason: str
    respond_by: datetime | None
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentSummary:
    """Everything that a page of staff says about one payment, in the active language. A text is
    empty, and a value None, where nothing is known.

    `status` says in a word how it stands. `paid_with` names the card or wallet that paid, such as
    "Visa ending 4242", and before that the chosen method; `used` has its parts, or is None before.
    `numbers` are all numbers of the payment at the shop and the gateway: our reference first.
    `gateway` is the gateway's name, and `gateway_url` its own page about the payment. `order_url`
    is the shop's page about the order for its staff. `page_state` says whether the gateway's
    payment page of an unpaid payment still takes money. `refund_pages` has the gateway's page about
    each refund, by the refund's number there.

    `customer`, `lines` and `order_url` come from the shop's plugin and are not stored.
    """

    payment_id: str
    reference: str
    status: str
    order: hooks.Order
    order_number: str
    order_url: str
    customer: hooks.Customer | None
    lines: tuple[Goods, ...]
    amount: Money
    refunded: Money
    paid_with: str
    used: PaidWith | None
    fee: Money | None
    net: Money | None
    available_on: datetime | None
    decline_reason: str
    next_step: NextStep | None
    disputes: tuple[DisputeSummary, ...]
    numbers: tuple[str, ...]
    gateway: str
    gateway_url: str
    page_state: str
    refund_pages: Mapping[str, str]


def summary_of(
    payment: Payment,
    *,
    asks_shop: bool = True,
    refunded: Decimal | None = None,
) -> PaymentSummary:
    """Return the summary of a payment. Without `asks_shop`, such as for a list, the shop's plugin
    is not called, and nothing of it is known. Never raises for an error of the shop. `refunded` is
    the refunded amount, if the caller knows it.
    """
    known = payment.known
    described = owner.described_if_possible(payment) if asks_shop else None
    order = hooks.Order(plugin=payment.order.plugin, key=payment.order.key)
    mask = Mask([payment])
    return PaymentSummary(
        payment_id=str(payment.pk),
        reference=payment.reference,
        status=str(words.PAYMENT_STATUSES[payment.status].label),
        order=order,
        order_number=described.number if described else order.key,
        order_url=(described and owner.web_address(described.staff_url)) or "",
        customer=described.customer if described else None,
        lines=described.lines if described else (),
        amount=payment.money,
        refunded=Money(
            payment.refunded_amount if refunded is None else refunded,
            payment.currency,
        ),
        paid_with=paid_with(payment),
        used=known.paid_with,
        fee=known.fee,
        net=known.net,
        available_on=known.available_on,
        decline_reason=mask.text(declined_text(known.decline_reason)),
        next_step=known.next_step if payment.is_open else None,
        disputes=tuple(_dispute(one, payment, mask) for one in known.disputes),
        numbers=tuple(_numbers(payment)),
        gateway=dialect_of(payment).shown_name,
        gateway_url=owner.web_address(known.dashboard_url) or "",
        page_state=page_state(payment),
        refund_pages={
            number: url for number, url in known.refund_pages.items() if owner.web_address(url)
        },
    )


def paid_with(payment: Payment) -> str:
    """Return the card or wallet that paid, such as "Visa ending 4242", or the chosen method."""
    return words.paid_with(payment.method, payment.known.paid_with)


def page_state(payment: Payment) -> str:
    """Return whether the payment page of an unpaid payment can still be paid, in words; "" for a
    payment that is paid or has no page.
    """
    if payment.page_closed_at is not None:
        return _("The gateway has closed its payment page. Nobody can pay there any more.")
    if payment.status == PaymentStatus.PAID or not (payment.is_open and payment.payment_url):
        return ""
    if payment.page_closes_at <= timezone.now():
        return _("The time to pay on its page has passed.")
    if payment.close_wanted_at is not None:
        return _("The gateway is asked to close its payment page. Until then it can be paid.")
    return _("Its payment page is open: it can still be paid.")


def _numbers(payment: Payment) -> dict[str, None]:
    """Return the numbers of a payment without repetition, in their order."""
    further = [one.number for one in payment.numbers.all()]
    found = [payment.reference, payment.transaction_no, payment.hinted_no, *further]
    return dict.fromkeys(number for number in found if number)


def declined_text(reason: DeclineReason | None) -> str:
    """Return why a payment was declined, for staff; "" where nothing is known."""
    if reason is None:
        return ""
    if reason.text and reason.code:
        return f"{reason.text} ({reason.code})"
    return reason.text or reason.code


def _dispute(one: ReportedDispute, payment: Payment, mask: Mask) -> DisputeSummary:
    return DisputeSummary(
        number=one.dispute_no,
        amount=Money(one.amount, payment.currency),
        state=words.dispute(one.status),
        is_open=one.status == hooks.DisputeStatus.OPEN,
        reason=mask.text(one.reason.replace("_", " ")),
        respond_by=one.respond_by,
        url=owner.web_address(one.url) or "",
    )
