"""Mail to the shopper. Tillgate sends it outside any transaction and retries until the mail server
accepts it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.conf import settings as project
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import override
from oscar.core.loading import get_class

from tillgate import shop
from tillgate.hooks import Refund, RemoteEvent, Review
from tillgate_oscar import orders
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.confirmation import method_of, name_language, name_method
from tillgate_oscar.stock import RELEASED

_log = logging.getLogger("oscar.checkout")

PAID_MAIL: Final = "order-paid"
REMINDER_MAIL: Final = "order-waits"
LINK_MAIL: Final = "payment-link"
CANCELLED_MAIL: Final = "cancelled"
PAID_TWICE_MAIL: Final = "paid-twice"
REFUND_MAIL: Final = "refunded"
WAITS_MAIL: Final = "payment-waits"
VOUCHER_MAIL: Final = "voucher-reminder"
FAILED_MAIL: Final = "payment-failed"
RETURNED_MAIL: Final = "refund-returned"
DISPUTE_MAIL: Final = "dispute-lost"
EVENT_TYPES: Final = {
    "TILLGATE_ORDER_WAITS": "Order waits for payment",
    "TILLGATE_PAID_TWICE": "Order paid twice",
    "TILLGATE_CANCELLED": "Paid order cancelled",
    "TILLGATE_REFUNDED": "Payment refunded",
    "TILLGATE_PAYMENT_WAITS": "Payment is on its way, or voucher to pay",
    "TILLGATE_PAYMENT_FAILED": "Payment on its way has failed",
    "TILLGATE_REFUND_RETURNED": "Refund came back",
    "TILLGATE_DISPUTE_LOST": "Dispute lost",
}
"""Our communication event types: Oscar's codes and their names for the dashboard. The templates are
`oscar/communication/emails/commtype_<code>_*`."""
_DROPPED: Final = "dropped"
"""The key in the data of a mail that Tillgate dropped, because the order waits again or was
cancelled before the mail was sent.
"""
REMINDED_BEFORE: Final = timedelta(days=1)
"""The time before the end of a voucher at which the shopper is reminded of it."""


def confirm(number: str, payment_id: str | None) -> None:
    """Queue Oscar's mail about an order that is paid, through Tillgate or by hand. Call it under
    the order's lock.

    The shopper gets it once, even if staff change the status back and forth. Any payment knows the
    shopper's language.
    """
    if not is_queued(PAID_MAIL, number):
        queue(PAID_MAIL, number, payment_id=payment_id)


def confirm_again(number: str) -> None:
    """Queue Oscar's mail about a paid order outside an event, under the order's lock."""
    with shop.locked_order(PLUGIN, number) as ours:
        confirm(number, newest_payment(ours))


def newest_payment(ours: shop.OrderState) -> str | None:
    """Return the id of an order's newest payment, or None if none has started."""
    return ours.payments[-1].id if ours.payments else None


def is_queued(name: str, number: str) -> bool:
    """Return whether a mail of an order was queued, and not dropped since."""
    return any(
        _DROPPED not in queued.data
        for queued in shop.remote_events(PLUGIN, order_key=number, name=name)
    )


def queue(name: str, number: str, **about: Any) -> None:
    """Queue a mail about an order, if the shop wants that kind; `about` as in `enqueue_remote`."""
    if get_settings().wants(name):
        shop.enqueue_remote(PLUGIN, number, name, **about)


def reminder_delay(ours: shop.OrderState) -> timedelta:
    """Return how long the mail about an unpaid order waits."""
    minutes = get_settings().remind_after_minutes
    if minutes is not None:
        return timedelta(minutes=minutes)
    return (ours.kept_until - shop.now()) / 3 if ours.kept_until else timedelta()


def tell_of_second_payment(review: Review) -> None:
    """Queue one mail for each payment of an order that is paid already, by another payment or by
    hand.
    """
    payment, order = review.payment, orders.find(review.order.key) if review.order else None
    if payment is None or order is None:
        return
    by_hand = review.reason == shop.ReviewReason.PAID_NOT_PAYABLE and orders.is_marked_paid(order)
    if not by_hand and review.reason != shop.ReviewReason.SECOND_PAYMENT:
        return
    # staff may have delivered the payment again
    if not shop.remote_events(PLUGIN, payment_id=payment.id, name=PAID_TWICE_MAIL):
        queue(PAID_TWICE_MAIL, payment.order.key, payment_id=payment.id)


def send_link(ours: shop.OrderState) -> None:
    """Queue the mail with the payment link of an unpaid order, under its lock. Any payment knows
    the shopper's language.
    """
    shop.enqueue_remote(PLUGIN, ours.key, LINK_MAIL, payment_id=newest_payment(ours))


