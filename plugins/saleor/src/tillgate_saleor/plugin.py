"""The hooks: they describe a checkout or order of a Saleor to Tillgate, and queue reports of shop
events to Saleor.
"""

from __future__ import annotations

from tillgate.hooks import hookimpl
from tillgate_saleor import orders, reports

tillgate_describe_order = hookimpl(orders.describe)
tillgate_payment_paid = hookimpl(orders.paid)
tillgate_order_unpaid = hookimpl(orders.unpaid)
tillgate_refund_changed = hookimpl(orders.refund_changed)
tillgate_review_opened = hookimpl(orders.review_opened)
tillgate_event = hookimpl(orders.moved)
tillgate_return_url = hookimpl(orders.return_url)
tillgate_deliver = hookimpl(reports.deliver)
