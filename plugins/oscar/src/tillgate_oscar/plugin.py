"""The hooks: they describe an Oscar order to Tillgate, and apply shop events to it. The module of each does the work.

Some programs load installed packages without Django, such as Tillgate's command line. So each hook imports Oscar only when it is called.
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
    """Record the payment in Oscar and give the order its paid status."""
    from tillgate_oscar import payments

    return payments.paid(payment)


@hookimpl
def tillgate_order_unpaid(order: Order) -> None:
    """Cancel the unpaid order, and release its stock and vouchers."""
    from tillgate_oscar import payments

    payments.unpaid(order)


@hookimpl
def tillgate_refund_changed(refund: Refund) -> None:
    """Record a refund in Oscar."""
    from tillgate_oscar import refunds

    refunds.changed(refund)


@hookimpl
def tillgate_return_url(payment: Payment) -> str:
    """Return the address of the order's page for the shopper."""
    from tillgate_oscar import orders

    return orders.status_url(payment.order.key)


@hookimpl
def tillgate_deliver(outbox_event: RemoteEvent) -> None:
    """Send the shopper Oscar's mail about a paid order."""
    from tillgate_oscar import mail

    mail.deliver(outbox_event)


_CAME_TO_NOTHING: Final = frozenset({"payment.failed", "payment.closed", "payment.expired", "payment.force-expired"})


@hookimpl
def tillgate_event(event: Event) -> None:
    """Remind the shopper of an order after its payment failed or expired."""
    if event.name in _CAME_TO_NOTHING and event.reference and str(event.fields.get("order", "")).startswith(f"{PLUGIN}:"):
        from tillgate_oscar import mail

        mail.remind(event.reference)
