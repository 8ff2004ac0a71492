"""Mail to the shopper. Tillgate sends it outside any transaction and retries until the mail server
accepts it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from django.conf import settings as project
from django.urls import NoReverseMatch, reverse
from django.utils.translation import override
from oscar.core.loading import get_class

from tillgate import shop
from tillgate.hooks import Event, Refund, RemoteEvent, Review
from tillgate_oscar import orders
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.confirmation import name_method
from tillgate_oscar.stock import RELEASED

_log = logging.getLogger("oscar.checkout")

PAID_MAIL: Final = "order-paid"
REMINDER_MAIL: Final = "order-waits"
LINK_MAIL: Final = "payment-link"
CANCELLED_MAIL: Final = "cancelled"
PAID_TWICE_MAIL: Final = "paid-twice"
REFUND_MAIL: Final = "refunded"
EVENT_TYPES: Final = {
    "TILLGATE_ORDER_WAITS": "Order waits for payment",
    "TILLGATE_PAID_TWICE": "Order paid twice",
    "TILLGATE_CANCELLED": "Paid order cancelled",
    "TILLGATE_REFUNDED": "Payment refunded",
}
"""Our communication event types: Oscar's codes and their names for the dashboard. The templates are
`oscar/communication/emails/commtype_<code>_*`."""
_DROPPED: Final = "dropped"
"""The key in the data of a mail that Tillgate dropped, because the order waits again or was
cancelled before the mail was sent.
"""
_CAME_TO_NOTHING: Final = frozenset(
    {"payment.failed", "payment.closed", "payment.expired", "payment.force-expired"},
)


def confirm(number: str, payment_id: str | None) -> None:
    """Queue Oscar's mail about an order that is paid, through Tillgate or by hand. Call it under
    the order's lock.

    The shopper gets it once, even if staff change the status back and forth. Any payment knows the
    shopper's language.
    """
    if not _is_queued(PAID_MAIL, number):
        shop.enqueue_remote(PLUGIN, number, PAID_MAIL, payment_id=payment_id)


def confirm_again(number: str) -> None:
    """Queue Oscar's mail about a paid order outside an event, under the order's lock."""
    with shop.locked_order(PLUGIN, number) as ours:
        confirm(number, newest_payment(ours))


def newest_payment(ours: shop.OrderState) -> str | None:
    """Return the id of an order's newest payment, or None if none has started."""
    return ours.payments[-1].id if ours.payments else None


def _is_queued(name: str, number: str) -> bool:
    return any(
        _DROPPED not in queued.data
        for queued in shop.remote_events(PLUGIN, order_key=number, name=name)
    )


def remind_of_failed(event: Event) -> None:
    """Remind the shopper of an order after its payment failed or expired."""
    if (
        event.name in _CAME_TO_NOTHING
        and event.reference
        and str(event.fields.get("order", "")).startswith(f"{PLUGIN}:")
    ):
        remind(event.reference)


def remind(reference: str) -> None:
    """Queue one reminder for the order of a failed or expired payment, so that a shopper who left
    finds the way back.

    It waits for `remind_after_minutes`, and is dropped if the order is paid or cancelled by then.
    While another payment is open the shopper may be using it, and a reminder could make them pay
    twice. If that one fails too, its reminder follows then.
    """
    payment = shop.find_payment(PLUGIN, reference=reference)
    order = orders.find(payment.order.key) if payment else None
    if payment is None or order is None or not orders.needs_payment(order, orders.state_of(order)):
        return
    with shop.locked_order(
        PLUGIN,
        payment.order.key,
    ) as ours:  # two payments may fail at the same moment
        if not ours.open_payments and not _is_queued(REMINDER_MAIL, ours.key):
            delay = timedelta(minutes=get_settings().remind_after_minutes)
            shop.enqueue_remote(PLUGIN, ours.key, REMINDER_MAIL, payment_id=payment.id, delay=delay)


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
        shop.enqueue_remote(PLUGIN, payment.order.key, PAID_TWICE_MAIL, payment_id=payment.id)


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
    shop.enqueue_remote(
        PLUGIN,
        refund.payment.order.key,
        REFUND_MAIL,
        payment_id=refund.payment.id,
        refund_id=refund.id,
    )


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
    dispatcher = _dispatcher(order)
    name_method(dispatcher.dispatcher, order)
    dispatcher.send_order_placed_email_for_user(order, _context(order))
    return None


def _remind(outbox_event: RemoteEvent, order: Any) -> str | None:
    ours = _state_if_due(outbox_event, lambda ours: _may_be_reminded(order, ours))
    if ours is None:
        return _WAITS_NO_MORE
    pay_url = orders.at_home(order, shop.pay_url(PLUGIN, order.number))
    _send(order, "TILLGATE_ORDER_WAITS", **_waiting(ours, pay_url))
    return None


def _send_link(outbox_event: RemoteEvent, order: Any) -> str | None:
    ours = orders.state_of(order)
    until = orders.link_until(ours)
    if ours is None or until is None or not orders.needs_payment(order, ours):
        return _WAITS_NO_MORE
    _send(order, "TILLGATE_ORDER_WAITS", **_waiting(ours, orders.link_url(order, until)))
    return None


def _say_cancelled(outbox_event: RemoteEvent, order: Any) -> None:
    _send(order, "TILLGATE_CANCELLED")


def _say_money(outbox_event: RemoteEvent, order: Any) -> None:
    """Mail about a refund, or a payment that came twice."""
    if (payment := outbox_event.payment) is not None:
        code = "TILLGATE_REFUNDED" if outbox_event.refund else "TILLGATE_PAID_TWICE"
        amount = shop.money_text((outbox_event.refund or payment).amount, payment.currency)
        _send(order, code, amount=amount, method=shop.method_label(payment.method))


_WAITS_NO_MORE: Final = "the order does not wait for a payment any more"
_MAILS: Final[Mapping[str, Callable[[RemoteEvent, Any], str | None]]] = {
    PAID_MAIL: _confirm_paid,
    REMINDER_MAIL: _remind,
    LINK_MAIL: _send_link,
    CANCELLED_MAIL: _say_cancelled,
    PAID_TWICE_MAIL: _say_money,
    REFUND_MAIL: _say_money,
}
"""Each mail sends itself, or says why not."""


def _waiting(ours: shop.OrderState, pay_url: str) -> dict[str, Any]:
    return {
        "pay_url": pay_url,
        "kept_until": orders.kept_until(ours),
        "is_released": RELEASED in ours.data,
    }


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
    dispatcher = _dispatcher(order)
    messages = dispatcher.dispatcher.get_messages(code, {**_context(order), **facts})
    dispatcher.dispatch_order_messages(order, messages, code)


def _dispatcher(order: Any) -> Any:
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
    return dispatcher


def _context(order: Any) -> dict[str, Any]:
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
