"""Payments: the methods that a shopper can choose, and a payment that is started with one of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from tillgate import hooks
from tillgate.django import operations
from tillgate.django.conf import get_settings
from tillgate.django.forms import METHOD_LABELS
from tillgate.django.operations.values import payment_value
from tillgate.errors import TillgateError
from tillgate.wire.messages import Terminal
from tillgate.wire.money import CURRENCY

_log = logging.getLogger("tillgate")

__all__ = ["MethodChoice", "StartedPayment", "payment_methods", "start_payment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodChoice:
    """A payment method as a shopper chooses it: its code, its name in the active language, and the currencies that it takes."""

    code: str
    label: str
    currencies: tuple[str, ...]


def payment_methods() -> tuple[MethodChoice, ...]:
    """Return the payment methods that the owner offers, in the order of `TILLGATE["PAYMENT_METHODS"]`."""
    offered = get_settings().payment_methods
    return tuple(MethodChoice(code=one.value, label=str(METHOD_LABELS[one]), currencies=(CURRENCY,)) for one in offered)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedPayment:
    """The next step of a shopper: a redirect, or a problem with a message for the shopper, translated.

    `redirect_url` is the payment page, or empty. `is_paid`: the order is paid already, so lead the shopper to the order. `payment` is None
    where none was started.
    """

    redirect_url: str = ""
    message: str = ""
    is_paid: bool = False
    payment: hooks.Payment | None = None


def start_payment(
    plugin: str,
    order_key: str,
    method: str,
    *,
    terminal: str = Terminal.ONLINE,
    account: str = "default",
    data: dict[str, Any] | None = None,
) -> StartedPayment:
    """Start a payment of an order, or find the open one of the same method and amount. Call it outside any transaction.

    A faulty order, setting or plugin becomes a message for the shopper too, and is logged.
    """
    try:
        started = operations.start_payment(plugin, order_key, method=method, terminal=terminal, account=account, data=data, actor="start")
    except operations.NotPayable as error:
        return StartedPayment(message=_("This order cannot be paid: %(because)s.") % {"because": error})
    except TillgateError:
        _log.exception("payment of order %s:%s could not be started", plugin, order_key)
        return StartedPayment(
            message=_("The payment could not be started, and nothing was charged. Please try again later or ask the shop.")
        )
    value = payment_value(started.payment)
    if started.outcome is operations.StartOutcome.REDIRECT:
        return StartedPayment(redirect_url=started.payment.payment_url, payment=value)
    if started.outcome is operations.StartOutcome.PAID:
        return StartedPayment(is_paid=True, payment=value)
    return StartedPayment(message=explain(started.outcome), payment=value)


def explain(outcome: operations.StartOutcome) -> str:
    """Return what a shopper reads where no payment page was opened."""
    if outcome is operations.StartOutcome.REFUSED:
        return _("This way of paying cannot be used now. Nothing was charged. Please choose another, or try again later.")
    return _("The payment service did not answer. If you were charged, your order will be marked paid by itself. You can try again.")
