"""Orders: registered and closed by the shop, and their state as a value."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from tillgate import hooks
from tillgate.django import operations, tickets
from tillgate.django.conf import get_settings
from tillgate.django.models import NOTHING, Order, Payment
from tillgate.django.operations.refunds import refundable
from tillgate.django.operations.reviews import reported_paid
from tillgate.django.operations.values import payment_value
from tillgate.errors import ConfigurationError
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES, OrderStatus, PaymentStatus
from tillgate.shop.reviews import OpenReview, reviews_of
from tillgate.wire import money

__all__ = ["OrderState", "close_order", "open_order", "order_state", "pay_url", "start_url"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderState:
    """What Tillgate knows of an order. Amounts are in the currency of its payments.

    `held_amount` is money that the gateway holds for the order: paid and not refunded, whether it paid the order or not.
    `refundable_amount` is what can still be refunded of `paid_by`, the payment that paid the order. `reported_paid`: the gateway says
    "paid" of a payment, though a check failed, so the shopper should not pay again. `open_payments` may still be paid.
    """

    status: OrderStatus
    held_amount: Decimal
    refunded_amount: Decimal
    refundable_amount: Decimal
    paid_by: hooks.Payment | None
    reported_paid: bool
    open_payments: tuple[hooks.Payment, ...]
    reviews: tuple[OpenReview, ...]


def order_state(plugin: str, order_key: str) -> OrderState | None:
    """Return the state of an order, or None for an order that was never opened and has no payment."""
    order = Order.objects.select_related("paid_by").filter(plugin=plugin, key=order_key).first()
    if order is None:
        return None
    payments = list(Payment.objects.filter(order=order).order_by("pk"))
    for payment in payments:
        payment.order = order
    paid = [payment for payment in payments if payment.status == PaymentStatus.PAID]
    refunded = {payment.pk: payment.refunded_amount for payment in paid}
    payer = next((payment for payment in paid if payment.pk == order.paid_by_id), None)
    return OrderState(
        status=order.status,
        held_amount=money.total(max(NOTHING, money.left_of(payment.amount, [refunded[payment.pk]])) for payment in paid),
        refunded_amount=money.total(refunded.values()),
        refundable_amount=refundable(payer) if payer else NOTHING,
        paid_by=payment_value(payer) if payer else None,
        reported_paid=bool(reported_paid([payment.pk for payment in payments])),
        open_payments=tuple(payment_value(payment) for payment in payments if payment.status in OPEN_PAYMENT_STATUSES),
        reviews=reviews_of(plugin, order_key),
    )


def open_order(plugin: str, order_key: str) -> None:
    """Register an order that awaits payment. Touches the database only: call it where the shop writes the order.

    If no shopper starts a payment, the plugin hears `tillgate_order_unpaid` as for any other order. Raises `ConfigurationError` where the
    plugin is not installed or does not know the order.
    """
    _require_known(plugin, order_key)
    operations.open_order(plugin, order_key)


def close_order(plugin: str, order_key: str) -> None:
    """Note that the shop cancelled an order: no payment starts, and open payments are still polled. Touches the database only.

    Raises `ConfigurationError` where the plugin is not installed or does not know the order.
    """
    _require_known(plugin, order_key)
    operations.close_order(plugin, order_key)


def pay_url(plugin: str, order_key: str) -> str:
    """Return the absolute address where an order can be paid, or paid again. It is good for a week; give it only to the order's shopper.

    Raises `ConfigurationError` where the plugin is not installed or does not know the order.
    """
    _require_known(plugin, order_key)
    return get_settings().absolute(tickets.pay_url(plugin, order_key))


def start_url(plugin: str, order_key: str, method: str) -> str:
    """Return the path that starts the payment which the shopper has just chosen; it is good for an hour.

    For a shop that is inside a transaction when the choice is made: the next request calls the gateway.
    """
    return tickets.start_url(plugin, order_key, method)


def _require_known(plugin: str, order_key: str) -> None:
    described = hooks.call_owner(plugin, "tillgate_describe_order", order_key=order_key)
    if described is None:
        raise ConfigurationError("order_key", order_key, f"is not an order that plugin {plugin!r} knows: it describes none")
