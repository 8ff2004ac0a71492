"""The hooks: they describe a pretix order to Tillgate, and apply shop events to it. `orders` and
`refunds` do the work.

Some programs load installed packages without Django, such as Tillgate's command line. So each hook
imports pretix only when it is called.
"""

from __future__ import annotations

from typing import Final

from tillgate import Account
from tillgate.hooks import (
    Order,
    OrderDescription,
    PaidOutcome,
    Payment,
    Refund,
    RemoteEvent,
    Review,
    hookimpl,
)

PLUGIN: Final = "pretix"
"""The entry point's name, which Tillgate's rows carry."""

APP: Final = "tillgate_pretix"
"""The app's name, which an event lists among its active plugins."""


@hookimpl
def tillgate_account(alias: str) -> Account | None:
    """Return the account that an event keeps in its settings."""
    from tillgate_pretix import accounts

    return accounts.find(alias)


@hookimpl
def tillgate_describe_order(order_key: str) -> OrderDescription | None:
    """Describe the amount due on an order; it may be paid whenever pretix itself would accept a
    payment.
    """
    from tillgate_pretix import orders

    return orders.describe(order_key)


@hookimpl
def tillgate_payment_paid(payment: Payment) -> PaidOutcome:
    """Confirm pretix's payment, which makes the order paid and the tickets valid."""
    from tillgate_pretix import orders

    return orders.paid(payment)


@hookimpl
def tillgate_order_unpaid(order: Order) -> None:
    """Set pretix's unpaid payments to failed, and release the places if the event's settings say
    so.
    """
    from tillgate_pretix import orders

    orders.unpaid(order)


@hookimpl
def tillgate_refund_changed(refund: Refund) -> None:
    """Apply the result of a refund to pretix's own refund."""
    from tillgate_pretix import refunds

    refunds.changed(refund)


@hookimpl
def tillgate_review_opened(review: Review) -> None:
    """Show the review in the order's history, and book money that paid nothing, so that pretix can
    refund it.
    """
    from tillgate_pretix import orders

    orders.review_opened(review)


@hookimpl
def tillgate_review_url(review: Review) -> str | None:
    """Return the address of the event's page with the review."""
    from tillgate_pretix import orders

    return orders.review_url(review)


@hookimpl
def tillgate_return_url(payment: Payment) -> str | None:
    """Return the address of the event's own page about the order."""
    from tillgate_pretix import orders

    return orders.return_url(payment.order.key)


@hookimpl
def tillgate_deliver(outbox_event: RemoteEvent) -> None:
    """Apply a decision about a refund that staff made in pretix."""
    from tillgate_pretix import refunds

    refunds.settle(outbox_event)
