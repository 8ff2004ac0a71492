"""Slow: bank debits and vouchers. Their money comes or fails days later."""

from __future__ import annotations

from datetime import timedelta

from tillgate.django.models import Payment
from tillgate.testing.conformance.judging import (
    at_payment_page,
    expect_paid_once,
    expect_released,
    expect_unpaid,
    pay,
)
from tillgate.testing.world import World
from tillgate.wire.details import NextStep

_VOUCHER = "https://pay.example/voucher/7"


class Slow:
    """Scenarios of money that is under way for days."""

    def test_days_until_paid(self, world: World) -> None:
        """An order with money under way is kept, however long it takes, and paid in the end."""
        order, payment = at_payment_page(world)
        _finish(world, payment)
        world.shopper_pays(payment)
        world.come_back(payment)
        _expect_kept(world, order)
        for _ in range(3):
            world.a_day_passes()
            _expect_kept(world, order)
        world.money.release(payment.reference)
        _let_worker_see(world)
        expect_paid_once(world, order)
        assert world.reviews() == []

    def test_days_until_failed(self, world: World) -> None:
        """An order with money that failed after days is kept for the time to pay again, and then
        released.
        """
        (order, payment), (again, other) = at_payment_page(world), at_payment_page(world)
        for one in (payment, other):
            _finish(world, one)
            world.gateway.decline(one.reference)
            world.come_back(one)
        for _ in range(2):
            world.a_day_passes()
        for one in (payment, other):
            world.money.release(one.reference)
        _let_worker_see(world)
        for key in (order, again):
            expect_unpaid(world, key)
            assert not world.shop.is_released(key), (
                "the money failed after days, and the order was released at once"
            )
            assert world.shop.is_payable(key), "the money failed, and the shopper cannot pay again"
        pay(world, again, world.gateway.other_method)
        expect_paid_once(world, again)
        world.time.advance(minutes=65)
        world.run_worker()
        expect_released(world, order)
        expect_paid_once(world, again)
        assert world.reviews() == []

    def test_voucher_that_nobody_pays(self, world: World) -> None:
        """The page of a voucher says that it is still to be paid. The order is kept until the
        voucher ends, and for the time to pay again.
        """
        order, payment = at_payment_page(world)
        until = world.time.now() + timedelta(days=2)
        _finish(world, payment, NextStep(url=_VOUCHER, until=until))
        page = world.come_back(payment).content.decode()
        assert f'href="{_VOUCHER}"' in page, "the page does not lead to the voucher"
        assert "Your payment is on its way" not in page, "the voucher is not paid yet"
        for _ in range(2):
            world.a_day_passes()
            _expect_kept(world, order)
        world.money.release(payment.reference)
        _let_worker_see(world)
        expect_unpaid(world, order)
        assert not world.shop.is_released(order), (
            "the voucher ended, and the order was released at once"
        )
        assert world.shop.is_payable(order), "the voucher ended, and the shopper cannot pay again"
        world.time.advance(minutes=65)
        world.run_worker()
        expect_released(world, order)
        assert world.reviews() == []

    def test_voucher_and_another_payment(self, world: World) -> None:
        """A shopper that pays in another way, and the voucher too, has paid the order once, and
        staff review the second payment.
        """
        order, voucher = at_payment_page(world)
        other = world.pay_page(order, world.gateway.other_method)
        until = world.time.now() + timedelta(days=2)
        _finish(world, voucher, NextStep(url=_VOUCHER, until=until))
        world.shopper_pays(voucher)
        world.come_back(voucher)
        world.shopper_pays(other)
        world.gateway_notification(other)
        expect_paid_once(world, order)
        assert world.reviews() == []
        world.money.release(voucher.reference)
        _let_worker_see(world)
        expect_paid_once(world, order)
        assert world.reviews() == ["second-payment"]


def _finish(world: World, payment: Payment, next_step: NextStep | None = None) -> None:
    """Let the shopper finish on the payment page, with money that takes days."""
    world.money.hold(payment.reference, next_step)


def _let_worker_see(world: World) -> None:
    world.time.advance(hours=6)
    assert world.run_worker().faults == []


def _expect_kept(world: World, order: str) -> None:
    expect_unpaid(world, order)
    assert not world.shop.is_released(order), (
        "money is under way, and the order was released: its money would come too late"
    )
