"""The occasions of mails to the shopper: a payment is on its way or came to nothing, and money that
was refunded or paid went another way. Each is an event that Tillgate emits after its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tillgate import shop
from tillgate.hooks import DisputeStatus, Event
from tillgate_oscar import mail, orders
from tillgate_oscar.conf import PLUGIN


def follow(event: Event) -> None:
    """Queue the mails that an event of one of the shop's payments calls for."""
    is_ours = str(event.fields.get("order", "")).startswith(f"{PLUGIN}:")
    queue = _QUEUES.get(event.name)
    if not is_ours or not event.reference or queue is None:
        return
    if payment := shop.find_payment(PLUGIN, reference=event.reference):
        queue(payment, event)


def _tell_of_wait(payment: shop.PaymentState, event: Event) -> None:
    """Queue the mail that money is on its way, or that a voucher is to be paid, and the reminder of
    the voucher.

    A voucher that appears later contradicts the first mail, "You need not pay again": one more says
    what is to be paid.
    """
    most = 2 if event.name == _NEXT_STEP else 1
    with shop.locked_order(PLUGIN, payment.order.key) as ours:
        found, number = ours.payment(payment.id), ours.key
        if found is None or not found.is_processing:
            return
        told = shop.remote_events(PLUGIN, payment_id=payment.id, name=mail.WAITS_MAIL)
        if len(told) < most:
            mail.queue(mail.WAITS_MAIL, number, payment_id=payment.id)
        is_reminded = shop.remote_events(PLUGIN, payment_id=payment.id, name=mail.VOUCHER_MAIL)
        delay = mail.until_reminder(found.awaited) if found.awaited else None
        if delay and not is_reminded:
            mail.queue(mail.VOUCHER_MAIL, number, payment_id=payment.id, delay=delay)


def _ask_to_pay(payment: shop.PaymentState, event: Event) -> None:
    """Queue one reminder for the order of a failed or expired payment, so a shopper that left finds
    the way back.

    It waits for `remind_after_minutes`, or for a third of the time that is left to pay, and is
    dropped if the order is paid or cancelled before. Of a payment that was on its way the shopper
    hears immediately: the time to pay again has begun. While another payment is open the shopper
    may be using it, and a reminder could make them pay twice. If that one fails too, its reminder
    follows then.
    """
    order = orders.find(payment.order.key)
    if order is None or not orders.needs_payment(order, orders.state_of(order)):
        return
    was_under_way = event.fields.get("was_under_way") == "yes"
    # two payments may fail at the same moment
    with shop.locked_order(PLUGIN, payment.order.key) as ours:
        if ours.open_payments:
            return
        if was_under_way:
            mail.queue(mail.FAILED_MAIL, ours.key, payment_id=payment.id)
        elif not mail.is_queued(mail.REMINDER_MAIL, ours.key):
            delay = mail.reminder_delay(ours)
            mail.queue(mail.REMINDER_MAIL, ours.key, payment_id=payment.id, delay=delay)


def _tell_of_loss(payment: shop.PaymentState, event: Event) -> None:
    """Queue one mail for each refund that came back, and for each dispute that was lost."""
    number, about = payment.order.key, {"payment_id": payment.id}
    with shop.locked_order(PLUGIN, number):
        if event.fields.get("reason") == shop.ReviewReason.REFUND_RETURNED:
            refund_id = str(event.fields.get("refund", ""))
            told = shop.remote_events(PLUGIN, payment_id=payment.id, name=mail.RETURNED_MAIL)
            if refund_id not in {one.refund.id for one in told if one.refund}:
                mail.queue(mail.RETURNED_MAIL, number, refund_id=refund_id, **about)
        elif event.fields.get("reason") == shop.ReviewReason.DISPUTED:
            told = shop.remote_events(PLUGIN, payment_id=payment.id, name=mail.DISPUTE_MAIL)
            known = {one.data.get("dispute") for one in told}
            for one in payment.disputes:
                if one.status is DisputeStatus.LOST and one.dispute_no not in known:
                    data = {"dispute": one.dispute_no, "amount": str(one.amount)}
                    mail.queue(mail.DISPUTE_MAIL, number, data=data, **about)


_NEXT_STEP: Final = "payment.next-step"
_QUEUES: Final[Mapping[str, Callable[[shop.PaymentState, Event], None]]] = {
    "payment.processing": _tell_of_wait,
    _NEXT_STEP: _tell_of_wait,
    "payment.failed": _ask_to_pay,
    "payment.closed": _ask_to_pay,
    "payment.expired": _ask_to_pay,
    "payment.force-expired": _ask_to_pay,
    "review.opened": _tell_of_loss,
}
