"""Refunds, of a payment or of the payment that paid an order."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.db import connections

from tillgate import hooks
from tillgate.django import operations
from tillgate.django.models import Order, database
from tillgate.django.operations.values import refund_value

__all__ = ["refund", "refund_order"]


def refund(
    payment_id: str,
    amount: Decimal | str,
    *,
    staff: str = "",
    reason: str = "",
    data: Mapping[str, Any] | None = None,
    expected_refund: str | None = None,
) -> hooks.Refund:
    """Refund part or all of a payment, and return the refund as it stands.

    Outside a transaction the refund is sent now, and the returned status is its outcome. Inside one it is queued, and sent after the
    commit. `expected_refund` is the id of the newest refund that staff saw, "" for none: a newer one refuses the action.

    Raises `operations.RefundNotPossible` or `InvalidRequest`, and nothing was refunded.
    """
    seen = None if expected_refund is None else int(expected_refund or 0)
    about: dict[str, Any] = {"staff": staff, "reason": reason, "data": data, "seen": seen}
    is_inside = connections[database()].in_atomic_block
    row = operations.queue_refund(int(payment_id), amount, **about) if is_inside else operations.refund(int(payment_id), amount, **about)
    return refund_value(row)


def refund_order(plugin: str, order_key: str, amount: Decimal | str, **options: Any) -> hooks.Refund:
    """Refund part or all of the payment that paid an order. Options and errors are those of `refund`."""
    paid_by = Order.objects.filter(plugin=plugin, key=order_key).values_list("paid_by", flat=True).first()
    if paid_by is None:
        raise operations.RefundNotPossible(f"no payment has paid order {plugin}:{order_key}")
    return refund(str(paid_by), amount, **options)
