"""The hooks: what a payment of django-payments is to Tillgate, an order to be paid, and what becomes of it.

Installed packages are loaded without Django too, by Tillgate's command line for one: what needs Django is imported when it is called.
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
    """Reject the shop's payment that nobody paid."""
    from tillgate_django_payments import rows

    rows.unpaid(order)


@hookimpl
def tillgate_refund_changed(refund: Refund) -> None:
    """Take money that was refunded off the shop's payment."""
    from tillgate_django_payments import rows

    rows.refund_changed(refund)


@hookimpl
def tillgate_return_url(payment: Payment) -> str | None:
    """Bring the shopper to the page that the shop's payment names."""
    from tillgate_django_payments import rows

    return rows.return_url(payment)
