"""The work of Tillgate's hooks for a Saleor. It runs under the lock of the order and touches the
database only; reports are queued.

Saleor's books contain all money that came, also money paid twice, too late or too little. Its staff
see it there and can refund it, and Tillgate opens a review. Saleor decides whether a checkout is
paid.
"""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from django.utils.translation import gettext as _

from tillgate.hooks import (
    Event,
    Order,
    OrderDescription,
    PaidOutcome,
    Payment,
    PaymentStatus,
    Refund,
    RefundStatus,
    Review,
)
from tillgate.shop import (
    OutboxStatus,
    PaymentState,
    ReviewReason,
    find_payment,
    locked_order,
    now,
    remote_events,
)
from tillgate_saleor import reports
from tillgate_saleor.conf import PLUGIN, get_settings
from tillgate_saleor.costs import PAID_NOTHING, left_to_pay, parts_of
from tillgate_saleor.facts import declined_text
from tillgate_saleor.models import AskedRefund, Purchase, Transaction
from tillgate_saleor.transactions import CHARGED, find_purchase, paid_at, payment_of, transaction_of

_CHECKOUT: Final = b64encode(b"Checkout:").decode()
"""The beginning of a checkout's identifier in Saleor."""
_NOT_CHARGED: Final = "CHARGE_FAILURE"
"""The report that an order is unpaid."""
_REQUESTED: Final = "CHARGE_REQUEST"
"""The report that money is on its way."""
_INFO: Final = "INFO"
"""The report of a message for staff."""
_IN_DOUBT: Final = frozenset(
    {
        ReviewReason.CHANGED_AFTER_PAID,
        ReviewReason.DISPUTED,
        ReviewReason.MANUAL_REVIEW,
        ReviewReason.REFUND_RETURNED,
    }
)
"""Reasons of reviews with a message for staff of Saleor too: its books do not show it."""
_ON_ITS_WAY: Final = "payment.processing"
_ENDED: Final = frozenset({"payment.failed", "payment.closed", "payment.expired"})
"""The events of payments that ended unpaid."""


def describe(order_key: str) -> OrderDescription | None:
    """Return the amount that Saleor last asked for a checkout or an order."""
    purchase = find_purchase(order_key)
    if purchase is None:
        return None
    return OrderDescription(
        number=purchase.number,
        amount=_wanted(purchase),
        currency=purchase.currency,
        description=purchase.number,
        not_payable_detail=_why_not(purchase),
        choose_url=_choose_url(purchase),
    )


def _choose_url(purchase: Purchase) -> str | None:
    """Return the storefront's page of a checkout; an order has none."""
    saleor = get_settings().saleor(purchase.installation.api_url)
    if saleor is None or not saleor.checkout_url or not purchase.source.startswith(_CHECKOUT):
        return None
    return saleor.checkout_url.replace("{id}", quote(purchase.source, safe=""))


def _why_not(purchase: Purchase) -> str | None:
    if purchase.paid_reference:
        paid_by = find_payment(PLUGIN, reference=purchase.paid_reference)
        is_refunded = paid_by is not None and paid_by.refunded_amount >= paid_by.amount
        return _("it was paid, and the money was refunded") if is_refunded else _("it is paid")
    if purchase.costs is not None and (
        purchase.costs <= 0 or (purchase.part and _left_of(purchase, purchase.costs) <= 0)
    ):
        return _("nothing is left to be paid of it")
    return None


def _wanted(purchase: Purchase) -> Decimal:
    """Return the amount that a payment has to pay: money that is held already, such as an
    insufficient payment, is subtracted.
    """
    if not purchase.costs:
        return Decimal(purchase.amount)
    left = _left_of(purchase, purchase.costs)
    return left if left > 0 else Decimal(purchase.costs)


def _left_of(purchase: Purchase, costs: Decimal) -> Decimal:
    return left_to_pay(costs, parts_of(purchase.installation_id, purchase.source), as_told=True)


def paid(payment: Payment) -> PaidOutcome:
    """Mark a checkout or order paid, and queue the report that its transaction is charged."""
    purchase, told = find_purchase(payment.order.key, lock=True), transaction_of(payment)
    if purchase is None or told is None:
        return PaidOutcome.NOT_PAYABLE
    if purchase.paid_reference == payment.reference:
        return PaidOutcome.APPLIED
    # A cancellation covers the payments that existed then, and not one that was just about to
    # start.
    is_given_up = purchase.given_up_at is not None and _was_reported(payment, _NOT_CHARGED)
    if purchase.paid_reference or is_given_up or told.canceled_at:
        return PaidOutcome.NOT_PAYABLE
    if _wanted(purchase) > payment.amount:  # it may have changed since the order was described
        return PaidOutcome.UNDERPAID
    purchase.paid_reference = payment.reference
    purchase.save(update_fields=["paid_reference"])
    _report_charged(told, payment)
    return PaidOutcome.APPLIED


def _was_reported(payment: Payment, kind: str) -> bool:
    """Tell whether a report of this kind about a payment was ever queued. An abandoned report does
    not count.
    """
    reports = remote_events(PLUGIN, payment_id=payment.id, name=kind)
    return any(report.status is not OutboxStatus.ABANDONED for report in reports)


