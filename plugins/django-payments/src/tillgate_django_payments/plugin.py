"""The hooks: they describe a payment of django-payments as an order to Tillgate, and apply shop
events to it.
"""

from __future__ import annotations

from tillgate.hooks import hookimpl
from tillgate_django_payments import rows

tillgate_describe_order = hookimpl(rows.describe)
tillgate_find_orders = hookimpl(rows.search)
tillgate_customers = hookimpl(rows.customers)
tillgate_payment_paid = hookimpl(rows.paid)
tillgate_order_unpaid = hookimpl(rows.unpaid)
tillgate_refund_changed = hookimpl(rows.refund_changed)
tillgate_return_url = hookimpl(rows.return_url)
