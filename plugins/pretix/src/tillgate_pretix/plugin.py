"""The hooks: they describe a pretix order to Tillgate, and apply shop events to it."""

from __future__ import annotations

from tillgate.hooks import Payment, hookimpl
from tillgate_pretix import accounts, occasions, orders, refunds

tillgate_account = hookimpl(accounts.find)
tillgate_describe_order = hookimpl(orders.describe)
tillgate_find_orders = hookimpl(orders.search)
tillgate_customers = hookimpl(orders.customers)
tillgate_payment_paid = hookimpl(orders.paid)
tillgate_order_unpaid = hookimpl(orders.unpaid)
tillgate_refund_changed = hookimpl(refunds.changed)
tillgate_review_opened = hookimpl(orders.review_opened)
tillgate_review_url = hookimpl(orders.review_url)
tillgate_deliver = hookimpl(occasions.deliver)
tillgate_event = hookimpl(occasions.follow)


@hookimpl
def tillgate_return_url(payment: Payment) -> str | None:
    """Return the address of the event's own page about the order."""
    return orders.return_url(payment.order.key)
