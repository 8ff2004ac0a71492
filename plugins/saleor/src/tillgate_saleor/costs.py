"""The total of a checkout or order in its Saleor, compared with the money of Tillgate's payments
for it.

A cart, a price or a tax may change at any moment, also while the shopper is on the payment page.
Saleor sends the total in the bodies of its webhooks, and returns it to the query before a report.
Each time the plugin compares the paid amount with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from tillgate.hooks import PaymentStatus
from tillgate.shop import (
    MONEY_REASONS,
    PaymentState,
    ReviewReason,
    close_reviews,
    locked_order,
    money,
    open_review,
    open_reviews,
    order_states,
)
from tillgate_saleor import bodies
from tillgate_saleor.conf import PLUGIN, get_settings
from tillgate_saleor.models import Installation, Purchase, Transaction

PAID_NOTHING: Final = MONEY_REASONS - {ReviewReason.OVERPAID}
"""Review reasons for money that has paid nothing."""
_TOO_MUCH_OR_LITTLE: Final = MONEY_REASONS - {ReviewReason.PAID_NOT_PAYABLE}


def costs_of(installation: Installation, source: bodies.Source) -> Decimal | None:
    """Return the total of a checkout or order, without the money that other Apps hold for it.

    None if Saleor does not send it, or the shop accepts parts. The requested amount is weaker
    evidence: a caller of the storefront's API can send any amount.
    """
    saleor = get_settings().saleor(installation.api_url)
    if saleor is None or saleor.parts:
        return None
    known = [one.id for one in source.transactions]
    ours = Transaction.objects.filter(installation=installation, transaction_id__in=known)
    return source.costs_without(set(ours.values_list("transaction_id", flat=True)))


def parts_of(installation_id: int, source: str) -> list[Purchase]:
    """Return the parts in which a checkout or order is paid, the first one first: one, unless its
    total rose after it was paid.
    """
    return list(
        Purchase.objects.filter(installation=installation_id, source=source).order_by("part"),
    )


def _held(parts: Iterable[Purchase]) -> list[PaymentState]:
    """Return the paid payments of parts. `refundable_amount` leaves out refunds under way, and
    `held_amount` only finished ones.
    """
    orders = order_states(PLUGIN, [part.key for part in parts])
    return [
        payment
        for order in orders
        for payment in order.payments
        if payment.status == PaymentStatus.PAID
    ]


def _paying(held: Iterable[PaymentState], parts: Iterable[Purchase]) -> list[PaymentState]:
    """Return those of paid payments that have paid a part."""
    references = {part.paid_reference for part in parts}
    return [payment for payment in held if payment.reference in references]


def _kept(payments: Iterable[PaymentState]) -> Decimal:
    return money.total(payment.refundable_amount for payment in payments)


def kept_for(parts: Iterable[Purchase]) -> Decimal:
    """Return the amount that payments of parts hold, without refunds under way."""
    return _kept(_held(parts))


def paid_for(parts: list[Purchase]) -> Decimal:
    """Return the amount that paid parts, including money that was refunded since."""
    return money.total(payment.amount for payment in _paying(_held(parts), parts))


def left_to_pay(costs: Decimal, parts: Iterable[Purchase], *, as_told: bool = False) -> Decimal:
    """Return the unpaid amount of a checkout's or order's total; below zero if it holds more.

    `as_told` leaves out the payments without a delivered shop event.
    """
    return money.left_of(
        costs,
        [_kept(payment for payment in _held(parts) if not (as_told and payment.awaits_delivery))],
    )


def note_costs(installation: Installation, source: bodies.Source, name: str) -> Decimal | None:
    """Store and return the present total of a checkout or order, or None. Open a review if its paid
    money no longer matches.

    `name` is the one under which it is paid. Saleor itself shows staff an order with too much or
    too little money. It does not show a checkout, and such a checkout becomes no order.
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
    paying = [payment for payment in _paying(_held(parts), parts) if payment.refundable_amount]
    if not paying:
        return
    payment = paying[-1]
    with locked_order(PLUGIN, payment.order.key):
        held = _held(parts)  # read again, under the lock
        told = {
            review.payment_id
            for review in open_reviews(
                PLUGIN,
                order_keys=[part.key for part in parts],
                reasons=PAID_NOTHING,
            )
        }
        kept, paying = _kept(held), _paying(held, parts)
        if kept != money.total(one.held_amount for one in held):
            return
        if kept < costs:
            reason, before = ReviewReason.UNDERPAID, ReviewReason.OVERPAID
        elif _kept(one for one in held if one in paying or one.id not in told) > costs:
            reason, before = ReviewReason.OVERPAID, ReviewReason.UNDERPAID
        else:
            return
        over = open_reviews(PLUGIN, order_keys=[payment.order.key], reasons=[before])
        close_reviews(
            [review.id for review in over if review.payment_id == payment.id],
            f"Saleor wants {costs} by now",
        )
        message = (
            f"Payment {payment.reference}: {payment.currency} {kept} is held, and Saleor "
            f"wants {costs} by now."
        )
        open_review(payment.id, message, actor=PLUGIN, reason=reason)


def conclude(parts: list[Purchase]) -> None:
    """Resolve the reviews about money once the held amount equals Saleor's total, whichever payment
    staff refunded.

    Another refund would leave the order unpaid. This waits while a refund is under way, because
    that may fail. It leaves reviews open that appear from now on: a payment that comes at this
    moment may be one too many.
    """
    is_told = all(part.costs is not None for part in parts)
    for alike in (
        [parts] if parts and is_told else [[part] for part in parts if part.paid_reference]
    ):
        _conclude(alike)


def _conclude(parts: list[Purchase]) -> None:
    reviews = open_reviews(
        PLUGIN,
        order_keys=[part.key for part in parts],
        reasons=_TOO_MUCH_OR_LITTLE,
    )
    if not reviews:
        return
    wanted = parts[-1].costs if parts[-1].costs is not None else parts[-1].amount
    held = _held(parts)
    if _kept(held) == money.total(payment.held_amount for payment in held) == wanted:
        close_reviews([review.id for review in reviews], "Saleor holds as much as it wanted")
