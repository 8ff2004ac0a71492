"""What the scenarios judge by."""

from __future__ import annotations

from tillgate.django.models import Payment
from tillgate.testing.world import World

__all__ = ["at_gateway", "expect_no_cashier", "expect_paid_once", "expect_unpaid", "needs_a_person"]


def expect_paid_once(world: World, order: str) -> None:
    """Fail unless the shop holds an order to be paid, by one payment."""
    shop = world.shop
    assert shop.is_paid(order), "the shopper paid, and the shop does not hold the order to be paid"
    assert shop.times_paid(order) == 1, f"being paid took effect {shop.times_paid(order)} times"
    assert not shop.is_released(order), "the order is paid, and the shop gave it up"
    assert not shop.is_payable(order), "the order is paid, and the shop still asks for money"


def expect_unpaid(world: World, order: str) -> None:
    """Fail unless the shop holds an order to be unpaid."""
    assert not world.shop.is_paid(order), "nobody paid, and the shop holds the order to be paid"
    assert world.shop.times_paid(order) == 0, "nobody paid, and being paid took effect in the shop"


def expect_no_cashier(world: World, order: str, vendor: str = "alipay") -> None:
    """Fail unless choosing a vendor leads to a page of the shop, and not to the cashier page."""
    answer = world.choose(order, vendor)
    to = answer.get("Location", "")
    assert not to.startswith(world.sandbox.base_url), f"choosing {vendor!r} led to the cashier page"
    assert answer.status_code < 500, f"choosing {vendor!r} is answered with HTTP {answer.status_code}"


def needs_a_person(world: World, *reasons: str) -> None:
    """Fail unless a person is told exactly so much."""
    told = world.attentions()
    assert told == list(reasons), f"a person was told {told}, and should be told {list(reasons)}"


def at_gateway(world: World, order: str) -> list[Payment]:
    """Return the payments of an order that the gateway has created, oldest first."""
    created = {one.reference for one in world.sandbox.service.transactions()}
    payments = Payment.objects.select_related("order").filter(order__plugin=world.shop.plugin, order__key=order).order_by("pk")
    return [payment for payment in payments if payment.reference in created]
