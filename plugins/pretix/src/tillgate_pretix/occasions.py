"""The occasions of mails about slow money, refunds that came back and lost disputes. Each is an
event that Tillgate emits after its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from tillgate import shop
from tillgate.hooks import DisputeStatus, Event, RemoteEvent
from tillgate_pretix import mail, orders, refunds
from tillgate_pretix.configuration import PLUGIN

_REMINDER: Final = "voucher-reminder"
"""The name of the remote event that waits until a voucher ends soon."""
_REMINDED_BEFORE: Final = timedelta(days=1)


def follow(event: Event) -> None:
    """Mail what an event of one of pretix's payments calls for."""
    is_ours = str(event.fields.get("order", "")).startswith(f"{PLUGIN}:")
    tell = _MAILS.get(event.name)
    if not is_ours or not event.reference or tell is None:
        return
    payment = shop.find_payment(PLUGIN, reference=event.reference)
    if payment is None:
        return
    # by now it may have moved on
    with shop.locked_order(PLUGIN, payment.order.key) as bill, orders.found(bill.key) as order:
        found = bill.payment(payment.id)
        if order is not None and found is not None:
            tell(order, bill, found, event)


def deliver(outbox_event: RemoteEvent) -> str | None:
    """Remind of a voucher, or apply a decision of staff about a refund; return why nothing was
    mailed.
    """
    if outbox_event.name != _REMINDER:
        refunds.settle(outbox_event)
        return None
    key, payment = outbox_event.order.key, outbox_event.payment
    with shop.locked_order(PLUGIN, key) as bill, orders.found(key) as order:
        found = bill.payment(payment.id) if payment else None
        awaited = found.awaited if found and _is_awaited(order, found) else None
        if found is None or awaited is None or not awaited.is_voucher or awaited.is_over:
            return "not mailed: the voucher is not awaited any more"
        if delay := _until_reminder(awaited):
            shop.enqueue_remote(PLUGIN, key, _REMINDER, payment_id=found.id, delay=delay)
            return "not mailed: the voucher ends later by now"
        mail.remind_of_voucher(order, found)
    return None


def _tell_of_wait(
    order: Any,
    bill: shop.OrderState,
    payment: shop.PaymentState,
    event: Event,
) -> None:
    if not _is_awaited(order, payment):
        return
    mail.tell_of_wait(order, payment)
    delay = _until_reminder(payment.awaited) if payment.awaited else None
    if (
        delay
        and mail.wants(order, mail.VOUCHER_ENDS)
        and not shop.remote_events(PLUGIN, payment_id=payment.id, name=_REMINDER)
    ):
        shop.enqueue_remote(PLUGIN, bill.key, _REMINDER, payment_id=payment.id, delay=delay)


def _tell_of_failure(
    order: Any,
    bill: shop.OrderState,
    payment: shop.PaymentState,
    event: Event,
) -> None:
    """Mail that money on its way has not arrived. Of a payment page that nobody finished pretix
    mails later.
    """
    # a shopper who is using another payment must not pay twice
    is_left = not bill.open_payments and orders.why_not(order) is None
    if is_left and event.fields.get("was_under_way") == "yes":
        mail.tell_of_failure(order, payment, orders.kept_until(order, bill))


def _tell_of_loss(
    order: Any,
    bill: shop.OrderState,
    payment: shop.PaymentState,
    event: Event,
) -> None:
    if event.fields.get("reason") == shop.ReviewReason.REFUND_RETURNED:
        if refund := shop.find_refund(PLUGIN, str(event.fields.get("refund", ""))):
            mail.tell_of_returned_refund(order, refund)
    elif event.fields.get("reason") == shop.ReviewReason.DISPUTED:
        for dispute in payment.disputes:
            if dispute.status is DisputeStatus.LOST:
                mail.tell_of_lost_dispute(order, payment, dispute)


def _is_awaited(order: Any, payment: shop.PaymentState) -> bool:
    """Tell whether a payment's money is on its way, or its voucher to be paid, and pays the
    order.
    """
    return order is not None and payment.is_processing and orders.why_not(order) is None


def _until_reminder(awaited: shop.Awaited) -> timedelta | None:
    """Return how long the reminder of a voucher waits, or None where there is none."""
    if awaited.until is None:
        return None
    delay = awaited.until - _REMINDED_BEFORE - shop.now()
    return delay if delay > timedelta(0) else None


_MAILS: Final[Mapping[str, Callable[[Any, shop.OrderState, shop.PaymentState, Event], None]]] = {
    "payment.processing": _tell_of_wait,
    "payment.next-step": _tell_of_wait,
    "payment.failed": _tell_of_failure,
    "payment.closed": _tell_of_failure,
    "payment.expired": _tell_of_failure,
    "payment.force-expired": _tell_of_failure,
    "review.opened": _tell_of_loss,
}
