"""The hooks: what an Oscar order is to Tillgate, and what becomes of it. The module of each does the work.

Installed packages are loaded without Django too, by Tillgate's command line for one: what needs Oscar is imported when it is called.
"""

from __future__ import annotations

from typing import Final

from tillgate.hooks import Event, Order, OrderDescription, PaidOutcome, Payment, Refund, RemoteEvent, hookimpl

PLUGIN: Final = "oscar"
"""The entry point's name, which Tillgate's rows carry."""


@hookimpl
def tillgate_describe_order(order_key: str) -> OrderDescription | None:
    """Describe an order; it may be paid while it is pending."""
    from tillgate_oscar import orders

    return orders.describe(order_key)


@hookimpl
def tillgate_payment_paid(payment: Payment) -> PaidOutcome:
    """Write the money into Oscar's records and move the order on."""
    from tillgate_oscar import payments

    return payments.paid(payment)


@hookimpl
def tillgate_order_unpaid(order: Order) -> None:
    """Give the order up: stock and vouchers are free again."""
    from tillgate_oscar import payments

    payments.unpaid(order)


@hookimpl
def tillgate_refund_changed(refund: Refund) -> None:
    """Write money refunded into Oscar's records."""
    from tillgate_oscar import refunds

    refunds.changed(refund)


@hookimpl
def tillgate_return_url(payment: Payment) -> str:
    """Bring the shopper to the order."""
    from tillgate_oscar import orders

    return orders.status_url(payment.order.key)


@hookimpl
def tillgate_deliver(outbox_event: RemoteEvent) -> None:
    """Send the shopper mail."""
    from tillgate_oscar import mail

    mail.deliver(outbox_event)


_CAME_TO_NOTHING: Final = frozenset({"payment.failed", "payment.closed", "payment.expired", "payment.force-expired"})


@hookimpl
def tillgate_event(event: Event) -> None:
    """Remind the shopper of an order whose payment came to nothing."""
    if event.name in _CAME_TO_NOTHING and event.reference and str(event.fields.get("order", "")).startswith(f"{PLUGIN}:"):
        from tillgate_oscar import mail

        mail.remind(event.reference)
