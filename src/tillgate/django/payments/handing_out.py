"""Payments that are open already: handed out again where another would take the money once more."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from tillgate.django.accounts import is_made_by, known_account_of
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment
from tillgate.django.payments.creating import CREATION_SECONDS, Choice, Started, as_started
from tillgate.django.reviews.opening import reported_paid
from tillgate.lifecycle import (
    PaymentStatus,
)
from tillgate.money import Money

_LEAVE_TIME: Final = timedelta(minutes=2)
"""A payment page that closes sooner is not handed out again, since the shopper could not finish;
for one that is open for minutes only a quarter of its time is enough.
"""
_WAIT_FOR_DUPLICATE_SECONDS: Final = 3.0
_YOUNG: Final = timedelta(seconds=10)
_LOST_AFTER: Final = timedelta(seconds=5)
"""A creation has ended, or was lost with its process, so long after the longest time that it may
take.
"""


def siblings_of(order: Order) -> list[Payment]:
    """Return the payments of an order, the newest first."""
    is_undelivered = Exists(_undelivered().filter(payment=OuterRef("pk")))
    found: list[Payment] = list(
        order.payments.annotate(is_undelivered=is_undelivered).order_by("-id")
    )
    for payment in found:
        payment.order = order
    return found


def duplicate_of(siblings: list[Payment], choice: Choice, price: Money) -> Payment | None:
    """Return the payment that makes another one needless.

    That is a paid one with an undelivered event (I4), or else the open one from the first click of
    a double click.
    """
    standing = [
        sibling for sibling in siblings if sibling.is_open or sibling.status == PaymentStatus.PAID
    ]
    # Check every open payment, the paid ones first: each has a live payment page.
    for payment in sorted(standing, key=lambda sibling: not vars(sibling)["is_undelivered"]):
        if payment.status == PaymentStatus.PAID:
            is_needed = vars(payment)["is_undelivered"] and payment.refunded_amount < payment.amount
        else:
            is_needed = _is_chosen(payment, choice, price) and (
                is_being_created(payment)
                or (is_page_live(payment) and not reported_paid([payment.pk]))
            )
        if is_needed:
            return payment
    return None


def _is_chosen(payment: Payment, choice: Choice, price: Money) -> bool:
    wanted = (choice.method, price, choice.alias)
    return (payment.method, payment.money, payment.account) == wanted and is_made_by(
        payment,
        choice.account,
    )


def _undelivered() -> QuerySet[OutboxEvent]:
    """Return the undelivered events about paid payments."""
    return OutboxEvent.objects.filter(kind=OutboxEventKind.PAYMENT_PAID, done_at__isnull=True)


def may_go_on(payment: Payment) -> bool:
    """Return whether the shopper may go to the payment page of a payment again.

    The page is live, the payment is not reported paid, the order is open and no other payment has
    paid it (I4), and the account can still query the payment.
    """
    if (
        not is_page_live(payment)
        or payment.order.closed_at
        or is_order_paid(payment.order)
        or reported_paid([payment.pk])
    ):
        return False
    return known_account_of(payment) is not None


def is_order_paid(order: Order) -> bool:
    """Return whether a payment has paid an order, though the event may be undelivered yet; a
    refunded one pays nothing.
    """
    if order.paid_by_id is not None:
        return True
    untold = _undelivered().filter(order=order).select_related("payment")
    return any(
        one.payment is not None and one.payment.refunded_amount < one.payment.amount
        for one in untold
    )


def is_page_live(payment: Payment) -> bool:
    """Tell whether a shopper can still finish on the payment page of a payment."""
    if payment.close_wanted_at or payment.page_closed_at:
        return False
    now, is_open_for = timezone.now(), payment.page_closes_at - payment.created_at
    is_in_time = now < payment.page_closes_at - min(_LEAVE_TIME, is_open_for / 4)
    return (
        payment.is_open and not payment.is_processing and bool(payment.payment_url) and is_in_time
    )


def is_being_created(payment: Payment) -> bool:
    """Tell whether another press may be creating a payment at this moment: it is young and has no
    address.

    A creation without an end, as at a hanging gateway, is young for as long as a creation can last.
    """
    if not payment.is_open or payment.payment_url:
        return False
    age = timezone.now() - payment.created_at
    if age < _YOUNG:
        return True
    account = known_account_of(payment)
    if (
        account is None
        or age >= timedelta(seconds=min(account.deadline_seconds, CREATION_SECONDS)) + _LOST_AFTER
    ):
        return False
    return not payment.timeline.filter(event="payment.outcome-unknown").exists()


def wait_for_creation(payment: Payment, seconds: float = 10.0) -> None:
    """Wait until the other press has created a payment, or could not, and no longer than `seconds`;
    the payment is then as it stands.
    """
    until = time.monotonic() + seconds
    while not payment.payment_url and payment.is_open and time.monotonic() < until:
        time.sleep(0.1)
        payment.refresh_from_db(fields=["payment_url", "status"])


def hand_out(duplicate: Payment) -> Started:
    """Return an open payment with its page, once the press that creates it has ended."""
    age = (timezone.now() - duplicate.created_at).total_seconds()
    # a creation that hangs may last longer
    wait_for_creation(duplicate, max(0.0, _WAIT_FOR_DUPLICATE_SECONDS - age))
    return as_started(duplicate, "the payment could not be started")
