"""An order that the shop expects money for before any payment has started."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import transaction

from tests.smallest_shop.placing import unregistered
from tillgate.django.models import Order
from tillgate.django.orders import registering
from tillgate.django.payments import admission
from tillgate.testing.world import World


def test_unstarted_expected_order_becomes_unpaid(world: World) -> None:
    order = world.order()
    registering.open_order(world.shop.plugin, order)
    world.run_worker()
    assert world.shop.is_payable(order), "the shopper still has time"
    world.time.advance(minutes=61)
    world.run_worker()
    assert world.shop.is_released(order)


def test_paid_expected_order_never_becomes_unpaid(world: World) -> None:
    order = world.shop.place_order(Decimal("12.50"))
    registering.open_order(world.shop.plugin, order)
    payment = world.start(order)
    world.time.advance(minutes=61)
    world.run_worker()
    assert world.shop.is_payable(order), "a payment is open"
    world.shopper_pays(payment)
    world.notification(payment)
    world.time.advance(days=1)
    world.run_worker()
    assert world.shop.is_paid(order)
    assert not world.shop.is_released(order)


def test_repeated_or_late_expecting_changes_nothing(world: World) -> None:
    order = unregistered()
    payment = world.start(order)
    registering.open_order(world.shop.plugin, order)
    registering.open_order(world.shop.plugin, order)
    assert Order.objects.get().unpaid_check_at is None
    assert world.fresh(payment).is_open


def test_unpaid_order_can_be_expected_again(world: World) -> None:
    order = world.order()
    registering.open_order(world.shop.plugin, order)
    world.time.advance(minutes=61)
    assert world.run_worker().counts["unpaid orders"] == 1
    world.time.advance(days=1)
    assert world.run_worker().counts["unpaid orders"] == 0
    registering.open_order(world.shop.plugin, order)
    assert world.run_worker().counts["unpaid orders"] == 0
    world.time.advance(minutes=61)
    assert world.run_worker().counts["unpaid orders"] == 1


def test_settled_order_is_not_expected_again(world: World) -> None:
    """It is paid or closed."""
    paid, closed = world.start(unregistered()), unregistered()
    world.shopper_pays(paid)
    world.notification(paid)
    registering.open_order(world.shop.plugin, closed)
    registering.close_order(world.shop.plugin, closed)
    Order.objects.update(unpaid_check_at=None)
    for key in (paid.order.key, closed):
        registering.open_order(world.shop.plugin, key)
    assert not Order.objects.filter(unpaid_check_at__isnull=False).exists()


def test_rolled_back_order_is_not_expected(world: World) -> None:
    with transaction.atomic():
        registering.open_order(world.shop.plugin, "1")
        transaction.set_rollback(True)
    assert not Order.objects.exists()


def test_free_order_is_not_released(world: World) -> None:
    order, other = world.order(), world.order()
    for one in (order, other):
        registering.open_order(world.shop.plugin, one)
    world.shop.edit_total(order, Decimal("0.00"))
    world.a_day_passes()
    assert not world.shop.is_released(order)
    assert world.shop.is_released(other)
    world.shop.edit_total(order, Decimal("12.50"))
    registering.open_order(world.shop.plugin, order)
    world.a_day_passes()
    assert world.shop.is_released(order)


def test_free_order_starts_no_payment(world: World) -> None:
    order = unregistered("0.00")
    with pytest.raises(admission.NotPayable, match=r"^there is nothing to pay$"):
        world.start(order)
    assert not Order.objects.exists()
