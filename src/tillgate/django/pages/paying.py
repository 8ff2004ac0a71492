"""The page where an order is paid: it reads the money that came, starts the chosen payment, or
shows the choice.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import get_script_prefix, reverse
from django.utils.encoding import iri_to_uri
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from tillgate import hooks, money
from tillgate.django.amounts import money_text
from tillgate.django.methods import label_of
from tillgate.django.models import Order, Payment
from tillgate.django.outbox.handlers import ended_unpaid
from tillgate.django.pages import owner
from tillgate.django.pages.awaited import Awaited, awaited, may_be_paid
from tillgate.django.pages.browsers import app_of, opens_in, terminal_of
from tillgate.django.pages.forms import MethodForm
from tillgate.django.pages.places import place_at_gateway
from tillgate.django.pages.summaries import paid_with
from tillgate.django.pages.tickets import pay_url, remember_shopper, start_url
from tillgate.django.payments import starting
from tillgate.django.payments.admission import NotPayable, TryLater
from tillgate.django.payments.creating import Started, StartOutcome
from tillgate.django.payments.handing_out import is_order_paid, may_go_on
from tillgate.django.payments.starting import why_not
from tillgate.django.reviews.opening import reported_paid
from tillgate.django.worker.watch import look_now_and_then
from tillgate.errors import ConfigurationError, TillgateError
from tillgate.lifecycle import PaymentStatus
from tillgate.money import Money

_log = logging.getLogger("tillgate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A shopper's request to a pay page.

    `choice` holds the field `method`, or is None without a choice. `told` names the payments that
    the page showed as paid: if more money has come since, the page says so before the shopper pays
    again (I4). Without `may_change` the holder of the ticket may be a stranger and can only pay.
    """

    plugin: str
    order_key: str
    choice: Mapping[str, Any] | None
    told: str = ""
    may_change: bool = True
    user_agent: str = ""


def pay_order(request: HttpRequest, asked: Asked) -> HttpResponse:
    """Start the chosen payment and redirect the shopper, or show the page for another choice, which
    posts to `tillgate:pay`.
    """
    look_now_and_then()
    shown = _Shown(form=None)
    if asked.choice is not None:
        if _Payments(asked).has_news:
            chosen = asked.choice.get("method")
            shown = _Shown(form=None, is_asked_back=True, initial={"method": chosen})
        else:
            shown = _Shown(form=MethodForm(asked.choice, user_agent=asked.user_agent))
    if response := _pressed(request, asked, shown):
        return response
    payments = _Payments(asked)  # a start that failed may have changed them
    paid_by = payments.paid_by
    if paid_by and not payments.is_refunded:
        page = {"is_paid": True, "home_url": owner.home(paid_by)}
        return render(request, "tillgate/pay.html", page)
    try:
        order = owner.described(asked.plugin, asked.order_key)
    except ConfigurationError:  # the plugin that made the ticket is no longer installed
        _log.exception("order %s:%s could not be described", asked.plugin, asked.order_key)
        order = None
    if order is None:
        raise Http404
    has_failed = bool(shown.problem)
    page = _page(asked, payments, order, shown)
    page["page_link"] = request.build_absolute_uri(str(page["pay_url"]))
    status = 409 if has_failed and page["problem"] else 200
    return render(request, "tillgate/pay.html", page, status=status)


# Read ---------------------------------------------------------------------------------------------


