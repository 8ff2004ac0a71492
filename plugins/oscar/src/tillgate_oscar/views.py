"""The pages that show a shopper the state of an order, and cancel it; Tillgate's own pages start
its payment.
"""

from __future__ import annotations

from typing import Final

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.http import require_http_methods, require_safe

from tillgate import shop
from tillgate_oscar import orders
from tillgate_oscar.basket import cancel_into_basket, order_again
from tillgate_oscar.conf import PLUGIN, get_settings
from tillgate_oscar.payments import cancel
from tillgate_oscar.stock import RELEASED

_SECONDS_BETWEEN_LOOKS: Final = 2
_MOST_LOOKS: Final = 15


@login_not_required
@never_cache
@require_safe
def order(request: HttpRequest, ticket: str) -> HttpResponse:
    """Show the state of an order. Its shopper goes on to Oscar's own pages or can pay again; others
    see its number, status and refund, and payment pages that should take no payment.

    The address travels through the payment service, so the address alone gives no authority over
    the order.
    """
    number = orders.read_status(ticket)
    if number is None:
        raise Http404
    found = orders.find(number)
    if found is None:
        return _private(
            render(
                request,
                "tillgate_oscar/order.html",
                {"order": {"number": number}, "is_deleted": True},
                status=410,
            ),
        )
    ours, settings = orders.state_of(found), get_settings()
    is_shopper, waits = orders.is_of_shopper(found, request), orders.waits_for_payment(found, ours)
    is_held_back, is_free = orders.is_held_back(found, ours), waits and orders.is_free(found)
    is_pending = found.status == settings.pending_status
    if (
        is_shopper
        and not is_held_back
        and not is_pending
        and found.status != settings.cancelled_status
    ):
        if request.session.get(orders.SESSION_KEY) == found.pk:
            return redirect("checkout:thank-you")
        if found.status == settings.paid_status and ours is not None and ours.held:
            messages.success(request, _("Thank you, your payment has arrived."))
        return redirect("customer:order", order_number=found.number)
    has_arrived = ours is not None and bool(ours.held)
    has_paid = ours is not None and has_arrived and ours.is_paid
    # The payment is paid and the order has not got its status yet. That takes a moment, unless the
    # shop's own code fails.
    is_arriving = is_pending and has_paid
    is_stopped = is_pending and not waits and not has_arrived
    under_review = is_stopped and ours is not None and ours.reported_paid
    page = {
        "order": found,
        "is_shopper": is_shopper,
        "is_test": orders.is_test(ours),
        "is_arriving": is_arriving,
        "is_under_review": under_review,
        "is_closed": is_stopped and not under_review,
        "is_held_back": is_held_back and not has_arrived,
        "is_cancelled": found.status == settings.cancelled_status,
        "is_paid": has_arrived or found.status == settings.paid_status,
        "has_paid_nothing": has_arrived and not has_paid,
        "waits": waits and not is_free,
        "is_free": is_free,
        "open_pages": [] if has_paid else orders.needless_pages(found, ours),
        "kept_until": orders.kept_until(ours),
        "lines": found.lines.all() if is_shopper else [],
        "is_over": shop.ended_unpaid(PLUGIN, found.number),
        "is_uncharged": orders.is_uncharged(ours),
        "is_released": ours is not None and RELEASED in ours.data,
        "tillgate_refunded": orders.refunded_text(ours),
        "unpaid_detail": orders.unpaid_detail(ours),
        "awaited": ours.awaited if ours else None,
        "pay_url": shop.pay_path(PLUGIN, found.number)
        if waits and is_shopper and not is_free
        else None,
        "change_url": orders.change_url(found)
        if is_shopper and orders.may_be_cancelled(found, ours)
        else None,
        "again_url": orders.change_url(found)
        if is_shopper and orders.may_be_ordered_again(found, ours)
        else None,
    }
    response = render(request, "tillgate_oscar/order.html", page)
    if is_arriving and (looks := _looks(request)) < _MOST_LOOKS:
        response["Refresh"] = f"{_SECONDS_BETWEEN_LOOKS}; url={request.path}?looks={looks + 1}"
    return _private(response)


@login_not_required
@never_cache
@csrf_protect
@require_http_methods(["GET", "HEAD", "POST"])
def change(request: HttpRequest, ticket: str) -> HttpResponse:
    """Cancel an unpaid order after a question, or put its items back into the basket, for the
    holder of the address.

    The items of an order that was cancelled can be ordered again. An address that is too old leads
    to the order's page, which gives its shopper a new one.
    """
    read = orders.read_change(ticket)
    if read is None:
        raise Http404
    number, is_fresh = read
    if not is_fresh:
        return _private(redirect(orders.status_url(number)))
    found = orders.find(number)
    ours = orders.state_of(found) if found is not None else None
    is_cancelled = found is not None and orders.may_be_ordered_again(found, ours)
    if found is None or not (is_cancelled or orders.may_be_cancelled(found, ours)):
        return _private(redirect(orders.status_url(number)))
    if request.method != "POST":
        page = {
            "order": found,
            "lines": found.lines.all(),
            "is_cancelled": is_cancelled,
            "open_pages": orders.open_pages(ours),
            "is_free": orders.is_free(found),
            "order_url": orders.status_url(number),
            "pay_url": shop.pay_path(PLUGIN, number),
        }
        response = _private(render(request, "tillgate_oscar/change.html", page))
        response["Referrer-Policy"] = (
            # under "no-referrer" browsers post the form from the origin "null", which Django
            # refuses
            "same-origin"
        )
        return response
    # set by Oscar's middleware
    then, basket = request.POST.get("then"), request.basket  # type: ignore[attr-defined]
    gone: list[str] | None = None
    if then == "again":
        gone = order_again(found, basket, request.user) if is_cancelled else None
    elif then == "basket":
        gone = cancel_into_basket(found, basket, request.user)
    else:
        cancel(number)
    if gone is None:  # it is cancelled without more; or another press, or money, was quicker
        return _private(redirect(orders.status_url(number)))
    messages.success(
        request,
        _("Order %(number)s was cancelled. Its items are in your basket again.")
        % {"number": number},
    )
    if gone:
        messages.warning(
            request,
            _("Not available any more: %(products)s.") % {"products": ", ".join(gone)},
        )
    return _private(redirect("basket:summary"))


def _private(response: HttpResponse) -> HttpResponse:
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex"
    return response


def _looks(request: HttpRequest) -> int:
    """Return how often this page has reloaded while it waited for the order's new status."""
    text = request.GET.get("looks", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
