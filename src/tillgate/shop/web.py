"""Views: decorators, addresses, and the return and notification of a payment at an address of the
shop's own.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from tillgate.django.conf import get_settings
from tillgate.django.models import Payment, database
from tillgate.django.orders.locking import outside_transactions, without_atomic_requests
from tillgate.django.pages.browsers import app_of, opens_in, terminal_of, user_agent_of
from tillgate.django.pages.forms import MethodForm
from tillgate.django.pages.gateways import acknowledgement
from tillgate.django.payments import notifications
from tillgate.wire.notifications import LARGEST_NOTIFICATION_BYTES, Notification, read_notification

__all__ = [
    "MethodForm",
    "absolute_url",
    "acknowledge",
    "app_in_the_way",
    "database",
    "outside_transactions",
    "read_request",
    "receive_notification",
    "return_path",
    "terminal_of",
    "webhook_url",
    "without_atomic_requests",
]


def absolute_url(name: str, *arguments: object) -> str:
    """Return the public address of a named page, under `TILLGATE["PUBLIC_URL"]`."""
    return get_settings().address(name, *arguments)


def app_in_the_way(request: HttpRequest, method: str) -> str:
    """Return the name of the app whose own browser sent a request, if a payment method cannot be
    paid in it, or else empty text. A shopper can open the page in the phone's browser.
    """
    app = app_of(user_agent_of(request))
    return "" if app is None or opens_in(app, method) else app.name


def webhook_url(alias: str) -> str:
    """Return the public address for the notifications of an account's gateway, to register there: a
    gateway plugin reads them.
    """
    return get_settings().address("tillgate:webhook", alias)


def return_path(payment_id: str) -> str:
    """Return the path of Tillgate's return page of a payment: it polls the payment and leads the
    shopper to the shop.
    """
    return reverse(
        "tillgate:return",
        args=[Payment.objects.values_list("return_key", flat=True).get(pk=int(payment_id))],
    )


def read_request(request: HttpRequest) -> Notification:
    """Return the parameters of a request as of a notification: form, JSON or query string. Nothing
    of it is trusted.
    """
    body = request.body[: LARGEST_NOTIFICATION_BYTES + 1]  # one byte more shows that it is too long
    return read_notification(
        request.headers.get("Content-Type", ""),
        request.META.get("QUERY_STRING", ""),
        body,
    )


def receive_notification(payment_id: str, received: Notification, method: str) -> None:
    """Store a notification that came to an address of the shop's own, and poll the payment. Call it
    outside any transaction.
    """
    key = Payment.objects.values_list("notification_key", flat=True).get(pk=int(payment_id))
    notifications.receive_payment_notification(key, lambda: received, method)


def acknowledge(payment_id: str) -> HttpResponse:
    """Return the answer that the gateway of a payment expects for a stored notification."""
    payment: Any = Payment.objects.get(pk=int(payment_id))
    return acknowledgement(payment)
