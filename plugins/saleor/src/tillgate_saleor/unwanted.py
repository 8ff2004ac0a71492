"""Money for what Saleor has ended meanwhile: a payment page cannot be closed, so it may come all the same.

Saleor takes it without a word. An order that was cancelled is open again then, with no stock reserved for it, and a checkout that was
deleted becomes no order. So a person is told, and before Saleor is: afterwards nothing shows any more that it was ended.
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
"""How an order stands that wants no more money."""
_ENDED: Final = {
    "CANCELED": "the order was cancelled in Saleor, which may open it again for the money, with no stock reserved",
    "EXPIRED": "the order had expired in Saleor, which may open it again for the money, with no stock reserved",
}


def unwanted_detail(status: str | None, charge_status: str | None) -> str:
    """Say why Saleor wants no money for an order, by what it says of it before it hears of the money; nothing if it does."""
    if detail := _ENDED.get(status or ""):
        return detail
    return "Saleor holds the order's money already, from elsewhere" if charge_status in PAID_CHARGE_STATUSES else ""


def tell_if_unwanted(payment_id: int, detail: str) -> None:
    """Tell a person of money that Saleor does not want, if it has paid something here, or is about to.

    Of all other money one was told already; what was refunded is nobody's matter any more.
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
