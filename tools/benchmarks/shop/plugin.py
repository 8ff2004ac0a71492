"""The shop's plugin: every order costs the same and may be paid for ever."""

from __future__ import annotations

from decimal import Decimal

from tillgate import Goods
from tillgate.hooks import Event, OrderDescription, PaidOutcome, Payment, hookimpl
from tools.benchmarks.shop.models import Effect


@hookimpl
def tillgate_describe_order(order_key: str) -> OrderDescription:
    """Describe an order."""
    return OrderDescription(
        number=f"B{order_key}",
        currency="USD",
        amount=Decimal("12.50"),
        lines=(Goods.named("Something nice"),),
    )


@hookimpl
def tillgate_payment_paid(payment: Payment) -> PaidOutcome:
    """Take effect, each time again."""
    Effect(order_key=payment.order.key).save(force_insert=True)
    return PaidOutcome.APPLIED


class Observer:
    """Counts the events that it hears of."""

    def __init__(self) -> None:
        self.heard = 0

    @hookimpl
    def tillgate_event(self, event: Event) -> None:
        """Count an event."""
        self.heard += bool(event.name)