class _Payments:
    """The payments of an order, the newest first, as the page sorts them."""

    def __init__(self, asked: Asked) -> None:
        self.told = asked.told.split()
        self.all = list(
            Payment.objects.select_related("order")
            .filter(order__plugin=asked.plugin, order__key=asked.order_key)
            .order_by("-id"),
        )

    @cached_property
    def held(self) -> list[Payment]:
        """Those with money at the gateway, including those that did not pay the order."""
        paid = [one for one in self.all if one.status == PaymentStatus.PAID]
        return [one for one in paid if one.refunded_amount < one.amount]

    @cached_property
    def under_review(self) -> list[Payment]:
        """Those that are reported paid although a check failed: staff review them."""
        unpaid = [one for one in self.all if one.status != PaymentStatus.PAID]
        called = reported_paid([one.pk for one in unpaid]) if unpaid else ()
        return [one for one in unpaid if one.pk in called]

    @cached_property
    def on_its_way(self) -> list[Payment]:
        """Those that the shopper has finished, while the money has not arrived."""
        return [one for one in self.all if one.is_open and one.is_processing]

    @cached_property
    def vouchers(self) -> dict[Payment, Awaited]:
        """Those of them that are a voucher or transfer to be paid, with their texts."""
        texts = {one: awaited(one) for one in self.on_its_way}
        return {one: text for one, text in texts.items() if text and text.is_voucher}

    @property
    def came(self) -> list[Payment]:
        """Those that brought money, or may have."""
        return [*self.held, *self.under_review, *self.on_its_way]

    @property
    def has_news(self) -> bool:
        """Whether money came, or may have come, that the shopper's page did not show."""
        came = self.came
        return any(one.reference not in self.told for one in came) and not is_order_paid(
            came[0].order,
        )

    @cached_property
    def paid_by(self) -> Payment | None:
        """The payment that paid the order, though the shop may not have heard of it yet."""
        applied = next((one for one in self.all if one.order.paid_by_id == one.pk), None)
        if applied or not self.held or not is_order_paid(self.held[0].order):
            return applied
        return self.held[0]

    @property
    def is_refunded(self) -> bool:
        """Whether all the money of the payment that paid the order was refunded."""
        return self.paid_by is not None and self.paid_by.refunded_amount >= self.paid_by.amount

    @property
    def is_uncharged(self) -> bool:
        """Whether no payment is paid or can still be paid, as far as the gateway's answers say."""
        ended = (not one.is_open and one.status != PaymentStatus.PAID for one in self.all)
        return all(ended) and not self.under_review

    @property
    def home(self) -> str:
        """The shop's page for the newest payment, or else its front page."""
        return (owner.home(self.all[0]) if self.all else None) or get_script_prefix()


# Act ----------------------------------------------------------------------------------------------


def _pressed(request: HttpRequest, asked: Asked, shown: _Shown) -> HttpResponse | None:
    """Start the payment that the form asks for, unless its method cannot open in this browser;
    return where the shopper goes on, or None where the page must be shown again.
    """
    if shown.form is None or not shown.form.is_valid():
        return None
    method = shown.form.cleaned_data["method"]
    shown.is_sent_elsewhere = not shown.form.opens_here(method)
    if shown.is_sent_elsewhere:
        return None
    with place_at_gateway() as has_place:
        if not has_place:
            return _one_moment(request, asked, method)
        started, shown.problem = _start(request, asked, method)
    return _onward(request, started, may_change=asked.may_change) if started else None


def _start(request: HttpRequest, asked: Asked, method: str) -> tuple[Started | None, str]:
    """Start a payment; return it where the shopper can go on with it, or else the problem."""
    try:
        started = starting.start_payment(
            asked.plugin,
            asked.order_key,
            method=method,
            terminal=terminal_of(request),
            data={"language": get_language()},  # for mail
            despite=asked.told.split(),
            shopper_ip=request.META.get("REMOTE_ADDR"),
        )
    except NotPayable as error:
        return None, _("This order cannot be paid: %(detail)s.") % {"detail": error}
    except TillgateError as error:
        is_usual = isinstance(error, TryLater)
        _log.log(
            logging.WARNING if is_usual else logging.ERROR,
            "payment of order %s:%s could not be started: %s",
            asked.plugin,
            asked.order_key,
            error,
            exc_info=not is_usual,
        )
        return None, _(
            "The payment could not be started, and nothing was charged. Please try again "
            "later or ask the shop.",
        )
    if started.outcome in (StartOutcome.REDIRECT, StartOutcome.PAID):
        return started, ""
    return None, started.outcome.message


