"""Money for what Saleor has ended meanwhile: a cashier page cannot be closed, so it may come all the same.

Saleor takes it without a word. An order that was cancelled is open again then, with no stock reserved for it, and a checkout that was
deleted becomes no order. So a person is told, and before Saleor is: afterwards nothing shows any more that it was ended.
"""

from __future__ import annotations

from typing import Final

from tillgate.django.models import Payment
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
    """Tell a person of money that Saleor does not want, if it has paid something here: of all other money one was told already."""
    if not because:
        return
    payment = Payment.objects.using(database()).select_related("order").get(pk=payment_id)
    with locked_order(payment.order_id) as order:
        purchase = find_purchase(order.key)
        if purchase is None or purchase.paid_reference != payment.reference:
            return
        sentence = f"Payment {payment.reference}: it was paid, but {because}."
        raise_attention(AttentionReason.PAID_NOT_PAYABLE, sentence, "saleor", order=order, payment=payment, account=payment.account)
