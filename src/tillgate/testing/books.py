"""The facts that a shop must show about an order, by one definition for the conformance kit, the
simulator and the kill harness.
"""

from __future__ import annotations

from decimal import Decimal

from tillgate import money
from tillgate.django.models import Order, Payment, Refund
from tillgate.lifecycle import PaymentStatus, RefundStatus
from tillgate.testing.driver import ShopDriver


def fault_of_books(shop: ShopDriver, order_key: str, *, asks_whether_paid: bool = True) -> str:
    """Return the wrong facts of a shop about an order that only Tillgate pays, once all events are
    delivered; empty if all is right.

    Tillgate's rows say which payments are paid, which of them paid the order, and which refunds
    succeeded. `asks_whether_paid` is false for an order that staff made dearer after it was paid:
    shops regard it as they like.
    """
    order = Order.objects.filter(plugin=shop.plugin, key=order_key).first()
    paid = list(Payment.objects.filter(order=order, status=PaymentStatus.PAID)) if order else []
    own = [payment for payment in paid if order and payment.pk == order.paid_by_id]
    is_paid, times = shop.is_paid(order_key), shop.times_paid(order_key)
    if times != len(own):
        return (
            f"being paid took effect {times} times in the shop, and {len(own)} payments paid "
            f"order {order_key}"
        )
    sums = _sums(own)
    is_refunded = bool(own) and sums[0] <= sums[1]
    if asks_whether_paid and is_paid != bool(own) and not is_refunded:
        return (
            f"order {order_key} is {'paid' if own else 'unpaid'}, and the shop regards it as "
            f"{'paid' if is_paid else 'unpaid'}"
        )
    booked, refunded = shop.paid_amount(order_key), shop.refunded(order_key)
    if booked is None:
        is_right = refunded == sums[1]
        return (
            ""
            if is_right
            else f"the shop records {refunded} as refunded, and {sums[1]} of the money that paid "
            f"order {order_key} was"
        )
    if (booked, refunded) in (sums, everything := _sums(paid)):
        return ""
    came = " or ".join(f"{one} and {back}" for one, back in dict.fromkeys((sums, everything)))
    return (
        f"the shop has booked {booked} as paid and {refunded} as refunded for order "
        f"{order_key}, and it must be {came}"
    )


def _sums(payments: list[Payment]) -> tuple[Decimal, Decimal]:
    """Return the sum of some payments, and the sum of their refunds."""
    refunds = Refund.objects.filter(
        payment__in=payments,
        status=RefundStatus.SUCCEEDED,
    ).values_list("amount", flat=True)
    return money.total(payment.amount for payment in payments), money.total(refunds)
