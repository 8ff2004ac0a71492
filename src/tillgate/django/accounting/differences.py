"""The rules of the ledger check. Pure: rows and answers in, differences out; no network, and no
query of its own.

`lifecycle.interpret` judges an answer of the gateway as everywhere: each change or review that
would follow is a difference. Tillgate's own rows are judged one order at a time, against the
operations' promise to write them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

from tillgate import money
from tillgate.django import dates
from tillgate.django.models import (
    NOTHING,
    Order,
    OutboxEvent,
    OutboxEventKind,
    Payment,
    Refund,
    Review,
)
from tillgate.django.orders.timeline import ACCEPTED, FORCE_EXPIRE, IMPORTED
from tillgate.django.reviews.closing import ITSELF
from tillgate.django.reviews.opening import HELD_REASONS, open_reviews_of
from tillgate.hooks import OrderDescription, PaidOutcome
from tillgate.lifecycle import (
    BOUND_REFUND_STATUSES,
    OPEN_PAYMENT_STATUSES,
    Answer,
    Found,
    Inconclusive,
    NotFound,
    PaymentFacts,
    PaymentStatus,
    RefundStatus,
    ReviewReason,
    in_context,
    interpret,
    is_forgotten,
)
from tillgate.money import Money


class DifferenceKind(StrEnum):
    """The kinds of differences. A review that `interpret` would open has the name of its
    `ReviewReason` instead.
    """

    PAID_THERE = "paid-there"
    """The gateway holds it as paid, and the ledger does not."""
    OPEN_HERE = "open-here"
    """It is over at the gateway without being paid, and the ledger still waits."""
    UNKNOWN_THERE = "unknown-there"
    """The gateway does not know a payment that it has created."""
    NOT_ASKED = "not-asked"
    """The gateway, or the shop, could not be asked: whether there is a difference is not known."""
    SHOP_WAITS = "shop-waits"
    """The order is paid, and the shop would still take money for it."""
    SHOP_UNAWARE = "shop-unaware"
    """The order is paid, and the shop does not know it."""
    NOT_DELIVERED = "not-delivered"
    """The event about a paid payment or a refund was not delivered to the shop."""
    NOT_RECORDED = "not-recorded"
    """The shop has applied a payment, and the ledger does not hold the order to be paid by it."""
    NOT_SHOWN = "not-shown"
    """A paid payment was not applied to its order, and there is no review."""
    DELIVERED_UNPAID = "delivered-unpaid"
    """An order is paid by a payment that is not paid, or is another order's."""
    REFUNDS_EXCEED = "refunds-exceed"
    """Refunds add up to more than was paid."""
    TIMELINE = "timeline"
    """The timeline's last status is not the row's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference, in words for staff: Tillgate's statement, that of the other side, and the
    remedy.

    `told` names the open review about it, and is empty without one. `reference` and `order` are
    empty where it is about neither.
    """

    kind: DifferenceKind | ReviewReason
    reference: str
    order: str
    here: str
    there: str
    remedy: str
    told: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLedger:
    """Everything in the ledger about an order, each list in the order in which it was written.

    `last_events` holds the event of the last timeline entry that tells a status, by payment and by
    refund; empty where there is none.
    """

    order: Order
    payments: Sequence[Payment]
    refunds: Sequence[Refund]
    outbox_events: Sequence[OutboxEvent]
    reviews: Sequence[Review]
    last_events: Mapping[Payment | Refund, str]


_R: Final = RefundStatus
STATUS_OF_EVENT: Final[Mapping[str, str]] = {
    **{f"payment.{status}": status.value for status in PaymentStatus},
    ACCEPTED: PaymentStatus.PAID.value,
    IMPORTED: PaymentStatus.PAID.value,
    FORCE_EXPIRE: PaymentStatus.EXPIRED.value,
    **{f"refund.{status}": status.value for status in _R},
    "refund.external": _R.SUCCEEDED.value,
}
"""The timeline's events that tell a status, and which."""

_TOLD_TO_SHOP: Final = frozenset({_R.SUCCEEDED, _R.FAILED, _R.UNKNOWN})
_REFUNDS_IN_DOUBT: Final = {
    ReviewReason.REFUND_CONTRADICTED: "the gateway says that it was done",
    ReviewReason.REFUND_RETURNED: "the money came back from the shopper's bank",
    ReviewReason.REFUND_LATE: "the gateway has accepted it, and has not finished it",
}
"""The gateway's statement about a refund with an open review."""
_KNOWN_THERE: Final = frozenset({PaymentStatus.PENDING, PaymentStatus.PAID})

