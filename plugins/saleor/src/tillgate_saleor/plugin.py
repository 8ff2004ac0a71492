"""The hooks: they describe a checkout or order of a Saleor to Tillgate, and queue reports of shop
events to Saleor.

Some programs load installed packages without Django, such as Tillgate's command line. So each hook
imports Django only when it is called.
"""

from __future__ import annotations

from typing import Final

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

PLUGIN: Final = "saleor"
"""The entry point's name, which Tillgate's rows carry."""


@hookimpl
def tillgate_describe_order(order_key: str) -> OrderDescription | None:
    """Describe a checkout or an order as Saleor last described it."""
    from tillgate_saleor import ledger

    return ledger.describe(order_key)


@hookimpl
def tillgate_payment_paid(payment: Payment) -> PaidOutcome:
    """Queue the report that a transaction is charged."""
    from tillgate_saleor import ledger

    return ledger.paid(payment)


@hookimpl
def tillgate_order_unpaid(order: Order) -> None:
    """Queue the report that an order is unpaid."""
    from tillgate_saleor import ledger

    ledger.unpaid(order)


@hookimpl
def tillgate_refund_changed(refund: Refund) -> None:
    """Queue the report of a refund's result."""
    from tillgate_saleor import ledger

    ledger.refund_changed(refund)


@hookimpl
def tillgate_review_opened(review: Review) -> None:
    """Queue the report of money that paid nothing: Saleor's books contain it too."""
    from tillgate_saleor import ledger

    ledger.review_opened(review)


@hookimpl
def tillgate_return_url(payment: Payment) -> str | None:
    """Return the storefront's address for the shopper."""
    from tillgate_saleor import ledger

    return ledger.return_url(payment)


@hookimpl
def tillgate_deliver(outbox_event: RemoteEvent) -> None:
    """Deliver a report to Saleor."""
    from tillgate_saleor import reports

    reports.deliver(outbox_event)
