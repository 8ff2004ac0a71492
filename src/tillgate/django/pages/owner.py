"""The shop behind an order, as the shopper's pages ask it: its description, and its own page.

The shop's code may raise anything; a page must not break with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from django.utils import timezone

from tillgate import hooks
from tillgate.django.amounts import money_text
from tillgate.django.methods import label_of
from tillgate.django.models import Payment, database
from tillgate.django.orders.values import payment_value
from tillgate.lifecycle import PaymentStatus

_log = logging.getLogger("tillgate")


def described(plugin: str, order_key: str) -> hooks.OrderDescription | None:
    """Return the shop's description of an order, or None for an order that it does not know."""
    # as at start and delivery: a plugin may lock the rows that it reads
    with transaction.atomic(using=database()):
        found: hooks.OrderDescription | None = hooks.call_owner(
            plugin,
            "tillgate_describe_order",
            order_key=order_key,
        )
    return found


def described_if_possible(payment: Payment) -> hooks.OrderDescription | None:
    """Return the description of a payment's order, or None where the shop cannot give one."""
    try:
        return described(payment.order.plugin, payment.order.key)
    except Exception:  # the shop's own code may raise anything
        _log.exception("the order of %s could not be described", payment.reference)
        return None


def home(payment: Payment) -> str | None:
    """Return the shop's page for a payment, if the shop chose an allowed address."""
    try:
        url = hooks.call_owner(
            payment.order.plugin,
            "tillgate_return_url",
            payment=payment_value(payment),
        )
        return web_address(url)
    except Exception:  # the shop's own code may raise anything
        _log.exception("the shop's page for %s could not be found", payment.reference)
        return None


def web_address(url: object) -> str | None:
    """Return an address that a link may lead to, or None."""
    return url if isinstance(url, str) and urlsplit(url).scheme in ("", "http", "https") else None


def costs_as_paid(order: hooks.OrderDescription, payment: Payment) -> bool:
    """Tell whether an order still costs as much as its payment: it may have been edited."""
    return (order.amount, order.currency) == (payment.amount, payment.currency)


def needless_pages(
    payments: Iterable[Payment],
    order: hooks.OrderDescription,
    *,
    takes_money: bool,
) -> list[dict[str, Any]]:
    """Return the open payment pages that should take no payment: the order costs something else
    now, or takes no money. Of an order that takes none the pages that the gateway has closed too.
    """
    now = timezone.now()
    return [
        {
            "amount": money_text(payment.amount, payment.currency),
            "method": label_of(payment.method),
            "closes_at": payment.page_closes_at,
            "is_closed": payment.page_closed_at is not None,
        }
        for payment in payments
        if payment.page_closes_at > now
        and (
            not takes_money and payment.status != PaymentStatus.PAID
            if payment.page_closed_at
            else _takes_needless_money(payment, order, takes_money=takes_money)
        )
    ]


def _takes_needless_money(
    payment: Payment,
    order: hooks.OrderDescription,
    *,
    takes_money: bool,
) -> bool:
    is_open = payment.is_open and bool(payment.payment_url) and not payment.is_processing
    return is_open and not (takes_money and costs_as_paid(order, payment))