_ASK_NOW: Final = "“Poll now” in the admin"
_SETTLE: Final = "settle it under “needs review” in the admin"
_TELL_US: Final = (
    "no run of the software does this: see which row was changed by hand, or tell "
    "Tillgate's authors"
)


def _difference(
    kind: DifferenceKind | ReviewReason,
    payment: Payment,
    here: str,
    there: str,
    remedy: str,
    reviews: Iterable[Review] = (),
) -> Difference:
    """Return a difference; its `reviews` give the value of `told`, and then the remedy."""
    told = ""
    for review in reviews:
        if review.resolved_at is None:
            told, remedy = f"needs review since {_time(review.opened_at)}", _SETTLE
            break
        if review.resolved_by != ITSELF:
            told = f"{review.resolved_by} resolved it: {review.resolution}"
    if told and remedy != _SETTLE:
        remedy = f"nothing, if that still holds; otherwise: {remedy}"
    return Difference(
        kind=kind,
        reference=payment.reference,
        order=str(payment.order),
        here=here,
        there=there,
        remedy=remedy,
        told=told,
    )


def _shown(payment: Payment) -> str:
    number = f", transaction {payment.transaction_no}" if payment.transaction_no else ""
    return f"{payment.status}, {payment.currency} {payment.amount}{number}"


def _time(moment: datetime) -> str:
    return f"{dates.local(moment):%Y-%m-%d %H:%M:%S %Z}".rstrip()


# The gateway --------------------------------------------------------------------------------------


def compare_with_gateway(
    payment: Payment,
    facts: PaymentFacts,
    answer: Answer,
    reviews: Iterable[Review] = (),
) -> Difference | None:
    """Return where a payment and the gateway's answer about it differ. An answer that is
    inconclusive differs from nothing.
    """
    answer = in_context(facts, open_reviews_of(reviews), answer)
    kind = _kind(facts, answer)
    if kind is None:
        return None
    reason = ReviewReason.PAYMENT_UNKNOWN if kind is DifferenceKind.UNKNOWN_THERE else kind
    about = [review for review in reviews if review.reason == reason]
    return _difference(
        kind,
        payment,
        _shown(payment),
        _said(answer),
        _what_to_do(kind, payment),
        about,
    )


def _kind(facts: PaymentFacts, answer: Answer) -> DifferenceKind | ReviewReason | None:
    if isinstance(answer, Inconclusive):
        return None
    was_known = facts.transaction_no or facts.status in _KNOWN_THERE
    if (
        isinstance(answer, NotFound)
        and (was_known or answer.was_reported_paid)
        and not is_forgotten(facts, answer)
    ):
        return DifferenceKind.UNKNOWN_THERE
    decision = interpret(facts, (), answer)
    if decision.review:
        return decision.review
    if decision.status is PaymentStatus.PAID and facts.status is not PaymentStatus.PAID:
        return DifferenceKind.PAID_THERE
    if facts.status in OPEN_PAYMENT_STATUSES and decision.status not in OPEN_PAYMENT_STATUSES:
        return DifferenceKind.OPEN_HERE
    return None


def _said(answer: Answer) -> str:
    if not isinstance(answer, Found):
        return "the gateway knows no such reference"
    found = answer.transaction
    amount = (
        f"{found.currency or 'no currency'} "
        f"{'without an amount' if found.amount is None else found.amount}"
    )
    is_shown = found.settle_currency != found.currency and (
        found.settle_currency or answer.settles_in_currency
    )
    settled = f", settled in {found.settle_currency or 'nothing'}" if is_shown else ""
    number = f"transaction {found.transaction_no}" if found.transaction_no else "no transactionNo"
    return f"the gateway says {found.status_text!r}, {amount}{settled}, {number}"


def _what_to_do(kind: DifferenceKind | ReviewReason, payment: Payment) -> str:
    if kind in (DifferenceKind.PAID_THERE, DifferenceKind.OPEN_HERE):
        worker = (
            f"looks next at {_time(payment.next_poll_at)}"
            if payment.next_poll_at
            else "does not look any more"
        )
        return f"{_ASK_NOW}; the worker {worker}"
    if kind is DifferenceKind.UNKNOWN_THERE:
        return (
            "run `manage.py tillgate doctor`: is it still the same merchant? A gateway may "
            "also forget old payments"
        )
    return f"{_ASK_NOW}: that puts it under “needs review”"


# The shop -----------------------------------------------------------------------------------------


