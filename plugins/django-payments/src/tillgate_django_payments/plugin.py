"""The hooks: they describe a payment of django-payments as an order to Tillgate, and apply shop
events to it.

Some programs load installed packages without Django, such as Tillgate's command line. So each hook
imports Django only when it is called.
"""

from __future__ import annotations

from typing import Final

from tillgate.hooks import Order, OrderDescription, PaidOutcome, Payment, Refund, hookimpl

PLUGIN: Final = "django-payments"
"""The entry point's name, which Tillgate's rows carry."""


@hookimpl
def tillgate_describe_order(order_key: str) -> OrderDescription | None:
    """Describe a payment of the shop; it may be paid while it waits."""
    from tillgate_django_payments import rows

    return rows.describe(order_key)


@hookimpl
def tillgate_payment_paid(payment: Payment) -> PaidOutcome:
    """Confirm the shop's payment."""
    from tillgate_django_payments import rows

    return rows.paid(payment)


@hookimpl
def tillgate_order_unpaid(order: Order) -> None:
    """Reject the shop's unpaid payment."""
    from tillgate_django_payments import rows

    rows.unpaid(order)


@hookimpl
def tillgate_refund_changed(refund: Refund) -> None:
    """Subtract refunded money from the shop's payment."""
    from tillgate_django_payments import rows

    rows.refund_changed(refund)


@hookimpl
def tillgate_return_url(payment: Payment) -> str | None:
    """Return the address of the page that the shop's payment names."""
    from tillgate_django_payments import rows

    return rows.return_url(payment)
