"""Rows as the frozen values that cross the hooks: a plugin never holds a row of ours."""

from __future__ import annotations

from tillgate import hooks
from tillgate.django.masking import Mask
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review
from tillgate.lifecycle import PaymentStatus, RefundStatus


def order_value(order: Order) -> hooks.Order:
    """Return an order's value."""
    return hooks.Order(plugin=order.plugin, key=order.key)


def payment_value(payment: Payment) -> hooks.Payment:
    """Return a payment's value."""
    return hooks.Payment(
        id=str(payment.pk),
        order=order_value(payment.order),
        reference=payment.reference,
        method=payment.method,
        amount=payment.amount,
        currency=payment.currency,
        status=PaymentStatus(payment.status),
        transaction_no=payment.transaction_no,
        data=payment.data,
    )


def refund_value(refund: Refund, status: str | None = None) -> hooks.Refund:
    """Return a refund's value, at the status of the event."""
    return hooks.Refund(
        id=str(refund.pk),
        payment=payment_value(refund.payment),
        amount=refund.amount,
        status=RefundStatus(status or refund.status),
        payment_paid_the_order=refund.payment.order.paid_by_id == refund.payment.pk,
        data=refund.data,
    )


def review_value(review: Review) -> hooks.Review:
    """Return a review's value; its message is without secrets."""
    order = order_value(review.order) if review.order else None
    payment = payment_value(review.payment) if review.payment else None
    account = (review.account or None) if order is None else None
    message = Mask([review.payment], [review.refund]).text(review.message)
    return hooks.Review(
        id=str(review.pk),
        reason=review.reason,
        message=message,
        order=order,
        payment=payment,
        account=account,
    )


def remote_event_value(outbox_event: OutboxEvent) -> hooks.RemoteEvent:
    """Return the value of an outbox event over the network."""
    return hooks.RemoteEvent(
        event_id=str(outbox_event.event_id),
        name=outbox_event.name,
        order=order_value(outbox_event.order),
        payment=payment_value(outbox_event.payment) if outbox_event.payment else None,
        refund=refund_value(outbox_event.refund) if outbox_event.refund else None,
        data=outbox_event.data,
    )