def _onward(request: HttpRequest, started: Started, *, may_change: bool) -> HttpResponse:
    """Send the shopper to the payment page, by a page of ours that goes on immediately, or to the
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


def _one_moment(request: HttpRequest, asked: Asked, method: str) -> HttpResponse:
    """Show a page that starts the payment after a second."""
    told, may_change = asked.told, asked.may_change
    url = start_url(asked.plugin, asked.order_key, method, told=told, may_change=may_change)
    response = render(request, "tillgate/moment.html", {"start_url": url})
    response["Refresh"] = f"1; url={url}"
    return response


# Show ---------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Shown:
    """The form as the shopper left it, with the page's messages about it. `is_sent_elsewhere`: the
    chosen method cannot open in this browser.
    """

    form: MethodForm | None
    is_asked_back: bool = False
    initial: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    is_sent_elsewhere: bool = False


def _page(
    asked: Asked,
    payments: _Payments,
    order: hooks.OrderDescription,
    shown: _Shown,
) -> dict[str, Any]:
    is_free = order.is_free and not payments.is_refunded
    known = Order.objects.filter(plugin=asked.plugin, key=asked.order_key).first()
    detail = why_not(known, order)
    if payments.is_refunded and not payments.held:
        detail = _("it was paid, and all of the money was refunded")
    # A free order is no refused one: nothing is wrong with it.
    takes_money = detail is None and not is_free
    if takes_money:
        _offer(asked, order, shown)
    came, vouchers = payments.came, payments.vouchers
    change_url = owner.web_address(order.change_url) if asked.may_change and not came else None
    names = " ".join(one.reference for one in came)
    return {
        "form": shown.form,
        "problem": "" if is_free else shown.problem,
        "is_free": is_free,
        "order": order,
        "change_url": change_url,
        "is_asked_back": shown.is_asked_back,
        "is_sent_elsewhere": shown.is_sent_elsewhere,
        "not_payable": detail,
        "is_over": order.is_cancelled and known is not None and ended_unpaid(known),
        "is_uncharged": payments.is_uncharged,
        "again_url": change_url if order.not_payable_detail else None,
        "home_url": None if takes_money else payments.home,
        "begun": _begun(payments, order, asked.user_agent),
        "open_pages": owner.needless_pages(payments.all, order, takes_money=takes_money),
        "held": _shown_held(payments.held),
        "under_review": _methods_of(payments.under_review),
        "on_its_way": _methods_of([one for one in payments.on_its_way if one not in vouchers]),
        "vouchers": list(vouchers.values()),
        # In the address, since a shop may have a form of its own.
        "pay_url": pay_url(asked.plugin, asked.order_key, may_change=asked.may_change)
        + (f"?{urlencode({'held': names})}" if names else ""),
    }


def _offer(asked: Asked, order: hooks.OrderDescription, shown: _Shown) -> None:
    """Put the methods that take the order into the form, or say that none does."""
    try:
        price = Money(order.amount, order.currency)
    except TillgateError:  # starting the payment refuses such an amount with a reason
        shown.form = shown.form or MethodForm(initial=shown.initial, user_agent=asked.user_agent)
        return
    choice = None if shown.is_asked_back else asked.choice
    shown.form = form = MethodForm(
        choice,
        price=price,
        initial=shown.initial,
        user_agent=asked.user_agent,
    )
    if not shown.problem and form.methods and all(method.problem for method in form.methods):
        shown.problem = _("None of our payment methods takes %(amount)s.") % {
            "amount": money_text(price.amount, price.currency),
        }


def _methods_of(payments: list[Payment]) -> str:
    return ", ".join(dict.fromkeys(paid_with(payment) for payment in payments))


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


def _begun(
    payments: _Payments,
    order: hooks.OrderDescription,
    user_agent: str,
) -> dict[str, Any] | None:
    """Return the newest open payment that the shopper may have paid or None, with its payment page
    where the shopper may go on there, and that opens in this browser.
    """
    told = [*payments.under_review, *payments.on_its_way]
    begun = [one for one in payments.all if one.is_open and one.payment_url and one not in told]
    alike = (one for one in begun if owner.costs_as_paid(order, one))
    live = next(filter(may_go_on, alike), None)
    payment = live or next(iter(begun), None)
    if payment is None:
        return None
    opens_here = live is not None and opens_in(app_of(user_agent), payment.method)
    return {
        "may_be_paid": may_be_paid(),
        "method": label_of(payment.method) if live else "",
        "payment_url": payment.payment_url if opens_here else "",
        "return_url": reverse("tillgate:return", args=[payment.return_key]),
    }
