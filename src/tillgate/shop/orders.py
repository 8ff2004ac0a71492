"""Orders: registered and closed by the shop, and the addresses where a shopper pays them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction

from tillgate import hooks
from tillgate.django.conf import get_settings
from tillgate.django.models import Order, database
from tillgate.django.orders import registering
from tillgate.django.orders.times import unpaid_check_at
from tillgate.django.outbox import handlers
from tillgate.django.pages import tickets
from tillgate.django.refunds import cancelled
from tillgate.django.refunds.limits import RefundNotPossible
from tillgate.errors import ConfigurationError, InvalidRequest
from tillgate.lifecycle import PaymentStatus

__all__ = [
    "close_order",
    "ended_unpaid",
    "keep_money",
    "open_order",
    "order_data",
    "paid_order_keys",
    "pay_path",
    "pay_url",
    "set_order_data",
]


def open_order(
    plugin: str,
    order_key: str,
    *,
    actor: str = "shop",
    even_if_closed: bool = False,
    until: datetime | None = None,
) -> None:
    """Register an order that awaits payment. Call it where the shop writes the order, in the same
    transaction.

    `even_if_closed`: an order that was closed and is not paid holds its stock again, so the plugin
    hears `tillgate_order_unpaid` once more; it stays closed. `until`, with a time zone: if no
    payment starts, the plugin hears `tillgate_order_unpaid` then, in place of
    `ORDER_UNPAID_AFTER_MINUTES`; an order that waits already keeps its time. Raises
    `ConfigurationError` where the plugin is not installed or does not know the order.
    """
    _require_known(plugin, order_key)
    registering.open_order(plugin, order_key, actor, until)
    if even_if_closed:
        closed = Order.objects.filter(
            plugin=plugin,
            key=order_key,
            closed_at__isnull=False,
            paid_by=None,
            unpaid_check_at=None,
        )
        closed.update(unpaid_check_at=unpaid_check_at())


def close_order(
    plugin: str,
    order_key: str,
    *,
    actor: str = "shop",
    kept: Decimal = Decimal(0),
) -> None:
    """Note that the shop cancelled an order: no payment starts, and open payments are still polled.
    Touches the database only.

    Of a paid order the payment stays as it is. A review opens about the money that the gateway
    still holds and no refund takes: ask for the refund before, or see `keep_money`. `kept` is what
    the shop keeps of it by right, such as a cancellation fee. Does nothing for an order that was
    never opened.

    Raises `ConfigurationError` where the plugin is not installed or does not know the order.
    """
    _require_known(plugin, order_key)
    with transaction.atomic(using=database()):
        order = Order.objects.select_for_update().filter(plugin=plugin, key=order_key).first()
        if order is not None and order.paid_by_id:
            cancelled.review_cancelled(order, actor, kept)
        else:
            registering.close_order(plugin, order_key, actor)


def keep_money(plugin: str, order_key: str, *, staff: str, note: str) -> None:
    """Note that staff keep the money of a paid order that they cancel, or have cancelled: no review
    asks about it, and the ledger check names them. Call it before `close_order`.

    `note` says why. Raises `RefundNotPossible` where no payment has paid the order. Touches the
    database only.
    """
    order = Order.objects.filter(plugin=plugin, key=order_key).first()
    if order is None:
        raise RefundNotPossible(f"no payment has paid order {plugin}:{order_key}")
    cancelled.keep_money(order.pk, staff=staff, note=note)


def ended_unpaid(plugin: str, order_key: str) -> bool:
    """Return whether the plugin heard that the time to pay an order had passed, and the order was
    not closed before: a page may say so in plain words.
    """
    order = Order.objects.filter(plugin=plugin, key=order_key).first()
    return order is not None and handlers.ended_unpaid(order)


def set_order_data(plugin: str, order_key: str, **data: Any) -> None:
    """Store data of the plugin with an order, beside the stored data; None removes a key.
    `OrderState.data` holds it.
    """
    with transaction.atomic(using=database()):
        order = Order.objects.select_for_update().get(plugin=plugin, key=order_key)
        order.data = {
            name: value for name, value in {**order.data, **data}.items() if value is not None
        }
        order.save(update_fields=["data"])


def paid_order_keys(plugin: str, since: datetime) -> tuple[str, ...]:
    """Return the keys of the orders that a payment started after `since` has paid."""
    paid = Order.objects.filter(
        plugin=plugin,
        paid_by__status=PaymentStatus.PAID,
        paid_by__created_at__gt=since,
    )
    return tuple(paid.values_list("key", flat=True))


def order_data(plugin: str, order_key: str) -> dict[str, Any]:
    """Return the data that `set_order_data` stored with an order, in one statement; empty for an
    order that Tillgate does not know.
    """
    return (
        Order.objects.filter(plugin=plugin, key=order_key).values_list("data", flat=True).first()
        or {}
    )


def pay_path(plugin: str, order_key: str, method: str | None = None) -> str:
    """Return the path of `pay_url`, for a page of the shop itself. The plugin knows the order
    already.

    With the payment method that the shopper has just chosen, the path starts the payment, and is
    good for an hour. It serves a shop that is inside a transaction when the choice is made: the
    next request calls the gateway.
    """
    _require_text(order_key)
    return (
        tickets.start_url(plugin, order_key, method)
        if method
        else tickets.pay_url(plugin, order_key)
    )


def pay_url(plugin: str, order_key: str, *, until: datetime | None = None) -> str:
    """Return the address where an order can be paid, or paid again, for a week or `until`. Give it
    only to the order's shopper.

    The address keeps no goods: the time of `open_order` may be shorter or longer. Raises
    `ConfigurationError` where the plugin is not installed or does not know the order.
    """
    _require_known(plugin, order_key)
    ticket = tickets.new_ticket(plugin, order_key, until=until)
    return get_settings().address("tillgate:pay", ticket)


def _require_text(order_key: object) -> None:
    if not isinstance(order_key, str):
        raise InvalidRequest("order_key", order_key, "is not text: give str(...) of it")


def _require_known(plugin: str, order_key: str) -> None:
    _require_text(order_key)
    described = hooks.call_owner(plugin, "tillgate_describe_order", order_key=order_key)
    if described is None:
        raise ConfigurationError(
            "order_key",
            order_key,
            f"is not an order that plugin {plugin!r} knows: it describes none",
        )