def tell_of_cancellation(number: str, payment_id: str) -> None:
    """Queue the mail about a paid order that staff cancelled; mail about its refund is another."""
    shop.enqueue_remote(PLUGIN, number, CANCELLED_MAIL, payment_id=payment_id)


def tell_of_refund(refund: Refund) -> None:
    """Queue the mail about a refund that succeeded, wherever it was made. Call it once for each, in
    the event's transaction.
    """
    number, payment_id = refund.payment.order.key, refund.payment.id
    queue(REFUND_MAIL, number, payment_id=payment_id, refund_id=refund.id)


def deliver(outbox_event: RemoteEvent) -> str | None:
    """Send the queued mail, in the language in which the shopper bought; return why not, for the
    order's timeline.
    """
    name, order = outbox_event.name, orders.find(outbox_event.order.key)
    if order is None:
        return f"not mailed: {name}: the order was deleted"
    if not order.email:
        _log.warning(
            "order %s: the mail %r was not sent, because the order has no mail address",
            order.number,
            name,
        )
        return f"not mailed: {name}: the order has no mail address"
    with override(orders.language_of(outbox_event.payment)):
        why_not = _MAILS[name](outbox_event, order) if name in _MAILS else None
    return f"not mailed: {name}: {why_not}" if why_not else None


def _confirm_paid(outbox_event: RemoteEvent, order: Any) -> str | None:
    if _state_if_due(outbox_event, lambda ours: not _is_undone(order, ours)) is None:
        return "the order is not paid any more"
    dispatcher = dispatcher_of(order)
    name_method(dispatcher.dispatcher, method_of(order))
    dispatcher.send_order_placed_email_for_user(order, context_of(order))
    return None


def _ask_to_pay(outbox_event: RemoteEvent, order: Any) -> str | None:
    """Mail that an order waits for its payment, or that money on its way has not arrived."""
    ours = _state_if_due(outbox_event, lambda ours: _may_be_reminded(order, ours))
    if ours is None:
        return _WAITS_NO_MORE
    failed = ours.payment(outbox_event.payment.id) if outbox_event.payment else None
    facts: dict[str, Any] = {}
    if failed:
        facts["amount"] = shop.money_text(failed.amount, failed.currency)
        facts["method"] = failed.paid_with
        facts["unpaid_detail"] = failed.unpaid_detail
    pay_url = orders.at_home(order, shop.pay_url(PLUGIN, order.number))
    code = {
        REMINDER_MAIL: "TILLGATE_ORDER_WAITS",
        FAILED_MAIL: "TILLGATE_PAYMENT_FAILED",
    }[outbox_event.name]
    _send(order, code, **_waiting(ours, pay_url), **facts)
    return None


def _send_link(outbox_event: RemoteEvent, order: Any) -> str | None:
    ours = orders.state_of(order)
    until = orders.link_until(ours)
    if ours is None or until is None or not orders.needs_payment(order, ours):
        return _WAITS_NO_MORE
    _send(order, "TILLGATE_ORDER_WAITS", **_waiting(ours, orders.link_url(order, until)))
    return None


def _tell_of_wait(outbox_event: RemoteEvent, order: Any) -> str | None:
    """Mail that money is on its way, or that a voucher is to be paid. A reminder of a voucher with
    a later end waits for the new end.
    """
    name, payment = outbox_event.name, outbox_event.payment
    ours = _state_if_due(outbox_event, lambda ours: _still_waits(order, ours, outbox_event))
    found = ours.payment(payment.id) if ours and payment else None
    if found is None or found.awaited is None:
        return "the payment is not on its way any more"
    awaited = found.awaited
    if name == VOUCHER_MAIL and (delay := until_reminder(awaited)):
        queue(name, order.number, payment_id=found.id, delay=delay)
        return "the voucher ends later by now"
    pay_url = orders.at_home(order, shop.pay_url(PLUGIN, order.number))
    _send(order, "TILLGATE_PAYMENT_WAITS", awaited=awaited, pay_url=pay_url)
    return None


def _say_cancelled(outbox_event: RemoteEvent, order: Any) -> None:
    _send(order, "TILLGATE_CANCELLED")


def _say_money(code: str, outbox_event: RemoteEvent, order: Any) -> None:
    """Mail about money that moved: a refund, a second payment, or a lost dispute."""
    if (moved := outbox_event.payment) is not None:
        payment = shop.find_payment(PLUGIN, payment_id=moved.id)
        amount = Decimal(outbox_event.data.get("amount", (outbox_event.refund or moved).amount))
        facts = {"method": payment.paid_with if payment else ""}
        _send(order, code, amount=shop.money_text(amount, moved.currency), **facts)


