"""Payments: the methods that a shopper can choose, and a payment that is started with one of them,
and polled.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from tillgate.django.accounts import find_account
from tillgate.django.methods import MethodChoice, choices_for, configured_choices
from tillgate.django.models import Payment
from tillgate.django.payments import admission, handing_out, reconciling, starting
from tillgate.django.payments.creating import StartOutcome
from tillgate.errors import TillgateError
from tillgate.money import Money
from tillgate.shop.states import PaymentState, find_payment
from tillgate.wire.methods import Terminal

_log = logging.getLogger("tillgate")

__all__ = [
    "MethodChoice",
    "StartOutcome",
    "StartedPayment",
    "has_payments",
    "may_continue",
    "payment_methods",
    "poll",
    "start_payment",
    "wait_for_creation",
]


def payment_methods(
    account: str | None = "default",
    price: Money | None = None,
) -> tuple[MethodChoice, ...]:
    """Return the payment methods that the owner offers with an account, in the order of
    `TILLGATE["PAYMENT_METHODS"]`.

    With the price of an order, a method that cannot take it has a `problem` for the shopper.
    Without an account, they are those of the settings, or else of the interface.
    """
    return (
        choices_for(find_account(account), price) if account is not None else configured_choices()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedPayment:
    """The next step of a shopper: a redirect, or a problem with a message for the shopper,
    translated.

    `redirect_url` is the payment page, or empty. `is_paid`: the order is paid already, so lead the
    shopper to the order. `outcome` and `payment` are None where no payment was started. `detail` is
    the gateway's own text, for staff.
    """

    redirect_url: str = ""
    message: str = ""
    is_paid: bool = False
    outcome: StartOutcome | None = None
    payment: PaymentState | None = None
    detail: str = ""


def start_payment(
    plugin: str,
    order_key: str,
    method: str,
    *,
    terminal: str = Terminal.ONLINE,
    account: str = "default",
    data: dict[str, Any] | None = None,
    shopper_ip: str | None = None,
    actor: str = "start",
) -> StartedPayment:
    """Start a payment of an order, or find the open one of the same method and amount. Call it
    outside any transaction.

    A faulty order, setting or plugin becomes a message for the shopper too, and is logged.
    `account` is the alias of the account, and `data` the plugin's own: hooks find it with the
    payment. `shopper_ip` is the request's `REMOTE_ADDR`, for gateways that ask for it.
    """
    try:
        started = starting.start_payment(
            plugin,
            order_key,
            method=method,
            terminal=terminal,
            account=account,
            data=data,
            shopper_ip=shopper_ip,
            actor=actor,
        )
    except admission.NotPayable as error:
        return StartedPayment(
            message=_("This order cannot be paid: %(detail)s.") % {"detail": error},
        )
    except TillgateError as error:
        level = logging.WARNING if isinstance(error, admission.TryLater) else logging.ERROR
        _log.log(
            level,
            "payment of order %s:%s could not be started: %s",
            plugin,
            order_key,
            error,
            exc_info=level == logging.ERROR,
        )
        return StartedPayment(
            message=_(
                "The payment could not be started, and nothing was charged. Please try again "
                "later or ask the shop.",
            ),
        )
    outcome = started.outcome
    return StartedPayment(
        redirect_url=started.payment.payment_url if outcome is StartOutcome.REDIRECT else "",
        message=outcome.message,
        is_paid=outcome is StartOutcome.PAID,
        outcome=outcome,
        payment=find_payment(plugin, payment_id=str(started.payment.pk)),
        detail=started.detail,
    )


def poll(payment_id: str, *, actor: str) -> PaymentState:
    """Ask the gateway about a payment, unless it was asked just now, apply the answer, and return
    the payment. Uses the network.
    """
    payment = reconciling.reconcile(
        Payment.objects.select_related("order").get(pk=int(payment_id)),
        actor,
    )
    state = find_payment(payment.order.plugin, payment_id=payment_id)
    assert state is not None
    return state


def may_continue(payment_id: str) -> bool:
    """Return whether a shopper may go on paying on the payment page of a payment.

    The page is open, its account is known, no answer of the gateway needs review, and the order is
    open and unpaid.
    """
    return handing_out.may_go_on(Payment.objects.select_related("order").get(pk=int(payment_id)))


def wait_for_creation(payment_id: str) -> bool:
    """Wait while another request creates a payment, at most 10 seconds. Returns whether there was
    such a request.
    """
    payment = Payment.objects.get(pk=int(payment_id))
    if not handing_out.is_being_created(payment):
        return False
    handing_out.wait_for_creation(payment)
    return True


def has_payments(account: str) -> bool:
    """Return whether a payment was ever started with an account."""
    return Payment.objects.filter(account=account).exists()
