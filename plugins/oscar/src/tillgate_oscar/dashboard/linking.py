"""The payment link of an unpaid order: staff copy it or mail it, for an order by telephone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext

from tillgate import TillgateError, shop
from tillgate_oscar import mail, orders
from tillgate_oscar.conf import PLUGIN, get_settings

_MOST_DAYS = 90


def link_of(request: HttpRequest, order: Any, ours: shop.OrderState) -> dict[str, Any] | None:
    """Return the payment link of an order for its page, if it waits for payment and the user may
    give it away; without `url` where none was made.
    """
    if not request.user.is_staff or not orders.needs_payment(order, ours):
        return None
    until = orders.link_until(ours)
    return {
        "days": get_settings().pay_link_days,
        "most": _MOST_DAYS,
        "until": until,
        "email": order.email,
        "url": orders.link_url(order, until) if until else "",
    }


def make_link(view: Any, request: HttpRequest, order: Any) -> HttpResponse:
    """Make the payment link of an order, or mail it to the shopper."""
    response: HttpResponse = view.reload_page(fragment="payment")
    text = request.POST.get("days", "").strip()
    try:
        with shop.locked_order(PLUGIN, order.number) as ours:
            said = _make(request, order, ours, text)
    except TillgateError as error:
        said = str(error)
    if said:
        messages.error(request, gettext("No link was made: %(detail)s.") % {"detail": said})
    elif request.POST.get("send"):
        messages.success(
            request,
            gettext("The payment link goes to %(email)s.") % {"email": order.email},
        )
    return response


def _make(request: HttpRequest, order: Any, ours: shop.OrderState, text: str) -> str:
    """Make or mail the link, and return why not, or an empty text."""
    if not request.user.is_staff:
        return gettext("only staff may give it away")
    if not orders.needs_payment(order, ours):
        return gettext("the order does not wait for payment")
    if ours.awaited and ours.awaited.title and not ours.awaited.is_voucher:
        return gettext("its money is on its way")
    until = orders.link_until(ours)
    if not (until and request.POST.get("send")):
        if not (
            text.isascii() and text.isdigit() and len(text) < 4 and 0 < int(text) <= _MOST_DAYS
        ):
            said = gettext("“%(text)s” is no number of days from 1 to %(most)s")
            return said % {"text": text[:20], "most": _MOST_DAYS}
        until = timezone.now() + timedelta(days=int(text))
        orders.keep_link(order, until)
    if request.POST.get("send"):
        if not order.email:
            return gettext("the order has no mail address")
        mail.send_link(ours)
    return ""
