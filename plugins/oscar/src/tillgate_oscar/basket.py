"""The way back to the basket: the items, options and vouchers of an order that is or was cancelled
are put into the shopper's basket.
"""

from __future__ import annotations

from typing import Any

from django.db import router, transaction
from django.db.models import Q
from oscar.core.loading import get_model

from tillgate_oscar.payments import cancel


def cancel_into_basket(order: Any, basket: Any, user: Any) -> list[str] | None:
    """Cancel an order and fill a basket with it, both or neither. Return the titles that are not
    sold any more; None if it was too late.

    The basket is the shopper's open one and not the order's own: Oscar makes the number of an order
    from the number of its basket.
    """
    with transaction.atomic(using=router.db_for_write(type(order))):
        vouchers = _vouchers(order)
        if not cancel(order.number):
            return None
        return _filled(basket, list(order.lines.order_by("pk")), vouchers, user)


def order_again(order: Any, basket: Any, user: Any) -> list[str]:
    """Fill a basket with a cancelled order, and return the titles that are not sold any more. A
    second press adds nothing.
    """
    with transaction.atomic(using=router.db_for_write(type(order))):
        lines = [
            line
            for line in order.lines.order_by("pk")
            if not line.product or basket.product_quantity(line.product) < line.quantity
        ]
        return _filled(basket, lines, _vouchers(order), user)


def _vouchers(order: Any) -> list[Any]:
    """Return the vouchers of an order. A cancelled one has no use of them any more, and its
    discounts still name them.
    """
    named = Q(applications__order=order) | Q(
        pk__in=order.discounts.filter(voucher_id__isnull=False).values("voucher_id"),
    )
    return list(get_model("voucher", "Voucher")._base_manager.filter(named).distinct())


def _filled(basket: Any, lines: list[Any], vouchers: list[Any], user: Any) -> list[str]:
    gone = [line.title for line in lines if not _is_added(line, basket)]
    for voucher in vouchers if basket.pk else ():
        if voucher.is_active() and voucher.is_available_to_user(user)[0]:
            basket.vouchers.add(voucher)
    return gone


def _is_added(line: Any, basket: Any) -> bool:
    if line.product is None:
        return False
    options = [
        {"option": one.option, "value": one.value}
        for one in line.attributes.all()
        if one.option is not None
    ]
    try:
        basket.add_product(line.product, line.quantity, options=options)
    except (
        ValueError
    ):  # it has no price or stock record any more, or the basket is in another currency
        return False
    return True
