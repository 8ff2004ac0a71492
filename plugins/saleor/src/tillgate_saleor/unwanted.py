"""Money for what Saleor has ended meanwhile: a cashier page cannot be closed, so it may come all the same.

Saleor takes it without a word. An order that was cancelled is open again then, with no stock reserved for it, and a checkout that was
deleted becomes no order. So a person is told, and before Saleor is: afterwards nothing shows any more that it was ended.
"""

from __future__ import annotations

from typing import Final

from tillgate.django.models import Delivery, DeliveryKind, Payment
from tillgate.django.operations.attention import raise_attention
from tillgate.django.operations.locking import database, locked_order
from tillgate.lifecycle import AttentionReason
from tillgate_saleor.transactions import find_purchase

__all__ = ["GONE", "PAID_CHARGE_STATUSES", "tell_if_unwanted", "unwanted_because"]

GONE: Final = "what it was for is not in Saleor any more, and no order will come of it"
PAID_CHARGE_STATUSES: Final = frozenset({"FULL", "OVERCHARGED"})
"""How an order stands that wants no more money."""
_ENDED: Final = {
    "CANCELED": "the order was cancelled in Saleor, which may open it again for the money, with no stock reserved",
    "EXPIRED": "the order had expired in Saleor, which may open it again for the money, with no stock reserved",
}


def unwanted_because(status: str | None, charge_status: str | None) -> str:
    """Say why Saleor wants no money for an order, by what it says of it before it hears of the money; nothing if it does."""
    if because := _ENDED.get(status or ""):
        return because
    return "Saleor holds the order's money already, from elsewhere" if charge_status in PAID_CHARGE_STATUSES else ""


def tell_if_unwanted(payment_id: int, because: str) -> None:
    """Tell a person of money that Saleor does not want, if it has paid something here, or is about to.

    Of all other money one was told already; what was given back is nobody's matter any more.
    """
    if not because:
        return
    order_id = Payment.objects.using(database()).values_list("order_id", flat=True).get(pk=payment_id)
    with locked_order(order_id) as order:
        payment = Payment.objects.using(database()).get(pk=payment_id)
        purchase = find_purchase(order.key)
        if purchase is None or payment.given_back >= payment.amount:
            return
        told = Delivery.objects.using(database()).filter(payment=payment, kind=DeliveryKind.PAYMENT_PAID)
        if purchase.paid_reference != payment.reference and not told.filter(done_at__isnull=True).exists():
            return
        sentence = f"Payment {payment.reference}: it was paid, but {because}."
        raise_attention(AttentionReason.PAID_NOT_PAYABLE, sentence, "saleor", order=order, payment=payment, account=payment.account)
