"""The plugin: an order becomes a payment, which changes the shop once paid, unpaid or refunded."""

from __future__ import annotations

from django.db.models import F

from tests.smallest_shop.models import ShopOrder
from tillgate import Goods
from tillgate.hooks import (
    Order,
    OrderDescription,
    PaidOutcome,
    Payment,
    Refund,
    RefundStatus,
    hookimpl,
)


@hookimpl
def tillgate_describe_order(order_key: str) -> OrderDescription | None:
    """Describe an order; it may be paid while it is open."""
    order = ShopOrder.objects.filter(pk=order_key).first()
    if order is None:
        return None
    return OrderDescription(
        number=f"S{order.pk}",
        amount=order.total,
        currency=order.currency,
        lines=(Goods.named("Something nice"),),
        not_payable_detail=None if order.status == "open" else f"it is {order.status}",
        is_cancelled=order.status == "cancelled",
    )


@hookimpl
def tillgate_payment_paid(payment: Payment) -> PaidOutcome:
    """Mark the order paid, if it is open and still costs no more, and book the money that came."""
    open_order = ShopOrder.objects.filter(pk=payment.order.key, status="open")
    booked = {"status": "paid", "paid_amount": payment.amount, "times_paid": F("times_paid") + 1}
    if open_order.filter(total__lte=payment.amount).update(**booked):
        return PaidOutcome.APPLIED
    return PaidOutcome.UNDERPAID if open_order.exists() else PaidOutcome.NOT_PAYABLE


@hookimpl
def tillgate_order_unpaid(order: Order) -> None:
    """Cancel the unpaid order."""
    ShopOrder.objects.filter(pk=order.key, status="open").update(
        status="cancelled",
        times_released=F("times_released") + 1,
    )


@hookimpl
def tillgate_refund_changed(refund: Refund) -> None:
    """Note money refunded. A second payment was never booked here, and neither is its refund."""
    if refund.status is RefundStatus.SUCCEEDED and refund.payment_paid_the_order:
        ShopOrder.objects.filter(pk=refund.payment.order.key).update(
            refunded=F("refunded") + refund.amount,
        )


@hookimpl
def tillgate_return_url(payment: Payment) -> str:
    """Bring the shopper to the order's page."""
    return f"/orders/{payment.order.key}/"
