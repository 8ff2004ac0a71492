"""The page that shows a shopper the state of an order; Tillgate's own pages start its payment."""

from __future__ import annotations

from typing import Final

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from tillgate.django.operations.starting import is_order_paid, is_under_review
from tillgate.django.views import open_to_all
from tillgate_oscar import orders
from tillgate_oscar.conf import get_settings
from tillgate_oscar.plugin import PLUGIN

__all__ = ["order"]

_SECONDS_BETWEEN_LOOKS: Final = 2
_MOST_LOOKS: Final = 15


@open_to_all
@never_cache
@require_safe
def order(request: HttpRequest, ticket: str) -> HttpResponse:
    """Show the state of an order. Its shopper continues to Oscar's own pages or can pay again; others see only its number and status.

    The address travels through the payment service, so the address alone gives no authority over the order.
    """
    number = orders.read_status(ticket)
    if number is None:
        raise Http404
    found = orders.find(number)
    if found is None:
        return _private(render(request, "tillgate_oscar/order.html", {"order": {"number": number}, "is_deleted": True}, status=410))
    is_shopper, waits = orders.is_of_shopper(found, request), orders.waits_for_payment(found)
    settings = get_settings()
    is_held_back = orders.is_held_back(found)
    if is_shopper and not is_held_back and found.status not in (settings.pending_status, settings.cancelled_status):
        if request.session.get(orders.SESSION_KEY) == found.pk:
            return redirect("checkout:thank-you")
        return redirect("customer:order", order_number=found.number)
    held = None if waits else orders.held_payment(found)
    has_arrived, has_paid = held is not None, held is not None and is_order_paid(held.order)
    # The payment is paid and the order has not got its status yet. That takes a moment, unless the shop's own code fails.
    is_arriving = found.status == settings.pending_status and has_paid
    under_review = found.status == settings.pending_status and not waits and not has_arrived and is_under_review(PLUGIN, found.number)
    page = {
        "order": found,
        "is_arriving": is_arriving,
        "is_under_review": under_review,
        "is_closed": found.status == settings.pending_status and not waits and not has_arrived and not under_review,
        "is_held_back": is_held_back and not has_arrived,
        "is_cancelled": found.status == settings.cancelled_status,
        "is_paid": has_arrived or found.status == settings.paid_status,
        "has_paid_nothing": has_arrived and not has_paid,
        "waits": waits,
        "pay_url": orders.pay_url(found) if waits and is_shopper else None,
    }
    response = render(request, "tillgate_oscar/order.html", page)
    if is_arriving and (looks := _looks(request)) < _MOST_LOOKS:
        response["Refresh"] = f"{_SECONDS_BETWEEN_LOOKS}; url={request.path}?looks={looks + 1}"
    return _private(response)


def _private(response: HttpResponse) -> HttpResponse:
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex"
    return response


def _looks(request: HttpRequest) -> int:
    """Return how often this page has reloaded while it waited for the order's new status."""
    text = request.GET.get("looks", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
