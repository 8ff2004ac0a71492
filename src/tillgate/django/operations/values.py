"""Rows as the frozen values that cross the hooks: a plugin never holds a row of ours."""

from __future__ import annotations

from tillgate import hooks
from tillgate.django.models import Attention, Delivery, Order, Payment, Refund
from tillgate.lifecycle import PaymentStatus, RefundStatus

__all__ = ["attention_value", "delivery_value", "order_value", "payment_value", "refund_value"]


def order_value(order: Order) -> hooks.Order:
    """Return an order's value."""
    return hooks.Order(plugin=order.plugin, key=order.key)


def payment_value(payment: Payment) -> hooks.Payment:
    """Return a payment's value."""
    return hooks.Payment(
        id=str(payment.pk),
        order=order_value(payment.order),
        reference=payment.reference,
        vendor=payment.vendor,
        amount=payment.amount,
        currency=payment.currency,
        status=PaymentStatus(payment.status),
        transaction_no=payment.transaction_no,
        data=payment.data,
    )


def refund_value(refund: Refund, status: str | None = None) -> hooks.Refund:
    """Return a refund's value, at the status that is being told."""
    return hooks.Refund(
        id=str(refund.pk),
        payment=payment_value(refund.payment),
        amount=refund.amount,
        status=RefundStatus(status or refund.status),
        data=refund.data,
    )


def attention_value(attention: Attention) -> hooks.Attention:
    """Return an attention's value."""
    order = order_value(attention.order) if attention.order else None
    return hooks.Attention(id=str(attention.pk), reason=attention.reason, sentence=attention.sentence, order=order)


def delivery_value(delivery: Delivery) -> hooks.RemoteDelivery:
    """Return the value of a delivery over the network."""
    return hooks.RemoteDelivery(
        event_id=str(delivery.event_id),
        name=delivery.name,
        order=order_value(delivery.order),
        payment=payment_value(delivery.payment) if delivery.payment else None,
        refund=refund_value(delivery.refund) if delivery.refund else None,
        data=delivery.data,
    )
