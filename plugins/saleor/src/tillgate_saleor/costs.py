"""The total of a checkout or order in its Saleor, compared with the money of Tillgate's payments for it.

A cart, a price or a tax may change at any moment, also while the shopper is on the payment page. Saleor sends the total in the bodies of
its webhooks, and returns it to the query before a report. Each time the plugin compares the paid amount with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from django.db.models import Exists, OuterRef

from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment, Review
from tillgate.django.operations.locking import locked_order
from tillgate.django.operations.refunds import refundable
from tillgate.django.operations.reviews import HELD_REASONS, open_review, settle
from tillgate.lifecycle import PaymentStatus, ReviewReason
from tillgate.wire import money
from tillgate_saleor import bodies
from tillgate_saleor.conf import get_settings
from tillgate_saleor.models import Installation, Purchase, Transaction
from tillgate_saleor.plugin import PLUGIN

__all__ = ["PAID_NOTHING", "conclude", "costs_of", "kept_for", "left_to_pay", "note_costs", "paid_for", "parts_of"]

PAID_NOTHING: Final = HELD_REASONS - {ReviewReason.OVERPAID}
"""Review reasons for money that has paid nothing."""
_TOO_MUCH_OR_LITTLE: Final = HELD_REASONS - {ReviewReason.PAID_NOT_PAYABLE}


def costs_of(installation: Installation, source: bodies.Source) -> Decimal | None:
    """Return the total of a checkout or order in dollars, without the money that other Apps hold for it.

    None if Saleor does not send it, or the shop accepts parts. The requested amount is weaker evidence: a caller of the storefront's API
    can send any amount.
    """
    saleor = get_settings().saleor(installation.api_url)
    if saleor is None or saleor.parts:
        return None
    known = [one.id for one in source.transactions]
    ours = Transaction.objects.filter(installation=installation, transaction_id__in=known)
    return source.costs_without(set(ours.values_list("transaction_id", flat=True)))


def parts_of(installation_id: int, source: str) -> list[Purchase]:
    """Return the parts in which a checkout or order is paid, the first one first: one, unless its total rose after it was paid."""
    return list(Purchase.objects.filter(installation=installation_id, source=source).order_by("part"))


@dataclass(frozen=True, slots=True)
class _Held:
    """A paid payment: its dollars without completed refunds (`left`), and those also without queued refunds (`kept`)."""

    payment: Payment
    left: Decimal
    kept: Decimal
    has_paid: bool
    """Whether it has paid a part."""
    is_told: bool
    """Whether its shop event was delivered."""


def _held(parts: Iterable[Purchase]) -> list[_Held]:
    by_key = {part.key: part for part in parts}
    telling = OutboxEvent.objects.filter(payment=OuterRef("pk"), kind=OutboxEventKind.PAYMENT_PAID, done_at__isnull=True)
    paid = Payment.objects.filter(order__plugin=PLUGIN, order__key__in=by_key, status=PaymentStatus.PAID)
    payments = paid.select_related("order").annotate(is_being_told=Exists(telling)).order_by("pk")
    return [
        _Held(
            payment,
            left=money.left_of(payment.amount, [payment.refunded_amount]),
            kept=refundable(payment),
            has_paid=by_key[payment.order.key].paid_reference == payment.reference,
            is_told=not vars(payment)["is_being_told"],
        )
        for payment in payments
    ]


def kept_for(parts: Iterable[Purchase]) -> Decimal:
    """Return the dollars that payments of parts hold, without refunds under way."""
    return money.total(one.kept for one in _held(parts))


def paid_for(parts: Iterable[Purchase]) -> Decimal:
    """Return the dollars that paid parts, including money that was refunded since."""
    return money.total(one.payment.amount for one in _held(parts) if one.has_paid)


def left_to_pay(costs: Decimal, parts: Iterable[Purchase], *, as_told: bool = False) -> Decimal:
    """Return the unpaid dollars of a checkout's or order's total; below zero if it holds more.

    `as_told` leaves out the payments without a delivered shop event.
    """
    return money.left_of(costs, [one.kept for one in _held(parts) if one.is_told or not as_told])


def note_costs(installation: Installation, source: bodies.Source, name: str) -> Decimal | None:
    """Store and return the present total of a checkout or order, or None. Open a review if its paid money no longer matches.

    `name` is the one under which it is paid. Saleor itself shows staff an order with too much or too little money. It does not show a
    checkout, and such a checkout becomes no order.
    """
    costs = costs_of(installation, source)
    if costs is None:
        return None
    parts = parts_of(installation.pk, name)
    for part in parts:
        if part.costs != costs:
            Purchase.objects.filter(pk=part.pk).update(costs=costs)
            part.costs = costs
    conclude(parts)
    if source.typename == "Checkout" and any(part.paid_reference for part in parts):
        _tell_if_it_does_not_fit(costs, parts)
    return costs


def _tell_if_it_does_not_fit(costs: Decimal, parts: list[Purchase]) -> None:
    """Open a review if the paid money is too little, or exceeds the amount in open reviews.

    Open none while a refund is under way, and none for entirely refunded money: that case is over.
    """
    paying = [one.payment for one in _held(parts) if one.has_paid and one.kept]
    if not paying:
        return
    payment = paying[-1]
    with locked_order(payment.order_id) as order:
        held = _held(parts)  # read again, under the lock
        matters = Review.objects.filter(payment__in=[one.payment.pk for one in held], reason__in=PAID_NOTHING, resolved_at__isnull=True)
        told = set(matters.values_list("payment", flat=True))
        kept = money.total(one.kept for one in held)
        if kept != money.total(one.left for one in held):
            return
        if kept < costs:
            reason, before = ReviewReason.UNDERPAID, ReviewReason.OVERPAID
        elif money.total(one.kept for one in held if one.has_paid or one.payment.pk not in told) > costs:
            reason, before = ReviewReason.OVERPAID, ReviewReason.UNDERPAID
        else:
            return
        settle(Review.objects.filter(payment=payment, reason=before), f"Saleor wants USD {costs} by now")
        message = f"Payment {payment.reference}: USD {kept} is held, and Saleor wants USD {costs} by now."
        open_review(reason, message, "saleor", order=order, payment=payment, account=payment.account)


def conclude(parts: list[Purchase]) -> None:
    """Resolve the reviews about money once the held amount equals Saleor's total, whichever payment staff refunded.

    Another refund would leave the order unpaid. This waits while a refund is under way, because that may fail. It leaves reviews open that
    appear from now on: a payment that comes at this moment may be one too many.
    """
    is_told = all(part.costs is not None for part in parts)
    for alike in [parts] if parts and is_told else [[part] for part in parts if part.paid_reference]:
        _conclude(alike)


def _conclude(parts: list[Purchase]) -> None:
    orders = Order.objects.filter(plugin=PLUGIN, key__in=[part.key for part in parts])
    matters = Review.objects.filter(order__in=orders, reason__in=_TOO_MUCH_OR_LITTLE, resolved_at__isnull=True)
    numbers = list(matters.values_list("pk", flat=True))
    if not numbers:
        return
    wanted = parts[-1].costs if parts[-1].costs is not None else parts[-1].amount
    held = _held(parts)
    if money.total(one.kept for one in held) == money.total(one.left for one in held) == wanted:
        settle(Review.objects.filter(pk__in=numbers), "Saleor holds as much as it wanted")