_WAITS_NO_MORE: Final = "the order does not wait for a payment any more"
_MAILS: Final[Mapping[str, Callable[[RemoteEvent, Any], str | None]]] = {
    PAID_MAIL: _confirm_paid,
    REMINDER_MAIL: _ask_to_pay,
    FAILED_MAIL: _ask_to_pay,
    LINK_MAIL: _send_link,
    WAITS_MAIL: _tell_of_wait,
    VOUCHER_MAIL: _tell_of_wait,
    CANCELLED_MAIL: _say_cancelled,
    PAID_TWICE_MAIL: partial(_say_money, "TILLGATE_PAID_TWICE"),
    REFUND_MAIL: partial(_say_money, "TILLGATE_REFUNDED"),
    RETURNED_MAIL: partial(_say_money, "TILLGATE_REFUND_RETURNED"),
    DISPUTE_MAIL: partial(_say_money, "TILLGATE_DISPUTE_LOST"),
}
"""Each mail sends itself, or says why not."""


def _waiting(ours: shop.OrderState, pay_url: str) -> dict[str, Any]:
    return {
        "pay_url": pay_url,
        "kept_until": orders.kept_until(ours),
        "is_released": RELEASED in ours.data,
        "awaited": ours.awaited,
    }


def until_reminder(awaited: shop.Awaited) -> timedelta | None:
    """Return the time until the shopper is reminded of a voucher; None where that is now, or
    never.
    """
    if awaited.until is None:
        return None
    delay = awaited.until - REMINDED_BEFORE - timezone.now()
    return delay if delay > timedelta(0) else None


def _still_waits(order: Any, ours: shop.OrderState, outbox_event: RemoteEvent) -> bool:
    """Tell whether the money of a mail's payment is on its way, or its voucher may be paid."""
    order.refresh_from_db(fields=["status"])
    found = ours.payment(outbox_event.payment.id) if outbox_event.payment else None
    if found is None or not found.is_processing or not orders.needs_payment(order, ours):
        return False
    is_voucher = (
        found.awaited is not None and found.awaited.is_voucher and not found.awaited.is_over
    )
    return is_voucher or outbox_event.name == WAITS_MAIL


def _is_undone(order: Any, ours: shop.OrderState) -> bool:
    """Tell whether an order waits again, is held back or was cancelled before its mail was sent. A
    later payment queues another mail.
    """
    settings = get_settings()
    order.refresh_from_db(fields=["status"])
    return order.status in (
        settings.pending_status,
        settings.cancelled_status,
    ) or orders.is_held_back(order, ours)


def _may_be_reminded(order: Any, ours: shop.OrderState) -> bool:
    order.refresh_from_db(fields=["status"])
    return orders.needs_payment(order, ours) and not ours.open_payments


def _state_if_due(
    outbox_event: RemoteEvent,
    allows: Callable[[shop.OrderState], bool],
) -> shop.OrderState | None:
    """Return the state of a mail's order; None where the mail is dropped, now or earlier, because
    the order's status forbids it.

    Another mail is due once the status allows it. The mail is marked under the lock of `confirm`
    and `remind`, which count the mails that were not dropped.
    """
    with shop.locked_order(PLUGIN, outbox_event.order.key) as ours:
        if _DROPPED not in outbox_event.data and allows(ours):
            return ours
        shop.set_remote_data(outbox_event.event_id, **{_DROPPED: True})
        return None


def _send(order: Any, code: str, **facts: Any) -> None:
    dispatcher = dispatcher_of(order)
    messages = dispatcher.dispatcher.get_messages(code, {**context_of(order), **facts})
    dispatcher.dispatch_order_messages(order, messages, code)


def dispatcher_of(order: Any) -> Any:
    """Return Oscar's dispatcher, for mail with the name and the address of the order's own site
    instead of this process's.
    """
    dispatcher = get_class("order.utils", "OrderDispatcher")(logger=_log)
    site, of_process = order.site, dispatcher.dispatcher.get_base_context
    if site is not None:
        # Without SITE_ID, Oscar cannot tell the site outside of a request.
        has_site = getattr(project, "SITE_ID", None)
        dispatcher.dispatcher.get_base_context = lambda **facts: {
            **(of_process(**facts) if has_site else facts),
            "site": site,
        }
    name_language(dispatcher.dispatcher)
    return dispatcher


def context_of(order: Any) -> dict[str, Any]:
    """Return the context that Oscar's own checkout passes to its mail, where it has a request."""
    # models cannot be imported without a Django project
    from django.contrib.auth.models import (
        AnonymousUser,
    )

    context = {"user": order.user or AnonymousUser(), "order": order, "lines": order.lines.all()}
    page = (
        ("customer:order", order.number)
        if order.user_id
        else ("customer:anon-order", order.number, order.verification_hash())
    )
    try:
        url = orders.at_home(order, shop.absolute_url(*page))
    except NoReverseMatch:
        return context  # a shop without these pages
    return {**context, "status_path": reverse(page[0], args=page[1:]), "status_url": url}
