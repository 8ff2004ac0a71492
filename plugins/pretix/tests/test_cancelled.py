"""A paid order that staff cancel in pretix: its money is refunded, or a review asks for it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django_scopes import scopes_disabled
from pretix.base.models import Order
from pretix.base.services.orders import cancel_order
from pretix.base.signals import periodic_task

from tests.shopping import at, bought, order_of
from tests.test_refunds import refunded_amount
from tillgate import shop
from tillgate.testing.world import World
from tillgate_pretix.orders import describe


def cancelled(world: World, *, fee: str | None = None, minutes: int = 15) -> Any:
    """Return a paid order that staff cancelled some minutes ago."""
    order, _ = bought(world)
    with at(order):
        cancel_order(order.pk, cancellation_fee=Decimal(fee) if fee else None)
    with scopes_disabled():
        ago = shop.now() - timedelta(minutes=minutes)
        Order.objects.filter(pk=order.pk).update(cancellation_date=ago)
    return order_of(world, str(order.pk))


def asked(world: World) -> list[str]:
    """Run pretix's periodic tasks, and return the reasons of the open reviews."""
    periodic_task.send(None)
    return world.reviews()


@pytest.mark.parametrize(("fee", "held"), [(None, "USD 12.50"), ("2.50", "USD 10.00")])
def test_money_above_fee_needs_review(world: World, fee: str | None, held: str) -> None:
    order = cancelled(world, fee=fee)
    assert asked(world) == ["cancelled-held"]
    [review] = shop.open_reviews("pretix")
    assert f"the order was cancelled, and {held} is still held" in review.message
    refunded_amount(order, held.removeprefix("USD "))
    assert world.reviews() == []
    assert asked(world) == []


def test_kept_fee_needs_no_review(world: World) -> None:
    cancelled(world, fee="12.50")
    assert asked(world) == []


def test_refund_in_time_needs_no_review(world: World) -> None:
    order = cancelled(world, minutes=1)
    assert asked(world) == []
    refunded_amount(order, "12.50")
    with scopes_disabled():
        Order.objects.update(cancellation_date=shop.now() - timedelta(hours=1))
    assert asked(world) == []


def test_dismissed_review_stays_dismissed(world: World) -> None:
    cancelled(world)
    assert asked(world) == ["cancelled-held"]
    [review] = shop.open_reviews("pretix")
    about = {"note": "agreed by phone", "version": review.version}
    shop.resolve_review(review.id, shop.ReviewAction.DISMISS, staff="ann", **about)
    assert asked(world) == []


def test_money_refunded_otherwise_closes_review(world: World) -> None:
    """By bank transfer, for example."""
    order = cancelled(world)
    assert asked(world) == ["cancelled-held"]
    with at(order):
        row = order.refunds.create(
            provider="manual",
            amount=Decimal("12.50"),
            state="created",
            source="admin",
        )
        row.done()
    assert world.reviews() == []


def test_order_is_described_as_cancelled(world: World) -> None:
    """The ledger check names it until its money is refunded."""
    order = cancelled(world)
    for amount, is_cancelled in (("5.00", True), ("7.50", False)):
        found = describe(str(order.pk))
        assert found is not None
        assert found.is_cancelled
        refunded_amount(order, amount)
        found = describe(str(order.pk))
        assert found is not None
        assert found.is_cancelled is is_cancelled
