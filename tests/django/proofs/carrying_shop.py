"""The smallest shop, but it also sends word of a paid payment over the network: a line in a file
replaces the other side.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.smallest_shop import plugin as smallest
from tillgate import hooks
from tillgate.django.outbox.remote import enqueue_remote

NAME = "carrying-shop"


class CarryingShop:
    """Queues two remote outbox events for the event that a payment is paid."""

    def __init__(self, carried: Path, reach: Callable[[str], object]) -> None:
        self._carried, self._reach = carried, reach

    @hooks.hookimpl
    def tillgate_describe_order(self, order_key: str) -> hooks.OrderDescription | None:
        return smallest.tillgate_describe_order(order_key)

    @hooks.hookimpl
    def tillgate_payment_paid(self, payment: hooks.Payment) -> hooks.PaidOutcome:
        outcome = smallest.tillgate_payment_paid(payment)
        for name in ("confirmation", "invoice"):
            enqueue_remote(NAME, payment.order.key, name, payment_id=payment.id)
        return outcome

    @hooks.hookimpl
    def tillgate_deliver(self, outbox_event: hooks.RemoteEvent) -> None:
        self._reach("before the shop over the network")
        with self._carried.open("a") as file:
            file.write(f"{outbox_event.order.key} {outbox_event.name} {outbox_event.event_id}\n")
        self._reach("after the shop over the network")


def plug_in(carried: Path, reach: Callable[[str], object] = lambda _: None) -> CarryingShop:
    """Register it."""
    shop = CarryingShop(carried, reach)
    hooks.plugin_manager().register(shop, name=NAME)
    return shop
