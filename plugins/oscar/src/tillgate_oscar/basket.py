"""The way back to the basket: an unpaid order is cancelled, and its items, options and vouchers are put into the shopper's basket."""

from __future__ import annotations

from typing import Any

from django.db import router, transaction
from oscar.core.loading import get_model

from tillgate_oscar.payments import cancel

__all__ = ["cancel_into_basket"]


def cancel_into_basket(order: Any, basket: Any, user: Any) -> list[str] | None:
    """Cancel an order and fill a basket with it, both or neither. Return the titles that are not sold any more; None if it was too late.

    The basket is the shopper's open one and not the order's own: Oscar makes the number of an order from the number of its basket.
    """
    with transaction.atomic(using=router.db_for_write(type(order))):
        vouchers = list(get_model("voucher", "Voucher")._base_manager.filter(applications__order=order).distinct())
        if not cancel(order.number):
            return None
        gone = [line.title for line in order.lines.order_by("pk") if not _is_added(line, basket)]
        for voucher in vouchers if basket.pk else ():
            if voucher.is_active() and voucher.is_available_to_user(user)[0]:
                basket.vouchers.add(voucher)
    return gone


def _is_added(line: Any, basket: Any) -> bool:
    if line.product is None:
        return False
    options = [{"option": one.option, "value": one.value} for one in line.attributes.all() if one.option is not None]
    try:
        basket.add_product(line.product, line.quantity, options=options)
    except ValueError:  # it has no price or stock record any more, or the basket is in another currency
        return False
    return True
