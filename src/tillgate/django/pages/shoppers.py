"""The pages. The gateway posts to the notification addresses, shoppers come back to the return
page, and no page needs a session.

An unknown address returns 404 and stores no row, unless the gateway's signature shows that the
database has lost a payment. Tillgate stores every request to a known address and then returns 200,
even for invalid content: after "bad request" a gateway only sends the same again. If storing fails,
the answer is 500, or 503 where another process holds the order; the gateway's next try or the
worker makes up for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from decimal import Decimal
from functools import cache, partial
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from django.contrib.auth.decorators import login_not_required
from django.db import transaction
from django.db.models import F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.encoding import iri_to_uri
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods, require_safe

from tillgate import hooks, money
from tillgate.django.accounts import dialect_of
from tillgate.django.amounts import money_text
from tillgate.django.methods import label_of
from tillgate.django.models import Order, Payment, database
from tillgate.django.orders.locking import without_atomic_requests
from tillgate.django.orders.values import payment_value
from tillgate.django.outbox import delivering
from tillgate.django.pages.assets import ASSETS
from tillgate.django.pages.forms import MethodForm, terminal_of
from tillgate.django.pages.gateways import received
from tillgate.django.pages.outcomes import PAID, outcome_of
from tillgate.django.pages.tickets import (
    is_shopper,
    pay_url,
    read_start_ticket,
    read_ticket,
    remember_shopper,
)
from tillgate.django.payments import notifications, starting
from tillgate.django.payments.admission import NotPayable, TryLater
from tillgate.django.payments.creating import Started, StartOutcome
from tillgate.django.payments.handing_out import is_order_paid, may_go_on
from tillgate.django.payments.starting import why_not
from tillgate.django.reviews.opening import reported_paid
from tillgate.django.worker.watch import look_now_and_then
from tillgate.errors import ConfigurationError, TillgateError
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES, PaymentStatus
from tillgate.money import Money
from tillgate.wire.dialects import TransactionStatus

_log = logging.getLogger("tillgate")

_POLL_SECONDS: Final = 3
_PATIENT_POLLS: Final = 40
"""The number of requests of a waiting page; after that, in two minutes, it describes the next
steps.
"""
_LATE_POLL_SECONDS: Final = 20
_LATE_POLLS: Final = 180
"""The number of requests of a page that describes the next steps: for an hour it turns by itself
when money arrives.
"""


@login_not_required
@csrf_exempt
@without_atomic_requests
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def return_page(request: HttpRequest, key: str) -> HttpResponse:
    """Say what is known of a payment, and offer the next steps. A shopper who has paid goes on to
    the shop at once.

    No session is needed: wallets return in another browser. The page offers another payment method
    too. So the return address, which the shopper's browser and the gateway know, gives the
    authority to pay the order. That harms nobody: the pay page shows no more of the order than this
    one, and another person could only pay for the shopper. Only the browser that started the
    payment may change or cancel the order.
    """
    look_now_and_then()
    read = cache(partial(received, request))  # the address first: strangers cost no parsing
    # the page refreshes itself, or a scanner looks: neither counts as a return
    if request.GET.get("wait") or request.method == "HEAD":
        payment = Payment.objects.select_related("order").filter(return_key=key).first()
    else:
        payment = notifications.receive_return(key, read, request.method or "")
    if payment is None:
        raise Http404
    is_told = payment.is_open or _tell_shop(payment)
    order = _described_if_possible(payment) if payment.is_open else None
    if order and not order.payable:
        # a notification may have paid the order since the payment was read
        payment.refresh_from_db()
    waits, word = _waits(request), read().parameters.get("status", "")
    is_patient, says_paid = (
        waits < _PATIENT_POLLS,
        dialect_of(payment).status(word) is TransactionStatus.PAID,
    )
    outcome = outcome_of(payment, says_paid=says_paid, is_patient=is_patient, is_told=is_told)
    home = _home(payment)
    if home and outcome is PAID:
        return _private(HttpResponseRedirect(home))
    order = order or _described_if_possible(payment)
    may_pay = bool(
        outcome.offers
        and order
        and order.payable
        and not order.is_free
        and not payment.order.closed_at,
    )
    may_change = may_pay and is_shopper(request, payment)
    choose_url = (
        pay_url(payment.order.plugin, payment.order.key, may_change=may_change)
        if may_pay and _may_choose_here(payment)
        else ""
    )
    if home and outcome.offers and not payment.is_open and not choose_url:
        # the shop has its own page for another choice, or the order takes no payment
        return _private(HttpResponseRedirect(home))
    if may_pay and order and not choose_url:
        choose_url = _web_address(order.choose_url) or ""
    is_polling = outcome.awaits and is_patient
    is_late = (
        not is_patient and payment.is_open and not payment.is_in_doubt and not payment.is_processing
    )
    next_url, tired_url = (
        f"{request.path}?{urlencode({'wait': wait, 'status': word})}"
        for wait in (waits + 1, _PATIENT_POLLS)
    )
    page = {
        "outcome": outcome,
        "payment": payment,
        "order": order,
        "method": label_of(payment.method),
        "refunded_amount": payment.refunded_amount
        if payment.refunded_amount < payment.amount
        else None,  # all of it is an outcome
        "is_polling": is_polling,
        "poll_seconds": _POLL_SECONDS,
        "poll": (is_polling or is_late)
        and {
            "statusUrl": reverse("tillgate:status", args=[key])
            + ("?offers=payment" if may_pay else ""),
            "settledUrl": next_url,
            "tiredUrl": tired_url if is_polling else "",
            "seconds": _POLL_SECONDS if is_polling else _LATE_POLL_SECONDS,
            "times": _PATIENT_POLLS - waits if is_polling else _LATE_POLLS,
            "settled": _("The payment service has answered. One moment, please."),
        },
        "next_url": next_url,
        "look_again_url": request.path if payment.is_open else "",
        "payment_url": payment.payment_url
        if may_pay and may_go_on(payment) and _costs_as_paid(order, payment)
        else "",
        "choose_url": choose_url,
        "change_url": _web_address(order.change_url) if may_change and order else None,
        "home_url": home,
    }
    return _private(render(request, "tillgate/return.html", page))


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


def _home(payment: Payment) -> str | None:
    """Return the shop's page for a payment, if the shop chose an allowed address."""
    try:
        url = hooks.call_owner(
            payment.order.plugin,
            "tillgate_return_url",
            payment=payment_value(payment),
        )
        return _web_address(url)
    except Exception:  # the shop's own code may raise anything
        _log.exception("the shop's page for %s could not be found", payment.reference)
        return None


