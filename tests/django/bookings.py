"""Payments and refunds of given days, written as they stand at the end, for tests that only
read.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from tillgate.django.models import Order, Payment, Refund


def payment(reference: str, amount: str, at: str, **fields: Any) -> Payment:
    """Write a payment that reached its status at a moment in the form 2026-03-01T10:00+00:00; it is
    paid unless `status` says otherwise.
    """
    moment = datetime.fromisoformat(at)
    order = Order.objects.create(
        plugin="smallest",
        key=fields.pop("key", f"order-{reference}"),
        created_at=moment,
    )
    values = {
        "account": "default",
        "merchant_no": "1",
        "base_url": "https://gateway.example",
        "sandbox": False,
        "method": "alipay",
    }
    values |= {
        "currency": "USD",
        "status": "paid",
        "terminal": "ONLINE",
        "transaction_no": f"no-{reference}",
    }
    times = dict.fromkeys(("created_at", "page_closes_at", "expires_at", "status_since"), moment)
    return Payment.objects.create(
        order=order,
        reference=reference,
        amount=Decimal(amount),
        **{**values, **times, **fields},
    )


def refund(of: Payment, amount: str, at: str, **fields: Any) -> Refund:
    """Write a refund that succeeded at a moment, unless `status` says otherwise."""
    moment = datetime.fromisoformat(at)
    values = {"status": "succeeded", **fields}
    return Refund.objects.create(
        payment=of,
        amount=Decimal(amount),
        created_at=moment,
        status_since=moment,
        **values,
    )
