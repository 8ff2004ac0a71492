"""The shopper's pages. Shoppers come back to the return page, and no page needs a session.

An unknown address returns 404 and stores no row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_not_required
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods, require_safe

from tillgate import hooks
from tillgate.django.accounts import dialect_of
from tillgate.django.models import Payment
from tillgate.django.orders.locking import without_atomic_requests
from tillgate.django.outbox import delivering
from tillgate.django.pages import owner
from tillgate.django.pages.assets import ASSETS
from tillgate.django.pages.browsers import app_of, opens_in, user_agent_of
from tillgate.django.pages.gateways import received
from tillgate.django.pages.outcomes import PAID, Outcome, of_order, outcome_of
from tillgate.django.pages.paying import Asked, pay_order
from tillgate.django.pages.summaries import paid_with
from tillgate.django.pages.tickets import is_shopper, pay_url, read_start_ticket, read_ticket
from tillgate.django.payments import notifications
from tillgate.django.payments.handing_out import may_go_on
from tillgate.django.payments.reconciling import reconcile_once_more
from tillgate.django.payments.starting import why_not
from tillgate.django.reviews.opening import reported_paid
from tillgate.django.worker.watch import look_now_and_then
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES
from tillgate.wire.dialects import TransactionStatus
from tillgate.wire.notifications import Notification

_log = logging.getLogger("tillgate")

_POLL_SECONDS: Final = 3
_QUICK_POLLS: Final = 10
"""A page asks so often once a second, then every three: most money has arrived in ten seconds, and
a notification turns the page immediately.
"""
_PATIENT_POLLS: Final = 40
"""The number of requests of a waiting page; after that, in less than two minutes, it describes the
next steps.
"""
_LATE_POLL_SECONDS: Final = 20
_LATE_POLLS: Final = 180
"""The number of requests of a page that describes the next steps: for an hour it turns when money
arrives.
"""


@login_not_required
@csrf_exempt
@without_atomic_requests
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def return_page(request: HttpRequest, key: str) -> HttpResponse:
    """Show the state of a payment, and offer the next steps. A shopper that has paid goes on to the
    shop immediately.

    No session is needed: wallets return in another browser. The page offers another payment method
    too. So the return address, which the shopper's browser and the gateway know, gives the
    authority to pay the order. That does no harm: the pay page shows no more of the order than this
    one, and another person could only pay for the shopper. Only the browser that started the
    payment may change or cancel the order.
    """
    look_now_and_then()
    read = cache(partial(received, request))  # the address first: strangers cost no parsing
    began, payment = timezone.now(), _returned(request, key, read)
    if payment is None:
        raise Http404
    stand = _stand(request, payment, read().parameters.get("status", ""))
    if stand.home and stand.is_the_shops:
        return _private(HttpResponseRedirect(stand.home))
    page = {**_page(stand), "next_url": stand.next_url(), "poll": _poll(stand, began)}
    return _private(render(request, "tillgate/return.html", page))


# The return page: read ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stand:
    """How a payment and its order stand when a shopper comes back.

    `word` is the return's own status; `waits` counts the requests of the waiting page. `home` is
    the shop's page, and `is_the_shops` says that it comes instead of ours. `opens_here`: the
    payment page opens in this browser. `may_pay`: the order takes money. `choose_url` leads to
    another payment method.
    """

    path: str
    payment: Payment
    order: hooks.OrderDescription | None
    outcome: Outcome
    word: str
    waits: int
    home: str | None
    is_the_shops: bool = False
    opens_here: bool = True
    may_pay: bool = False
    may_change: bool = False
    choose_url: str = ""

    @property
    def is_patient(self) -> bool:
        return self.waits < _PATIENT_POLLS

    @property
    def is_polling(self) -> bool:
        """Whether the page shows that it checks again."""
        return self.outcome.awaits and self.is_patient

    @property
    def is_repriced(self) -> bool:
        """Whether the order takes another amount than the payment asks for."""
        return (
            self.order is not None
            and self.may_pay
            and self.outcome.offers == "buttons"
            and not owner.costs_as_paid(self.order, self.payment)
        )

    def next_url(self, waits: int | None = None) -> str:
        wait = self.waits + 1 if waits is None else waits
        return f"{self.path}?{urlencode({'wait': wait, 'status': self.word})}"


def _returned(request: HttpRequest, key: str, read: Callable[[], Notification]) -> Payment | None:
    # the page refreshes itself, or a scanner looks: neither counts as a return
    if request.GET.get("wait") or request.method == "HEAD":
        return Payment.objects.select_related("order").filter(return_key=key).first()
    return notifications.receive_return(key, read, request.method or "")


def _stand(request: HttpRequest, payment: Payment, word: str) -> _Stand:
    is_told = payment.is_open or _tell_shop(payment)
    order = owner.described_if_possible(payment) if payment.is_open else None
    if order and not order.payable:
        # a notification may have paid the order since the payment was read
        payment.refresh_from_db()
    waits = _waits(request)
    outcome = outcome_of(
        payment,
        says_paid=dialect_of(payment).status(word) is TransactionStatus.PAID,
        is_patient=waits < _PATIENT_POLLS,
        is_told=is_told,
    )
    home = owner.home(payment)
    stand = _Stand(
        path=request.path,
        payment=payment,
        order=order,
        outcome=outcome,
        word=word,
        waits=waits,
        home=home,
        is_the_shops=outcome is PAID,
        opens_here=opens_in(app_of(user_agent_of(request)), payment.method),
    )
    if home and outcome is PAID:
        return stand
    order = order or owner.described_if_possible(payment)
    return _with_offers(request, replace(stand, order=order)) if order else stand


def _with_offers(request: HttpRequest, stand: _Stand) -> _Stand:
    """Add the steps that the order allows, and say where it takes no money."""
    payment, order, outcome = stand.payment, stand.order, stand.outcome
    assert order is not None
    may_pay = bool(
        outcome.offers and order.payable and not order.is_free and not payment.order.closed_at,
    )
    may_change = may_pay and is_shopper(request, payment)
    choose_url = ""
    if may_pay and _may_choose_here(payment):
        choose_url = pay_url(payment.order.plugin, payment.order.key, may_change=may_change)
    # the shop has its own page for another choice, or the order takes no payment
    is_the_shops = bool(outcome.offers) and not payment.is_open and not choose_url
    if may_pay and not choose_url:
        choose_url = owner.web_address(order.choose_url) or ""
    return replace(
        stand,
        outcome=of_order(outcome, payment, order, why_not(payment.order, order)),
        is_the_shops=stand.is_the_shops or is_the_shops,
        may_pay=may_pay,
        may_change=may_change,
        choose_url=choose_url,
    )


def _waits(request: HttpRequest) -> int:
    text = request.GET.get("wait", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0


def _tell_shop(payment: Payment) -> bool:
    """Deliver the shop event of a settled payment first, or the shop's page might say that the
    order is open.

    Return whether it had its turn: a page does not wait for a handler that hangs.
    """
    try:
        return delivering.deliver_due(payment.order_id)
    except Exception:  # the shop's own code may raise anything
        _log.exception("whether the shop was told of %s could not be seen", payment.reference)
        return True


def _may_choose_here(payment: Payment) -> bool:
    """Tell whether our pay page can start another payment of the order: it uses the default
    account, and no data of the plugin's own.
    """
    return payment.account == "default" and not payment.data.keys() - {"language"}


# The return page: show ----------------------------------------------------------------------------


def _page(stand: _Stand) -> dict[str, Any]:
    payment, order, outcome = stand.payment, stand.order, stand.outcome
    refunded = payment.refunded_amount
    goes_on = stand.may_pay and stand.opens_here and not stand.is_repriced
    return {
        "outcome": outcome,
        "payment": payment,
        "order": order,
        "method": paid_with(payment),
        # all of it is an outcome
        "refunded_amount": refunded if refunded < payment.amount else None,
        "is_polling": stand.is_polling,
        "is_repriced": stand.is_repriced,
        "open_pages": _open_pages(stand),
        "poll_seconds": _POLL_SECONDS if stand.waits else 1,
        "look_again_url": stand.path if payment.is_open and not outcome.is_needless else "",
        "payment_url": payment.payment_url
        if goes_on and order and owner.costs_as_paid(order, payment) and may_go_on(payment)
        else "",
        "choose_url": stand.choose_url,
        "change_url": owner.web_address(order.change_url) if stand.may_change and order else None,
        "home_url": stand.home,
    }


def _open_pages(stand: _Stand) -> list[dict[str, Any]]:
    """Return the payment pages to warn of; not while the shopper may have just paid there."""
    outcome, payment = stand.outcome, stand.payment
    if stand.order is None or (outcome.offers != "buttons" and not outcome.is_needless):
        return []
    may_be_open = Q(status__in=OPEN_PAYMENT_STATUSES) | Q(page_closed_at__isnull=False)
    siblings = payment.order.payments.filter(may_be_open).order_by("-id")
    return owner.needless_pages(siblings, stand.order, takes_money=stand.may_pay)


def _poll(stand: _Stand, began: datetime) -> dict[str, Any] | None:
    """Return the facts that the script needs to turn the page: often while it waits, seldom for an
    hour after that, while money is under way, and for an order that takes no money.

    `began` is when the request began: its own query of the gateway allows one more.
    """
    payment, is_polling = stand.payment, stand.is_polling
    is_late = (
        payment.is_open
        and not payment.is_in_doubt
        and (payment.is_processing or stand.outcome.is_needless or not stand.is_patient)
    )
    if not is_polling and not is_late:
        return None
    path, asked_at = reverse("tillgate:status", args=[payment.return_key]), payment.last_returned_at
    asks = {"offers": "payment"} if stand.may_pay else {}
    asks |= {"stands": "under-way"} if payment.is_processing else {}
    again = {"after": asked_at.isoformat()} if asked_at and asked_at >= began else {}
    return {
        "statusUrl": f"{path}?{urlencode(asks)}",
        "firstUrl": f"{path}?{urlencode(asks | again)}",
        "quick": max(0, _QUICK_POLLS - stand.waits),
        "settledUrl": stand.next_url(),
        "tiredUrl": stand.next_url(_PATIENT_POLLS) if is_polling else "",
        "seconds": _POLL_SECONDS if is_polling else _LATE_POLL_SECONDS,
        "times": _PATIENT_POLLS - stand.waits if is_polling else _LATE_POLLS,
        "settled": _("The payment service has answered. One moment, please."),
    }


def _private(response: HttpResponse, referrer: str = "no-referrer") -> HttpResponse:
    # The address is a secret: the browser must not store it, and must not send it to the next site.
    response["Referrer-Policy"] = referrer
    response["Cache-Control"] = "no-store"
    response["X-Robots-Tag"] = "noindex"
    return response


@login_not_required
@never_cache
@require_safe
@without_atomic_requests
def status(request: HttpRequest, key: str) -> HttpResponse:
    """Return the state of a payment to its waiting page, and whether the page must change. It only
    reads rows, but for one query of the gateway after that of the return: `after` is its time.

    A page that offers to pay must also change when another payment has paid the order, or the order
    was closed. A page about money under way must not change for that.
    """
    payment = Payment.objects.select_related("order").filter(return_key=key).first()
    if payment is None:
        raise Http404
    if after := _moment(request.GET.get("after", "")):
        payment = reconcile_once_more(payment, after)
    order, is_open = payment.order, payment.status in OPEN_PAYMENT_STATUSES
    is_over = "offers" in request.GET and bool(order.paid_by_id or order.closed_at)
    is_settled = (
        not is_open
        or payment.is_processing is not ("stands" in request.GET)
        or is_over
        or bool(reported_paid([payment.pk]))
    )
    return _private(JsonResponse({"status": payment.status, "settled": is_settled}))


def _moment(text: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(text)
    return None


@login_not_required
@csrf_protect
@without_atomic_requests
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def pay(request: HttpRequest, ticket: str) -> HttpResponse:
    """Pay an order, or pay it again with another payment method. The ticket is the shop's authority
    over the order.

    The return page gives a ticket of less authority to any holder of its address.
    """
    for may_change in (True, False):
        if authority := read_ticket(ticket, may_change=may_change):
            plugin, order_key = authority
            asked = Asked(
                plugin=plugin,
                order_key=order_key,
                choice=request.POST if request.method == "POST" else None,
                told=request.GET.get("held", ""),
                may_change=may_change,
                user_agent=user_agent_of(request),
            )
            return _postable(pay_order(request, asked))
    raise Http404


@login_not_required
@csrf_protect
@without_atomic_requests
@never_cache
@require_safe
def start(request: HttpRequest, ticket: str) -> HttpResponse:
    """Start the payment that the shopper chose on a page of the shop. A repeated request gets the
    same payment page.
    """
    chosen = read_start_ticket(ticket)
    if chosen is None:
        raise Http404
    plugin, order_key, method, told, may_change = chosen
    asked = Asked(
        plugin=plugin,
        order_key=order_key,
        choice={"method": method} if request.method == "GET" else None,
        told=told,
        may_change=may_change,
        user_agent=user_agent_of(request),
    )
    return _postable(pay_order(request, asked))


def _postable(response: HttpResponse) -> HttpResponse:
    # Under "no-referrer" browsers post the form with "Origin: null", which Django's CSRF protection
    # refuses.
    return _private(response, "same-origin")


@login_not_required
@require_safe
@without_atomic_requests
def asset(request: HttpRequest, name: str) -> HttpResponse:
    """Serve the style and the script of our pages as separate files, which a strict content
    security policy allows.

    They need no `collectstatic` and no server for static files: a shopper's page must never lack
    them.
    """
    if name not in ASSETS:
        raise Http404
    return HttpResponse(
        ASSETS[name].text,
        content_type=ASSETS[name].content_type,
        headers={"Cache-Control": "public, max-age=86400"},
    )
