"""Remote events: queued inside a plugin's handler, delivered by its `tillgate_deliver` after the
commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.db import transaction

from tillgate import hooks
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, database
from tillgate.django.orders.values import remote_event_value
from tillgate.django.outbox import remote
from tillgate.django.outbox.remote import enqueue_remote
from tillgate.lifecycle import OutboxStatus

__all__ = [
    "OutboxStatus",
    "RemoteState",
    "deliver_remote",
    "enqueue_remote",
    "remote_events",
    "set_remote_data",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteState(hooks.RemoteEvent):
    """A remote event as it stands: it waits, fails, was delivered, or staff abandoned it."""

    status: OutboxStatus


def remote_events(
    plugin: str,
    *,
    order_key: str = "",
    payment_id: str = "",
    name: str = "",
) -> tuple[RemoteState, ...]:
    """Return the remote events of an order or of a payment, the oldest first; those of one name, if
    `name` is given.
    """
    chosen = OutboxEvent.objects.filter(order__plugin=plugin, kind=OutboxEventKind.REMOTE)
    if order_key or not payment_id:
        chosen = chosen.filter(order__key=order_key)
    if payment_id:
        chosen = chosen.filter(payment=int(payment_id))
    if name:
        chosen = chosen.filter(name=name)
    return tuple(
        _state(row)
        for row in chosen.select_related(
            "order",
            "payment__order",
            "refund__payment__order",
        ).order_by("pk")
    )


def set_remote_data(event_id: str, **data: Any) -> None:
    """Store data with a remote event, beside the stored data. Call it under the order's lock, see
    `locked_order`.
    """
    with transaction.atomic(using=database()):
        row = OutboxEvent.objects.select_for_update().get(event_id=event_id)
        row.data = {**row.data, **data}
        row.save(update_fields=["data"])


def deliver_remote(plugin: str, order_key: str) -> int:
    """Deliver the remote events of an order that are due, oldest first, and return how many were
    delivered. Uses the network.
    """
    order = Order.objects.filter(plugin=plugin, key=order_key).first()
    return remote.deliver_remote(order.pk) if order else 0


def _state(row: OutboxEvent) -> RemoteState:
    value = remote_event_value(row)
    values: Mapping[str, Any] = {one.name: getattr(value, one.name) for one in fields(value)}
    return RemoteState(**values, status=row.status)