def review_opened(review: Review) -> None:
    """Queue the report of money that paid nothing, if Saleor has no report of it, and a message
    about money in doubt.
    """
    held = review.payment
    told = transaction_of(held) if held else None
    if held is None or told is None or held.status != PaymentStatus.PAID:
        return
    if review.reason in PAID_NOTHING and not _was_reported(held, CHARGED):
        _report_charged(told, held)
    if review.reason in _IN_DOUBT:
        _inform(told, held, f"{held.reference}-V{review.id}", review.message)


def _inform(told: Transaction, payment: Payment, reference: str, message: str) -> None:
    """Queue a message for staff. Its pspReference is its own: Saleor keeps one for each."""
    actions = _actions(find_payment(PLUGIN, payment_id=payment.id))
    reports.enqueue(told, _INFO, reference, payment.amount, message, actions, payment_id=payment.id)


def _actions(payment: PaymentState | None) -> list[str]:
    """Return the actions that staff have on a payment's transaction."""
    return ["REFUND"] if payment and payment.refundable_amount else []


def _report_charged(told: Transaction, payment: Payment) -> None:
    reports.enqueue(
        told,
        CHARGED,
        payment.reference,
        payment.amount,
        "",
        ["REFUND"],
        at=paid_at(payment),
        payment_id=payment.id,
    )


def unpaid(order: Order) -> None:
    """Queue the report that the order is unpaid, for each transaction that has waited for it."""
    purchase = find_purchase(order.key, lock=True)
    if purchase is None:
        return
    purchase.given_up_at = now()
    purchase.save(update_fields=["given_up_at"])
    for begun in purchase.transactions.select_related("purchase").order_by("pk"):
        payment = payment_of(begun)
        if (
            payment is None
            or payment.status == PaymentStatus.PAID
            or transaction_of(payment) != begun
        ):
            continue
        _report_not_charged(begun, payment, _("Nobody paid."))


def moved(event: Event) -> None:
    """Queue the report of money that is on its way, and of such money that did not come. Between
    them Saleor takes it for pending, and asks the shopper for nothing.
    """
    begins = event.name == _ON_ITS_WAY
    ends = event.name in _ENDED and "was_under_way" in event.fields
    payment = find_payment(PLUGIN, reference=event.reference) if begins or ends else None
    told = transaction_of(payment) if payment else None
    if payment is None or told is None:
        return
    with locked_order(PLUGIN, payment.order.key) as order:
        fresh = order.payment(payment.id)
        if fresh is None or fresh.status == PaymentStatus.PAID:
            return
        if ends and not fresh.is_open:
            _report_not_charged(told, fresh, _("The money did not come."))
        elif begins and fresh.is_processing:
            message = _("The money is on its way.")
            _report(told, _REQUESTED, fresh, message)


def _report_not_charged(told: Transaction, payment: PaymentState, message: str) -> None:
    """Queue the report that a payment ended unpaid, and before it why it was declined: a storefront
    shows the message of the first report of a failure, and Saleor keeps no other.
    """
    if declined_text(payment.id):
        _inform(told, payment, f"{payment.reference}-N", "")
    _report(told, _NOT_CHARGED, payment, message)


def _report(told: Transaction, kind: str, payment: Payment, message: str) -> None:
    """Queue the report of an event after which staff have no action."""
    reports.enqueue(
        told, kind, payment.reference, payment.amount, message, [], payment_id=payment.id
    )


def refund_changed(refund: Refund) -> None:
    """Queue the report of a refund's result, and before it that of the charge, if Saleor has no
    report of the refunded money.

    A refund with an unknown result is not reported: Saleor continues to wait for it. A failed
    refund that Saleor did not request is not reported either.
    """
    told, payment = (
        transaction_of(refund.payment),
        find_payment(PLUGIN, payment_id=refund.payment.id),
    )
    was_asked = AskedRefund.objects.filter(refund=int(refund.id)).exists()
    is_done = refund.status is RefundStatus.SUCCEEDED
    if (
        told is None
        or payment is None
        or not (is_done or (refund.status is RefundStatus.FAILED and was_asked))
    ):
        return
    if is_done and not _was_reported(payment, CHARGED):
        # Without it Saleor's balance would be negative, and another payment would have to offset
        # that.
        _report_charged(told, payment)
    kind, message = (
        ("REFUND_SUCCESS", _("Refunded.")) if is_done else ("REFUND_FAILURE", _("Not refunded."))
    )
    actions = _actions(payment)
    reference = refund_reference(payment.reference, refund.id)
    reports.enqueue(
        told,
        kind,
        reference,
        refund.amount,
        message,
        actions,
        payment_id=payment.id,
        refund_id=refund.id,
    )


def refund_reference(reference: str, refund_id: str) -> str:
    """Return a refund's own pspReference: Saleor counts refunds by it."""
    return f"{reference}-R{refund_id}"


def return_url(payment: Payment) -> str | None:
    """Return the storefront's address that the shopper came from, with the transaction id that it
    can query.
    """
    told = transaction_of(payment)
    if told is None or not told.return_url:
        return None
    parts = urlsplit(told.return_url)
    query = [*parse_qsl(parts.query, keep_blank_values=True), ("transaction", told.transaction_id)]
    return parts._replace(query=urlencode(query)).geturl()
