"""Tickets: the authority to pay one order, as a signed address that expires. The shop and the
return page hand them out.

A ticket names the order by its key and by the moment at which Tillgate registered it. A database
that was restored may give the key to another shopper's order, and never with the same moment.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from tillgate.django.models import Order, Payment
from tillgate.django.orders.registering import registered

_SALT: Final = "tillgate.pay"
_PAY_ONLY_SALT: Final = "tillgate.pay-only"
_LINK_SALT: Final = "tillgate.pay-link"
VALID_FOR: Final = timedelta(days=7)
_COOKIE: Final = "tillgate_shopper"
_START_SALT: Final = "tillgate.start"
_START_VALID_FOR: Final = timedelta(hours=1)


def pay_url(plugin: str, order_key: str, *, may_change: bool = True) -> str:
    """Return the path of the page where an order can be paid, or paid again; give it only to a
    person with the authority to pay the order.

    It is valid for a week: make a new one for each page and mail. The page also leads to the shop's
    page that changes or cancels the order, but not with `may_change=False`.
    """
    return reverse("tillgate:pay", args=[new_ticket(plugin, order_key, may_change=may_change)])


def new_ticket(
    plugin: str,
    order_key: str,
    *,
    may_change: bool = True,
    until: datetime | None = None,
) -> str:
    """Return the ticket in that path; `until` is its own end, in place of a week."""
    held = [plugin, order_key, _moment(registered(plugin, order_key))]
    if until is not None:
        return signing.dumps([*held, int(until.timestamp())], salt=_LINK_SALT)
    return signing.dumps(held, salt=_SALT if may_change else _PAY_ONLY_SALT)


def read_ticket(ticket: str, *, may_change: bool = True) -> tuple[str, str] | None:
    """Return the plugin and the order's key of a ticket, or None when it is forged, too old, or of
    an order that the database has lost.
    """
    try:
        plugin, order_key, moment = signing.loads(
            ticket,
            salt=_SALT if may_change else _PAY_ONLY_SALT,
            max_age=VALID_FOR,
        )
    except (signing.BadSignature, ValueError, TypeError):
        return _read_link(ticket) if may_change else None
    return (str(plugin), str(order_key)) if _names(plugin, order_key, moment) else None


def _read_link(ticket: str) -> tuple[str, str] | None:
    """Return the same of a ticket with an end of its own."""
    try:
        plugin, order_key, moment, until = signing.loads(ticket, salt=_LINK_SALT)
        if until <= timezone.now().timestamp():
            return None
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return (str(plugin), str(order_key)) if _names(plugin, order_key, moment) else None


def remember_shopper(response: HttpResponse, payment: Payment, *, is_secure: bool) -> None:
    """Keep the shopper's ticket in the browser that starts a payment, in a cookie that only the
    payment's return page gets.

    The return address itself travels through the gateway, histories and logs, so its holder may be
    a stranger. The cookie needs no session, which a shop may lack, and ends with the browser's.
    """
    ticket = new_ticket(payment.order.plugin, payment.order.key)
    path = reverse("tillgate:return", args=[payment.return_key])
    response.set_cookie(_COOKIE, ticket, path=path, secure=is_secure, httponly=True, samesite="Lax")


def is_shopper(request: HttpRequest, payment: Payment) -> bool:
    """Tell whether the browser at a return page started the payment, with the shop's authority over
    its order.
    """
    return read_ticket(request.COOKIES.get(_COOKIE, "")) == (
        payment.order.plugin,
        payment.order.key,
    )


def start_url(
    plugin: str,
    order_key: str,
    method: str,
    *,
    told: str = "",
    may_change: bool = True,
) -> str:
    """Return the path that starts a payment with the method that a shopper just chose; it is valid
    for that method, and for an hour.

    It serves shops that handle the choice inside a transaction: the request after the redirect
    calls the gateway. `told` and `may_change` are those of the pay page where the shopper chose.
    """
    held = [plugin, order_key, _moment(registered(plugin, order_key)), method, told, may_change]
    return reverse("tillgate:start", args=[signing.dumps(held, salt=_START_SALT)])


def read_start_ticket(ticket: str) -> tuple[str, str, str, str, bool] | None:
    """Return the arguments of `start_url`, or None as in `read_ticket`."""
    try:
        plugin, order_key, moment, method, told, may_change = signing.loads(
            ticket,
            salt=_START_SALT,
            max_age=_START_VALID_FOR,
        )
    except (signing.BadSignature, ValueError, TypeError):
        return None
    if not _names(plugin, order_key, moment):
        return None
    return str(plugin), str(order_key), str(method), str(told), may_change is True


def _moment(order: Order) -> str:
    return order.created_at.isoformat()


def _names(plugin: object, order_key: object, moment: object) -> bool:
    """Return whether a ticket is of the order that has its key now."""
    order = Order.objects.filter(plugin=str(plugin), key=str(order_key)).first()
    return order is not None and _moment(order) == moment