def is_held_as_paid(ledger: OrderLedger) -> bool:
    """Return whether the shop must hold the order to be paid. It may sell an entirely refunded
    order again.
    """
    payment = ledger.order.paid_by
    if payment is None:
        return False
    return not _is_refunded(ledger, payment)


def _is_refunded(ledger: OrderLedger, payment: Payment) -> bool:
    """Tell whether all of a payment was refunded."""
    refunded_amount = money.total(
        one.amount
        for one in ledger.refunds
        if one.payment_id == payment.pk and one.status == _R.SUCCEEDED
    )
    return bool(refunded_amount >= payment.amount)


def compare_with_shop(ledger: OrderLedger, described: OrderDescription | None) -> Difference | None:
    """Return where the shop denies that an order is paid which it must hold to be paid, or has
    cancelled it while its money is held.
    """
    payment = ledger.order.paid_by
    assert payment is not None
    here = f"the order is paid: {_shown(payment)}"
    if described is None:
        there, remedy = (
            "the shop knows no such order",
            "find out in the shop what became of it; the money can be refunded in the admin",
        )
        return _difference(DifferenceKind.SHOP_UNAWARE, payment, here, there, remedy)
    if described.payable:
        there, remedy = (
            f"the shop still waits for {described.currency} {described.amount}",
            "find out in the shop who took it back, and mark the order paid",
        )
        return _difference(DifferenceKind.SHOP_WAITS, payment, here, there, remedy)
    if described.is_cancelled and (held := _held_amount(ledger, payment)):
        there = f"the shop has cancelled it, and {Money(held, payment.currency)} is still held"
        reason = ReviewReason.CANCELLED_HELD
        about = [
            one for one in ledger.reviews if one.payment_id == payment.pk and one.reason == reason
        ]
        remedy = "refund it, or note in its review why you keep it"
        return _difference(reason, payment, here, there, remedy, about)
    return None


def _held_amount(ledger: OrderLedger, payment: Payment) -> Decimal:
    """Return the money of a payment that no refund has taken or will take."""
    bound = [
        one.amount
        for one in ledger.refunds
        if one.payment_id == payment.pk and one.status in BOUND_REFUND_STATUSES
    ]
    return max(NOTHING, money.left_of(payment.amount, bound))


# Our own books ------------------------------------------------------------------------------------


def examine(ledger: OrderLedger) -> Iterator[Difference]:
    """Yield where the ledger about an order differ among themselves."""
    payer = ledger.order.paid_by
    if payer is not None and payer.order_id != ledger.order.pk:
        here, there = (
            f"order {ledger.order} is paid by it",
            f"it is a payment of order {payer.order}",
        )
        yield _difference(DifferenceKind.DELIVERED_UNPAID, payer, here, there, _TELL_US)
    for payment in ledger.payments:
        yield from _examine_timeline(ledger, payment, payment, _shown(payment))
        yield from _examine_outbox_event(ledger, payment)
        yield from _examine_refunds(ledger, payment)


def _examine_timeline(
    ledger: OrderLedger,
    row: Payment | Refund,
    payment: Payment,
    here: str,
) -> Iterator[Difference]:
    event = ledger.last_events[row]
    if STATUS_OF_EVENT.get(event) != row.status:
        there = f"the last entry of its timeline is {event}" if event else "its timeline is empty"
        yield _difference(DifferenceKind.TIMELINE, payment, here, there, _TELL_US)


def _examine_outbox_event(ledger: OrderLedger, payment: Payment) -> Iterator[Difference]:
    """Return whether exactly the right payment was delivered as paid, and each other paid one has a
    review (I2, I3, I4).
    """
    outbox_events = [
        one
        for one in ledger.outbox_events
        if one.kind == OutboxEventKind.PAYMENT_PAID and one.payment_id == payment.pk
    ]
    is_applied = any(one.done_at and one.outcome == PaidOutcome.APPLIED for one in outbox_events)
    is_payer = ledger.order.paid_by_id == payment.pk
    held = [
        one for one in ledger.reviews if one.payment_id == payment.pk and one.reason in HELD_REASONS
    ]
    here = _shown(payment)
    if payment.status != PaymentStatus.PAID:
        if is_applied or is_payer:
            there = "the shop has applied it" if is_applied else "the order is paid by it"
            yield _difference(DifferenceKind.DELIVERED_UNPAID, payment, here, there, _TELL_US)
    elif is_payer != is_applied:
        there = "the shop has applied its event" if is_applied else "the shop has never applied it"
        here += (
            ", and the order is paid by it"
            if is_payer
            else f", and the order is paid by {ledger.order.paid_by or 'nothing'}"
        )
        kind = DifferenceKind.NOT_RECORDED if is_applied else DifferenceKind.NOT_DELIVERED
        yield _difference(kind, payment, here, there, _TELL_US)
    elif is_payer:
        return
    elif waiting := next((one for one in outbox_events if one.done_at is None), None):
        yield _waiting(ledger, payment, waiting, here, held)
    elif not outbox_events:
        yield _difference(
            DifferenceKind.NOT_DELIVERED,
            payment,
            here,
            "nothing was ever queued to tell the shop",
            _TELL_US,
        )
    elif not held and not _is_refunded(ledger, payment):
        there = (
            f"the shop has not applied its event ({outbox_events[-1].outcome}), and no person knows"
        )
        yield _difference(
            DifferenceKind.NOT_SHOWN,
            payment,
            here,
            there,
            "refund it in the admin, or settle it in the shop",
        )


