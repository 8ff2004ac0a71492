"""Tickets: the authority to pay one order, as a signed address that expires. The shop and the return page hand them out."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.core import signing
from django.urls import reverse

__all__ = ["pay_url", "read_start_ticket", "read_ticket", "start_url"]

_SALT: Final = "tillgate.pay"
VALID_FOR: Final = timedelta(days=7)
_START_SALT: Final = "tillgate.start"
_START_VALID_FOR: Final = timedelta(hours=1)


def pay_url(plugin: str, order_key: str) -> str:
    """Return the path of the page where an order can be paid, or paid again; give it only to a person with the authority to pay the order.

    It is valid for a week: make a new one for each page and mail.
    """
    return reverse("tillgate:pay", args=[signing.dumps([plugin, order_key], salt=_SALT)])


def read_ticket(ticket: str) -> tuple[str, str] | None:
    """Return the plugin and the order's key of a ticket, or None when it is forged or too old."""
    try:
        plugin, order_key = signing.loads(ticket, salt=_SALT, max_age=VALID_FOR)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return str(plugin), str(order_key)


def start_url(plugin: str, order_key: str, method: str) -> str:
    """Return the path that starts a payment with the method that a shopper just chose; it is valid for that method, and for an hour.

    It serves shops that handle the choice inside a transaction: the request after the redirect calls the gateway.
    """
    return reverse("tillgate:start", args=[signing.dumps([plugin, order_key, method], salt=_START_SALT)])


def read_start_ticket(ticket: str) -> tuple[str, str, str] | None:
    """Return the plugin, the order's key and the payment method of such a ticket, or None when it is forged or too old."""
    try:
        plugin, order_key, method = signing.loads(ticket, salt=_START_SALT, max_age=_START_VALID_FOR)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return str(plugin), str(order_key), str(method)
