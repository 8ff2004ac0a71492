"""The views that send a shopper to the payment page and receive the return."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from pretix.base.models import Order
from pretix.multidomain.urlreverse import eventreverse

from tillgate import shop
from tillgate.shop import StartOutcome, without_atomic_requests
from tillgate_pretix import orders
from tillgate_pretix.accounts import alias_of
from tillgate_pretix.configuration import PLUGIN
from tillgate_pretix.orders import OPEN, RETURN_TAG, bill_of, holds_money, method_of

_OWN_ORDERS: Final = "tillgate_pretix_orders"
"""The session key for the orders that this browser went to pay: it may see them after the
return.
"""


@without_atomic_requests
@never_cache
@require_safe
def start(request: Any, order: str, secret: str, payment: str, **_kwargs: Any) -> HttpResponse:
    """Start a payment and redirect the shopper to its payment page. A repeated request redirects to
    the same page.
    """
    found = _order(request, order, secret, tag=None)
    theirs = get_object_or_404(found.payments, pk=payment)
    if method_of(theirs.provider) is None:
        raise Http404
    request.session[_OWN_ORDERS] = [
        *(pk for pk in request.session.get(_OWN_ORDERS, []) if pk != found.pk),
        found.pk,
    ][-20:]
    way, problem = _begin(request, found, theirs)
    if problem:
        messages.error(request, problem)
    return _private(HttpResponseRedirect(way or _page_of(found)))


def _begin(request: Any, order: Any, theirs: Any) -> tuple[str, str]:
    """Return the address of the payment page, or a message that says why there is none."""
    # A second press has cancelled the first payment of pretix: both lead to the same payment page.
    current = (
        order.payments.filter(state__in=OPEN, provider=theirs.provider, amount=order.pending_sum)
        .order_by("-pk")
        .first()
    )
    if current is None or not current.payment_provider.is_enabled:
        return "", _(
            "This payment cannot be continued. Please choose again how you would like to pay.",
        )
    bill = bill_of(order)
    if (state := shop.order_state(PLUGIN, bill)) and state.reported_paid:
        detail = _(
            "The payment service says that you have paid already, and something about it is not "
            "in order.",
        )
        return "", detail + " " + _("The organizer knows. Please ask before you pay again.")
    method, about = str(method_of(current.provider)), {"payment": current.pk}
    if app := shop.app_in_the_way(request, method):
        names = {"methods": shop.method_label(method), "app": app}
        # the order's page, which shows it, works in any browser
        return "", _(
            "%(methods)s cannot open inside %(app)s. To pay that way, open this page in your "
            "browser.",
        ) % names
    started = shop.start_payment(
        PLUGIN,
        bill,
        method,
        terminal=shop.terminal_of(request),
        account=alias_of(order),
        data=about,
        shopper_ip=request.META.get("REMOTE_ADDR"),
    )
    if started.is_paid:
        return f"{_page_of(order)}?paid=yes", ""
    if started.payment is not None and not started.redirect_url:
        # Nobody was led to a payment page, so nobody has paid on it, whatever became of the request
        # for it.
        return "", StartOutcome.REFUSED.message
    return started.redirect_url, started.message


@never_cache
@require_safe
def status(request: Any, order: str, secret: str, **_kwargs: Any) -> HttpResponse:
    """Tell the script of the order's page whether there is news."""
    found = _order(request, order, secret, tag=None)
    is_open = found.status == Order.STATUS_PENDING and any(
        payment.is_open for payment in orders.payments_of(found)
    )
    return _private(JsonResponse({"settled": not is_open}))


@never_cache
@require_safe
def returned(request: Any, order: str, tag: str, **_kwargs: Any) -> HttpResponse:
    """Redirect the shopper to the order, or to the choice of another payment method.

    A browser that did not pay the order sees only its state. The address travels through the
    payment service, so the address alone gives no authority over the order and its tickets.
    """
    found = _order(request, order, tag, tag=RETURN_TAG)
    is_paid = found.status == Order.STATUS_PAID
    if found.pk in request.session.get(_OWN_ORDERS, []):
        if orders.CHOOSE in request.GET and not is_paid:
            return _private(HttpResponseRedirect(_page_of(found, "presale:event.order.pay.change")))
        # pretix says "Thank you!" above an order that waits for its money, which a declined payment
        # does not bring.
        is_thanked = any(payment.is_open for payment in orders.payments_of(found))
        return _private(
            HttpResponseRedirect(
                _page_of(found) + ("?paid=yes" if is_paid else "?thanks=yes" if is_thanked else ""),
            ),
        )
    bills = orders.bills_of(found)
    page = {
        "awaited": bills[-1].awaited if bills else None,
        "code": found.code,
        "is_paid": is_paid,
        "is_cancelled": found.status == Order.STATUS_CANCELED,
        "is_held": holds_money(found),
    }
    return _private(render(request, "tillgate_pretix/returned.html", page))


def _order(request: HttpRequest, code: str, secret: str, tag: str | None) -> Any:
    try:
        # pretix puts it there
        return request.event.orders.get_with_secret_check(code, secret, tag=tag)  # type: ignore[attr-defined]
    except Order.DoesNotExist:
        raise Http404 from None


def _page_of(order: Any, page: str = "presale:event.order") -> str:
    return str(
        eventreverse(order.event, page, kwargs={"order": order.code, "secret": order.secret}),
    )


def _private(response: HttpResponse) -> HttpResponse:
    # The address contains a secret: the browser must not store it, and must not send it to the next
    # site.
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex"
    return response
