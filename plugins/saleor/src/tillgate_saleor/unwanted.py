"""Money for orders and checkouts that ended in Saleor: a payment page cannot be closed, so money
may still come.

Saleor accepts it silently. A cancelled order is then open again, without reserved stock, and a
deleted checkout becomes no order. So the plugin opens a review before it reports the money:
afterwards Saleor no longer shows the cancellation.
"""

from __future__ import annotations

from typing import Final

from tillgate.hooks import Payment
from tillgate.shop import locked_order, open_review
from tillgate_saleor.conf import PLUGIN
from tillgate_saleor.transactions import find_purchase

GONE: Final = "what it was for is not in Saleor any more, and no order will come of it"
PAID_CHARGE_STATUSES: Final = frozenset({"FULL", "OVERCHARGED"})
"""The charge statuses of an order that needs no more money."""
_ENDED: Final = {
    "CANCELED": "the order was cancelled in Saleor, which may open it again for the money, with "
    "no stock reserved",
    "EXPIRED": "the order had expired in Saleor, which may open it again for the money, with no "
    "stock reserved",
}


def unwanted_detail(status: str | None, charge_status: str | None) -> str:
    """Return why Saleor wants no money for an order, by its status before the report of the money,
    or an empty string.
    """
    if detail := _ENDED.get(status or ""):
        return detail
    return (
        "Saleor holds the order's money already, from elsewhere"
        if charge_status in PAID_CHARGE_STATUSES
        else ""
    )


def tell_if_unwanted(payment: Payment, detail: str) -> None:
    """Open a review of money that Saleor does not want, if it has paid a purchase here, or is about
    to.

    All other money has its review already; refunded money needs none.
    """
    if not detail:
        return
    with locked_order(PLUGIN, payment.order.key) as order:
        held, purchase = order.payment(payment.id), find_purchase(order.key)
        if purchase is None or held is None or held.refunded_amount >= held.amount:
            return
        if purchase.paid_reference == held.reference or held.awaits_delivery:
            open_review(
                held.id, f"Payment {held.reference}: it was paid, but {detail}.", actor=PLUGIN
            )
