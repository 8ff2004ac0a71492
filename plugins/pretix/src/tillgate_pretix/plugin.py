"""The hooks: what pretix asks money for, and what becomes of it. `orders` and `refunds` do the work.

Installed packages are loaded without Django too, by Tillgate's command line for one: what needs pretix is imported when it is called.
"""

from __future__ import annotations

from typing import Final

from tillgate.account import Account
from tillgate.hooks import Order, OrderDescription, PaidOutcome, Payment, Refund, RemoteEvent, Review, hookimpl

PLUGIN: Final = "pretix"
"""The entry point's name, which Tillgate's rows carry."""

APP: Final = "tillgate_pretix"
"""The app's name, by which an event knows whether it has the plugin."""


@hookimpl
def tillgate_account(alias: str) -> Account | None:
    """Return the account that an event keeps in its settings."""
    from tillgate_pretix import accounts

    return accounts.find(alias)


@hookimpl
def tillgate_describe_order(order_key: str) -> OrderDescription | None:
    """Describe what is due on an order; it may be paid whenever pretix itself would take money for it."""
    from tillgate_pretix import orders

    return orders.describe(order_key)


@hookimpl
def tillgate_payment_paid(payment: Payment) -> PaidOutcome:
    """Confirm pretix's payment, which makes the order paid and the tickets valid."""
    from tillgate_pretix import orders

    return orders.paid(payment)


@hookimpl
def tillgate_order_unpaid(order: Order) -> None:
    """Let pretix's payments fail that nobody paid, and free the places where the event says so."""
    from tillgate_pretix import orders

    orders.unpaid(order)


@hookimpl
def tillgate_refund_changed(refund: Refund) -> None:
    """Write what became of a refund into pretix's own."""
    from tillgate_pretix import refunds

    refunds.changed(refund)


@hookimpl
def tillgate_review_opened(review: Review) -> None:
    """Show it in the order's history, and book money that paid nothing, so that pretix can give it back."""
    from tillgate_pretix import orders

    orders.review_opened(review)


@hookimpl
def tillgate_return_url(payment: Payment) -> str | None:
    """Bring the shopper to the event's own page about the order."""
    from tillgate_pretix import orders

    return orders.return_url(payment.order.key)


@hookimpl
def tillgate_deliver(outbox_event: RemoteEvent) -> None:
    """Carry out what the staff decided in pretix about a refund."""
    from tillgate_pretix import refunds

    refunds.settle(outbox_event)