def _home_of(payments: QuerySet[Payment]) -> str | None:
    newest = payments.order_by("id").last()
    return _home(newest) if newest else None


def _web_address(url: object) -> str | None:
    return url if isinstance(url, str) and urlsplit(url).scheme in ("", "http", "https") else None


def _may_choose_here(payment: Payment) -> bool:
    """Tell whether our pay page can start another payment of the order: it uses the default
    account, and no data of the plugin's own.
    """
    return payment.account == "default" and not payment.data.keys() - {"language"}


def _costs_as_paid(order: hooks.OrderDescription | None, payment: Payment) -> bool:
    """Tell whether an order costs what its payment asks for: it may have been edited since."""
    return order is not None and (order.amount, order.currency) == (
        payment.amount,
        payment.currency,
    )


def _described_if_possible(payment: Payment) -> hooks.OrderDescription | None:
    try:
        return _described(payment.order.plugin, payment.order.key)
    except Exception:  # the shop's own code may raise anything
        _log.exception("the order of %s could not be described", payment.reference)
        return None


def _described(plugin: str, order_key: str) -> hooks.OrderDescription | None:
    # as at start and delivery: a plugin may lock the rows that it reads
    with transaction.atomic(using=database()):
        described: hooks.OrderDescription | None = hooks.call_owner(
            plugin,
            "tillgate_describe_order",
            order_key=order_key,
        )
    return described


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
    reads rows.

    A page that offers to pay must also change when another payment has paid the order, or the order
    was closed.
    """
    fields = ("pk", "status", "is_processing", "order__paid_by", "order__closed_at")
    found = Payment.objects.filter(return_key=key).values_list(*fields).first()
    if found is None:
        raise Http404
    number, stands, is_processing, paid_by, closed_at = found
    is_over = "offers" in request.GET and bool(paid_by or closed_at)
    is_settled = (
        stands not in OPEN_PAYMENT_STATUSES
        or is_processing
        or is_over
        or bool(reported_paid([number]))
    )
    return _private(JsonResponse({"status": stands, "settled": is_settled}))


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
            choice, told = (
                request.POST if request.method == "POST" else None,
                request.GET.get("held", ""),
            )
            return _pay(request, *authority, choice, told=told, may_change=may_change)
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
    plugin, order_key, method = chosen
    return _pay(request, plugin, order_key, {"method": method} if request.method == "GET" else None)


def _pay(
    request: HttpRequest,
    plugin: str,
    order_key: str,
    choice: Mapping[str, Any] | None,
    *,
    told: str = "",
    may_change: bool = True,
) -> HttpResponse:
    """Start the chosen payment and redirect the shopper, or show the page for another choice; that
    posts to `tillgate:pay`.

    `choice` holds the field `method`, or is None without a choice. `told` names the payments that
    the page showed as paid: if more money has come since, the page says so before the shopper pays
    again (I4). The payment carries the shopper's language, for mail. Without `may_change` the
    holder of the ticket may be a stranger, who only pays.
    """
    look_now_and_then()
    payments = _payments_of(plugin, order_key)
    form, is_asked_back = MethodForm(choice), False
    if choice is not None and _holds_news(payments, told):
        form, is_asked_back, choice = (
            MethodForm(initial={"method": choice.get("method")}),
            True,
            None,
        )
    problem = ""
    if choice is not None and form.is_valid():
        try:
            terminal = terminal_of(request.headers.get("User-Agent", ""))
            data = {"language": get_language()}
            method = form.cleaned_data["method"]
            started = starting.start_payment(
                plugin,
                order_key,
                method=method,
                terminal=terminal,
                data=data,
                despite=told.split(),
                shopper_ip=request.META.get("REMOTE_ADDR"),
            )
        except NotPayable as error:
            problem = _("This order cannot be paid: %(detail)s.") % {"detail": error}
        except TillgateError as error:
            level = logging.WARNING if isinstance(error, TryLater) else logging.ERROR
            _log.log(
                level,
                "payment of order %s:%s could not be started: %s",
                plugin,
                order_key,
                error,
                exc_info=level == logging.ERROR,
            )
            problem = _(
                "The payment could not be started, and nothing was charged. Please try again "
                "later or ask the shop.",
            )
        else:
            if started.outcome in (StartOutcome.REDIRECT, StartOutcome.PAID):
                return _private(_onward(request, started, may_change=may_change), "same-origin")
            problem = started.outcome.message
    held, under_review, on_its_way = _held(payments), _under_review(payments), _on_its_way(payments)
    paid_by = payments.filter(order__paid_by=F("pk")).first() or (
        held[0] if held and is_order_paid(held[0].order) else None
    )
    is_refunded = paid_by is not None and paid_by.refunded_amount >= paid_by.amount
    if paid_by and not is_refunded:
        return _private(
            render(request, "tillgate/pay.html", {"is_paid": True, "home_url": _home(paid_by)}),
            "same-origin",
        )
    try:
        described = _described(plugin, order_key)
    except ConfigurationError:  # the plugin that made the ticket is no longer installed
        _log.exception("order %s:%s could not be described", plugin, order_key)
        described = None
    if described is None:
        raise Http404
    is_free = described.is_free and not is_refunded
    detail = why_not(Order.objects.filter(plugin=plugin, key=order_key).first(), described)
    if is_refunded and not held:
        detail = _("it was paid, and all of the money was refunded")
    unable = ""
    if detail is None and (price := _price(described)):
        form = MethodForm(choice, price=price, initial=form.initial)
        if form.methods and all(method.problem for method in form.methods):
            unable = _("None of our payment methods takes %(amount)s.") % {
                "amount": money_text(price.amount, price.currency),
            }
    change_url = (
        _web_address(described.change_url)
        if may_change and not (held or under_review or on_its_way)
        else None
    )
    names = _names([*held, *under_review, *on_its_way])
    page = {
        "form": form,
        "problem": "" if is_free else problem or unable,
        "is_free": is_free,
        "order": described,
        "change_url": change_url,
        "is_asked_back": is_asked_back,
        "not_payable": detail,
        "again_url": change_url if described.not_payable_detail else None,
        "home_url": _home_of(payments) if is_free or detail is not None else None,
        "begun": _begun(payments, described.amount, described.currency),
        "held": _shown_held(held),
        "under_review": _methods_of(under_review),
        "on_its_way": _methods_of(on_its_way),
        # In the address, since a shop may have a form of its own.
        "pay_url": pay_url(plugin, order_key, may_change=may_change)
        + (f"?{urlencode({'held': names})}" if names else ""),
    }
    # Under "no-referrer" browsers post the form with "Origin: null", which Django's CSRF protection
    # refuses.
    return _private(
        render(request, "tillgate/pay.html", page, status=409 if problem and not is_free else 200),
        "same-origin",
    )


def _price(described: hooks.OrderDescription) -> Money | None:
    """Return the price of an order, or None where it is no exact amount: starting the payment
    refuses it with a reason.
    """
    try:
        return Money(described.amount, described.currency)
    except TillgateError:
        return None


def _payments_of(plugin: str, order_key: str) -> QuerySet[Payment]:
    return Payment.objects.select_related("order").filter(
        order__plugin=plugin,
        order__key=order_key,
    )


def _held(payments: QuerySet[Payment]) -> list[Payment]:
    """Return an order's paid payments that are not entirely refunded, including those that did not
    pay the order.
    """
    newest_first = payments.filter(status=PaymentStatus.PAID).order_by("-id")
    return [payment for payment in newest_first if payment.refunded_amount < payment.amount]


def _under_review(payments: QuerySet[Payment]) -> list[Payment]:
    """Return an order's payments that are reported paid although a check failed: staff review
    them.
    """
    newest_first = list(payments.exclude(status=PaymentStatus.PAID).order_by("-id"))
    called = reported_paid([payment.pk for payment in newest_first])
    return [payment for payment in newest_first if payment.pk in called]


def _on_its_way(payments: QuerySet[Payment]) -> list[Payment]:
    """Return an order's payments of which the shopper has finished, and the money has not
    arrived.
    """
    return list(
        payments.filter(status__in=OPEN_PAYMENT_STATUSES, is_processing=True).order_by("-id"),
    )


def _names(held: list[Payment]) -> str:
    return " ".join(payment.reference for payment in held)


def _methods_of(payments: list[Payment]) -> str:
    return ", ".join(dict.fromkeys(label_of(payment.method) for payment in payments))


def _holds_news(payments: QuerySet[Payment], told: str) -> bool:
    """Tell whether money came, or may have come, that the shopper's page did not show: the page may
    be older.
    """
    came = [*_held(payments), *_under_review(payments), *_on_its_way(payments)]
    return any(payment.reference not in told.split() for payment in came) and not is_order_paid(
        came[0].order,
    )


def _shown_held(held: list[Payment]) -> dict[str, Any] | None:
    """Return the message about money that did not pay the order, such as too little: its review is
    open (I4).
    """
    if not held:
        return None
    currencies = dict.fromkeys(payment.currency for payment in held)
    return {
        "method": _methods_of(held),
        "amount": ", ".join(
            _held_text([payment for payment in held if payment.currency == currency])
            for currency in currencies
        ),
    }


def _held_text(held: list[Payment]) -> str:
    amount = money.total(
        money.left_of(payment.amount, [payment.refunded_amount]) for payment in held
    )
    return money_text(amount, held[0].currency)


def _begun(payments: QuerySet[Payment], amount: Decimal, currency: str) -> dict[str, Any] | None:
    """Return the newest open payment of an order for this amount, or None."""
    newest_first = payments.filter(
        status__in=OPEN_PAYMENT_STATUSES,
        amount=amount,
        currency=currency,
    ).order_by("-id")
    payment = next(filter(may_go_on, newest_first), None)
    if payment is None:
        return None
    return {
        "method": label_of(payment.method),
        "payment_url": payment.payment_url,
        "return_url": reverse("tillgate:return", args=[payment.return_key]),
    }


def _onward(request: HttpRequest, started: Started, *, may_change: bool) -> HttpResponse:
    """Send the shopper to the payment page, by a page of ours that goes on at once, or to the
    return page of a paid order.

    Under the content security policy `form-action 'self'` Chromium refuses a redirect to another
    site after a form, without a word.
    """
    if started.outcome is not StartOutcome.REDIRECT:
        return HttpResponseRedirect(reverse("tillgate:return", args=[started.payment.return_key]))
    response = render(request, "tillgate/leave.html", {"payment": started.payment})
    response["Refresh"] = f"0; url={iri_to_uri(started.payment.payment_url)}"
    if may_change:
        remember_shopper(response, started.payment, is_secure=request.is_secure())
    return response


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
