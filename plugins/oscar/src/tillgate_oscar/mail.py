"""Mail to the shopper. Tillgate sends it outside any transaction and retries until the mail server accepts it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from django.urls import NoReverseMatch, reverse
from django.utils.translation import get_language, override
from oscar.core.loading import get_class

from tillgate import shop
from tillgate.hooks import Event, RemoteEvent
from tillgate_oscar import orders
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.confirmation import name_method

__all__ = ["confirm", "confirm_again", "deliver", "remind", "remind_of_failed"]

_log = logging.getLogger("oscar.checkout")

PAID_MAIL: Final = "order-paid"
REMINDER_MAIL: Final = "order-waits"
_DROPPED: Final = "dropped"
"""The key in the data of a mail that Tillgate dropped, because the order waits again or was cancelled before the mail was sent."""
REMINDER_CODE: Final = "TILLGATE_ORDER_WAITS"
"""Oscar's code of the reminder: its templates are `oscar/communication/emails/commtype_tillgate_order_waits_*`."""
_CAME_TO_NOTHING: Final = frozenset({"payment.failed", "payment.closed", "payment.expired", "payment.force-expired"})


def confirm(number: str, payment_id: str | None) -> None:
    """Queue Oscar's mail about an order that is paid, through Tillgate or by hand. Call it under the order's lock.

    The shopper gets it once, even if staff change the status back and forth. Any payment knows the shopper's language.
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
    return any(_DROPPED not in queued.data for queued in shop.remote_events(PLUGIN, order_key=number, name=name))


def remind_of_failed(event: Event) -> None:
    """Remind the shopper of an order after its payment failed or expired."""
    if event.name in _CAME_TO_NOTHING and event.reference and str(event.fields.get("order", "")).startswith(f"{PLUGIN}:"):
        remind(event.reference)


def remind(reference: str) -> None:
    """Queue one reminder for the order of a failed or expired payment, so that a shopper who left finds the way back.

    While another payment is open the shopper may be using it, and a reminder could make them pay twice. If that one fails too, its reminder
    follows then.
    """
    payment = shop.find_payment(PLUGIN, reference=reference)
    order = orders.find(payment.order.key) if payment else None
    if payment is None or order is None or not orders.waits_for_payment(order, orders.state_of(order)):
        return
    with shop.locked_order(PLUGIN, payment.order.key) as ours:  # two payments may fail at the same moment
        if not ours.open_payments and not _is_queued(REMINDER_MAIL, ours.key):
            shop.enqueue_remote(PLUGIN, ours.key, REMINDER_MAIL, payment_id=payment.id)


def deliver(outbox_event: RemoteEvent) -> None:
    """Send the queued mail, in the language in which the shopper bought."""
    order = orders.find(outbox_event.order.key)
    if order is None or not order.email:
        return
    language = outbox_event.payment.data.get("language") if outbox_event.payment else None
    with override(language or get_language()):
        if outbox_event.name == PAID_MAIL:
            if not _was_undone(order, outbox_event):
                dispatcher = get_class("order.utils", "OrderDispatcher")(logger=_log)
                name_method(dispatcher.dispatcher, order)
                dispatcher.send_order_placed_email_for_user(order, _context(order))
        elif outbox_event.name == REMINDER_MAIL and not _is_dropped(outbox_event, lambda ours: not _may_be_reminded(order, ours)):
            _send_reminder(order)


def _was_undone(order: Any, outbox_event: RemoteEvent) -> bool:
    """Tell whether an order waits again, is held back or was cancelled before its mail was sent. A later payment queues another mail."""
    settings = get_settings()

    def is_undone(ours: shop.OrderState) -> bool:
        order.refresh_from_db(fields=["status"])
        return order.status in (settings.pending_status, settings.cancelled_status) or orders.is_held_back(order, ours)

    return _is_dropped(outbox_event, is_undone)


def _may_be_reminded(order: Any, ours: shop.OrderState) -> bool:
    order.refresh_from_db(fields=["status"])
    return orders.waits_for_payment(order, ours) and not ours.open_payments


def _is_dropped(outbox_event: RemoteEvent, detail: Callable[[shop.OrderState], bool]) -> bool:
    """Tell whether this mail is dropped, now or earlier, because the order's status forbids it.

    Another mail is due once the status allows it. The mail is marked under the lock of `confirm` and `remind`, which count the mails that
    were not dropped.
    """
    with shop.locked_order(PLUGIN, outbox_event.order.key) as ours:
        if _DROPPED not in outbox_event.data and not detail(ours):
            return False
        shop.set_remote_data(outbox_event.event_id, **{_DROPPED: True})
        return True


def _send_reminder(order: Any) -> None:
    dispatcher = get_class("order.utils", "OrderDispatcher")(logger=_log)
    context = {**_context(order), "pay_url": shop.pay_url(PLUGIN, order.number)}
    messages = dispatcher.dispatcher.get_messages(REMINDER_CODE, context)
    dispatcher.dispatch_order_messages(order, messages, REMINDER_CODE)


def _context(order: Any) -> dict[str, Any]:
    """Return the context that Oscar's own checkout passes to its mail, where it has a request."""
    from django.contrib.auth.models import AnonymousUser  # models cannot be imported without a Django project
    from django.contrib.sites.models import Site

    context = {"user": order.user or AnonymousUser(), "order": order, "lines": order.lines.all()}
    try:
        if order.user_id:
            path = reverse("customer:order", kwargs={"order_number": order.number})
        else:
            path = reverse("customer:anon-order", kwargs={"order_number": order.number, "hash": order.verification_hash()})
    except NoReverseMatch:
        return context  # a shop without these pages
    return {**context, "status_path": path, "status_url": f"http://{Site.objects.get_current().domain}{path}"}
