"""Mail to the shopper. Tillgate sends it outside any transaction and retries until the mail server accepts it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from django.contrib.auth.models import AnonymousUser
from django.contrib.sites.models import Site
from django.db import router, transaction
from django.urls import NoReverseMatch, reverse
from django.utils.translation import get_language, override
from oscar.core.loading import get_class

from tillgate.django import operations
from tillgate.django.conf import get_settings as get_tillgate_settings
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment
from tillgate.hooks import RemoteEvent
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES
from tillgate_oscar import orders
from tillgate_oscar.conf import get_settings
from tillgate_oscar.plugin import PLUGIN

__all__ = ["confirm", "deliver", "is_confirmed", "remind"]

_log = logging.getLogger("oscar.checkout")

PAID_MAIL: Final = "order-paid"
REMINDER_MAIL: Final = "order-waits"
_DROPPED: Final = "dropped"
"""The key in the data of a mail that Tillgate dropped, because the order waits again or was cancelled before the mail was sent."""
REMINDER_CODE: Final = "TILLGATE_ORDER_WAITS"
"""Oscar's code of the reminder: its templates are `oscar/communication/emails/commtype_tillgate_order_waits_*`."""


def is_confirmed(number: str) -> bool:
    """Tell whether Oscar's mail about an order was queued or sent."""
    return _is_queued(PAID_MAIL, number)


def _is_queued(name: str, number: str) -> bool:
    mails = OutboxEvent.objects.filter(order__plugin=PLUGIN, order__key=number, kind=OutboxEventKind.REMOTE, name=name)
    return any(_DROPPED not in data for data in mails.values_list("data", flat=True))


def confirm(number: str, payment_id: str | None = None) -> None:
    """Queue Oscar's mail about an order that is paid, through Tillgate or by hand.

    The shopper gets it once, even if staff change the status back and forth.
    """
    with transaction.atomic(using=router.db_for_write(OutboxEvent)):
        order = Order.objects.select_for_update().get(plugin=PLUGIN, key=number)
        if not is_confirmed(number):
            # Any payment knows the shopper's language.
            known = payment_id or order.payments.order_by("-pk").values_list("pk", flat=True).first()
            operations.enqueue_remote(PLUGIN, number, PAID_MAIL, payment_id=str(known) if known else None)


def remind(reference: str) -> None:
    """Queue one reminder for the order of a failed or expired payment, so that a shopper who left finds the way back.

    While another payment is open the shopper may be using it, and a reminder could make them pay twice. If that one fails too, its reminder
    follows then.
    """
    payment = Payment.objects.select_related("order").get(reference=reference)
    number = payment.order.key
    order = orders.find(number)
    if order is None or not orders.waits_for_payment(order):
        return
    with transaction.atomic(using=router.db_for_write(OutboxEvent)):
        locked = Order.objects.select_for_update().get(pk=payment.order_id)  # two payments may fail at the same moment
        if not _is_being_paid(locked) and not _is_queued(REMINDER_MAIL, number):
            operations.enqueue_remote(PLUGIN, number, REMINDER_MAIL, payment_id=str(payment.pk))


def _is_being_paid(order: Order) -> bool:
    return order.payments.filter(status__in=OPEN_PAYMENT_STATUSES).exists()


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
                dispatcher.send_order_placed_email_for_user(order, _context(order))
        elif outbox_event.name == REMINDER_MAIL and not _is_dropped(outbox_event, lambda ours: not _may_be_reminded(order, ours)):
            _send_reminder(order)


def _was_undone(order: Any, outbox_event: RemoteEvent) -> bool:
    """Tell whether an order waits again, is held back or was cancelled before its mail was sent. A later payment queues another mail."""
    settings = get_settings()

    def is_undone(_: Order) -> bool:
        order.refresh_from_db(fields=["status"])
        return order.status in (settings.pending_status, settings.cancelled_status) or orders.is_held_back(order)

    return _is_dropped(outbox_event, is_undone)


def _may_be_reminded(order: Any, ours: Order) -> bool:
    order.refresh_from_db(fields=["status"])
    return orders.waits_for_payment(order) and not _is_being_paid(ours)


def _is_dropped(outbox_event: RemoteEvent, detail: Callable[[Order], bool]) -> bool:
    """Tell whether this mail is dropped, now or earlier, because the order's status forbids it.

    Another mail is due once the status allows it.

    The mail is marked under the lock of `confirm` and `remind`, which count the mails that were not dropped.
    """
    with transaction.atomic(using=router.db_for_write(OutboxEvent)):
        order = Order.objects.select_for_update().get(plugin=PLUGIN, key=outbox_event.order.key)
        if _DROPPED not in outbox_event.data and not detail(order):
            return False
        OutboxEvent.objects.filter(event_id=outbox_event.event_id).update(data={**outbox_event.data, _DROPPED: True})
        return True


def _send_reminder(order: Any) -> None:
    dispatcher = get_class("order.utils", "OrderDispatcher")(logger=_log)
    pay_url = get_tillgate_settings().public_url + orders.pay_url(order)
    messages = dispatcher.dispatcher.get_messages(REMINDER_CODE, {**_context(order), "pay_url": pay_url})
    dispatcher.dispatch_order_messages(order, messages, REMINDER_CODE)


def _context(order: Any) -> dict[str, Any]:
    """Return the context that Oscar's own checkout passes to its mail, where it has a request."""
    context = {"user": order.user or AnonymousUser(), "order": order, "lines": order.lines.all()}
    try:
        if order.user_id:
            path = reverse("customer:order", kwargs={"order_number": order.number})
        else:
            path = reverse("customer:anon-order", kwargs={"order_number": order.number, "hash": order.verification_hash()})
    except NoReverseMatch:
        return context  # a shop without these pages
    return {**context, "status_path": path, "status_url": f"http://{Site.objects.get_current().domain}{path}"}
