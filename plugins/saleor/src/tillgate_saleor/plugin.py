"""The hooks: they describe a checkout or order of a Saleor to Tillgate, and queue reports of shop
events to Saleor.
"""

from __future__ import annotations

from tillgate.hooks import hookimpl
from tillgate_saleor import ledger, reports

tillgate_describe_order = hookimpl(ledger.describe)
tillgate_payment_paid = hookimpl(ledger.paid)
tillgate_order_unpaid = hookimpl(ledger.unpaid)
tillgate_refund_changed = hookimpl(ledger.refund_changed)
tillgate_review_opened = hookimpl(ledger.review_opened)
tillgate_return_url = hookimpl(ledger.return_url)
tillgate_deliver = hookimpl(reports.deliver)