def _waiting(
    ledger: OrderLedger,
    payment: Payment,
    outbox_event: OutboxEvent,
    here: str,
    also: Sequence[Review] = (),
) -> Difference:
    there = (
        f"the shop was not told in {outbox_event.attempts} attempts: {outbox_event.fault[:200]}"
        if outbox_event.attempts
        else "the event is not delivered to the shop yet"
    )
    due = f" at {_time(outbox_event.due_at)}" if outbox_event.due_at else ""
    remedy = f"repair the shop's code or its network, if it is that; the worker tries again{due}"
    told = [one for one in ledger.reviews if one.outbox_event_id == outbox_event.pk]
    return _difference(DifferenceKind.NOT_DELIVERED, payment, here, there, remedy, [*told, *also])


def _examine_refunds(ledger: OrderLedger, payment: Payment) -> Iterator[Difference]:
    refunds = [refund for refund in ledger.refunds if refund.payment_id == payment.pk]
    bound = money.total(
        refund.amount for refund in refunds if refund.status in BOUND_REFUND_STATUSES
    )
    paid = payment.amount if payment.status == PaymentStatus.PAID else NOTHING
    if bound > paid:
        here = (
            f"refunds of {Money(bound, payment.currency)}: refunded, on their way or of "
            "unknown outcome"
        )
        yield _difference(
            DifferenceKind.REFUNDS_EXCEED,
            payment,
            here,
            f"the payment is {_shown(payment)}",
            _TELL_US,
        )
    for refund in refunds:
        here = f"refund of {Money(refund.amount, payment.currency)}: {refund.status}"
        yield from _examine_timeline(ledger, refund, payment, here)
        if refund.status == _R.UNKNOWN:
            there = "the gateway has not said whether it was done"
            about = [
                one
                for one in ledger.reviews
                if one.refund_id == refund.pk and one.reason == ReviewReason.REFUND_UNKNOWN
            ]
            yield _difference(
                ReviewReason.REFUND_UNKNOWN,
                payment,
                here,
                there,
                "look at the gateway's back office",
                about,
            )
        for reason, there in _REFUNDS_IN_DOUBT.items():
            if about := [
                one
                for one in ledger.reviews
                if one.refund_id == refund.pk and one.reason == reason and not one.resolved_at
            ]:
                yield _difference(reason, payment, here, there, _SETTLE, about)
        if refund.status in _TOLD_TO_SHOP:
            yield from _examine_refund_outbox_event(ledger, payment, refund, here)


def _examine_refund_outbox_event(
    ledger: OrderLedger,
    payment: Payment,
    refund: Refund,
    here: str,
) -> Iterator[Difference]:
    about = [
        one
        for one in ledger.outbox_events
        if one.kind == OutboxEventKind.REFUND_CHANGED and one.refund_id == refund.pk
    ]
    outbox_event = next((one for one in about if one.data.get("status") == refund.status), None)
    if outbox_event is None:
        yield _difference(
            DifferenceKind.NOT_DELIVERED,
            payment,
            here,
            "nothing was ever queued to tell the shop",
            _TELL_US,
        )
    elif outbox_event.done_at is None:
        yield _waiting(ledger, payment, outbox_event, here)


def duplicates(payment: Payment, duplicate: Payment, reviews: Iterable[Review]) -> Difference:
    """Return the difference between two payments that are paid by one transaction of the
    gateway.
    """
    here = f"{_shown(payment)}, as is payment {duplicate.reference} of order {duplicate.order}"
    there, remedy = (
        "a number stands for one transaction",
        "compare both with the gateway's back office",
    )
    return _difference(ReviewReason.DUPLICATE_TRANSACTION_NO, payment, here, there, remedy, reviews)
