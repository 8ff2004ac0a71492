"""Money for orders and checkouts that ended in Saleor: a payment page cannot be closed, so money may still come.

Saleor accepts it silently. A cancelled order is then open again, without reserved stock, and a deleted checkout becomes no order. So the
plugin opens a review before it reports the money: afterwards Saleor no longer shows the cancellation.
"""

from __future__ import annotations

from typing import Final

from tillgate.django.models import OutboxEvent, OutboxEventKind, Payment
from tillgate.django.operations.locking import locked_order
from tillgate.django.operations.reviews import open_review
from tillgate.lifecycle import ReviewReason
from tillgate_saleor.transactions import find_purchase

__all__ = ["GONE", "PAID_CHARGE_STATUSES", "tell_if_unwanted", "unwanted_detail"]

GONE: Final = "what it was for is not in Saleor any more, and no order will come of it"
PAID_CHARGE_STATUSES: Final = frozenset({"FULL", "OVERCHARGED"})
"""The charge statuses of an order that needs no more money."""
_ENDED: Final = {
    "CANCELED": "the order was cancelled in Saleor, which may open it again for the money, with no stock reserved",
    "EXPIRED": "the order had expired in Saleor, which may open it again for the money, with no stock reserved",
}


def unwanted_detail(status: str | None, charge_status: str | None) -> str:
    """Return why Saleor wants no money for an order, by its status before the report of the money, or an empty string."""
    if detail := _ENDED.get(status or ""):
        return detail
    return "Saleor holds the order's money already, from elsewhere" if charge_status in PAID_CHARGE_STATUSES else ""


def tell_if_unwanted(payment_id: int, detail: str) -> None:
    """Open a review of money that Saleor does not want, if it has paid a purchase here, or is about to.

    All other money has its review already; refunded money needs none.
    """
    if not detail:
        return
    order_id = Payment.objects.values_list("order_id", flat=True).get(pk=payment_id)
    with locked_order(order_id) as order:
        payment = Payment.objects.get(pk=payment_id)
        purchase = find_purchase(order.key)
        if purchase is None or payment.refunded_amount >= payment.amount:
            return
        told = OutboxEvent.objects.filter(payment=payment, kind=OutboxEventKind.PAYMENT_PAID)
        if purchase.paid_reference != payment.reference and not told.filter(done_at__isnull=True).exists():
            return
        message = f"Payment {payment.reference}: it was paid, but {detail}."
        open_review(ReviewReason.PAID_NOT_PAYABLE, message, "saleor", order=order, payment=payment, account=payment.account)
