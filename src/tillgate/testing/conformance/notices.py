"""Notices: what arrives from outside is a hint to ask, whatever it says, however often and in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection
from django.test import Client
from django.urls import reverse

from tillgate.testing.conformance.judging import expect_paid_once, expect_released, expect_unpaid, needs_a_person
from tillgate.testing.world import World, together

__all__ = ["Notices"]


class Notices:
    """Scenarios of notices and returns that are doubled, disordered, late, forged or lying."""

    def test_duplicate_notices(self, world: World) -> None:
        """However often notices and returns come, the order is paid once."""
        order = world.order()
        payment = world.pay_page(order)
        world.shopper_pays(payment)
        for _ in range(3):
            world.gateway_notice(payment)
            world.come_back(payment)
        world.a_day_passes()
        expect_paid_once(world, order)
        needs_a_person(world)

    def test_notices_returns_and_sweeps_at_once(self, world: World) -> None:
        """Notices, returns and sweeps that collide pay the order once, and none of them fails."""
        order = world.order()
        payment = world.pay_page(order)
        world.shopper_pays(payment)
        world.time.advance(seconds=10)
        notice, back = (reverse(f"tillgate:{name}", args=[key]) for name, key in _addresses(payment))

        def hears() -> int:
            return Client().post(notice).status_code

        def returns() -> int:
            return Client().get(back).status_code

        def sweeps() -> int:
            return len(world.sweep().faults)

        answers = together(hears, returns, sweeps, hears, returns)
        assert [answer for answer in answers if answer not in (0, 200, 302)] == []
        expect_paid_once(world, order)

    def test_reordered_notices(self, world: World) -> None:
        """An old notice that says "pending" after the one that says "success" changes nothing."""
        order = world.order()
        payment = world.pay_page(order)
        world.shopper_pays(payment)
        world.gateway_notice(payment)
        world.gateway_notice(payment, "stale", status="pending")
        world.gateway_notice(payment, "stale", status="failed")
        world.a_day_passes()
        expect_paid_once(world, order)

    def test_forged_notices(self, world: World) -> None:
        """Notices that say "success" and are not the gateway's pay nothing, signed wrongly or not at all, and ask it once at most."""
        world.configure(NOTICE_THROTTLE_SECONDS=60)
        order = world.order()
        payment = world.pay_page(order)
        lie = f"status=success&amount=12.50&currency=USD&reference={payment.reference}&transactionNo={payment.transaction_no}"
        world.gateway_notice(payment, "forged")
        world.notice(payment, lie)
        world.notice(payment, f"{lie}&verifySign=00000000000000000000000000000000")
        expect_unpaid(world, order)
        assert world.queries() <= 1, f"the gateway was asked {world.queries()} times (I7)"
        assert world.fresh(payment).status == "pending"

    def test_lying_return(self, world: World) -> None:
        """A shopper who comes back with "success" in the address and has not paid has paid nothing."""
        order = world.order()
        payment = world.pay_page(order)
        path = reverse("tillgate:return", args=[payment.return_key])
        for query in (f"status=success&amount=12.50&reference={payment.reference}", "status={status}&amount={amount}"):
            assert world.client.get(f"{path}?{query}").status_code == 200
        expect_unpaid(world, order)

    def test_late_notice(self, world: World) -> None:
        """A notice that comes a day after the sweep has found the money changes nothing more."""
        order = world.order()
        payment = world.pay_page(order)
        world.shopper_pays(payment)
        world.a_day_passes()
        expect_paid_once(world, order)
        world.gateway_notice(payment)
        expect_paid_once(world, order)
        needs_a_person(world)

    def test_late_money(self, world: World) -> None:
        """Money that comes after the cashier page has closed pays an order that the shop still keeps."""
        order = world.order()
        payment = world.pay_page(order)
        world.time.advance(hours=2, minutes=15)
        world.sweep()
        assert world.fresh(payment).status in ("closed", "expired")
        assert not world.shop.is_released(order)
        world.pays_late(payment)
        world.gateway_notice(payment)
        expect_paid_once(world, order)
        world.a_day_passes()
        expect_paid_once(world, order)

    def test_late_money_for_a_released_order(self, world: World) -> None:
        """Money that comes after the order was given up is recorded and raised for a person, though no notice tells of it."""
        order = world.order()
        payment = world.pay_page(order)
        world.a_day_passes()
        expect_released(world, order)
        world.pays_late(payment)
        world.time.advance(days=8)
        world.sweep()
        assert world.fresh(payment).status == "paid"
        expect_unpaid(world, order)
        needs_a_person(world, "paid-not-payable")

    def test_notice_is_kept_before_it_is_acknowledged(self, world: World) -> None:
        """A notice that could not be kept is not acknowledged, so that the gateway sends it again."""
        order = world.order()
        payment = world.pay_page(order)
        world.shopper_pays(payment)
        client, address = Client(raise_request_exception=False), reverse("tillgate:payment-notice", args=[payment.notice_key])
        with _broken_database():
            answer = client.post(address)
        assert answer.status_code >= 500, f"the notice was lost, and acknowledged with HTTP {answer.status_code}"
        assert client.post(address).content == b"success"
        expect_paid_once(world, order)


def _addresses(payment: Any) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("payment-notice", payment.notice_key), ("return", payment.return_key)


@contextmanager
def _broken_database() -> Iterator[None]:
    """Let every write fail, as on a full disk."""

    def refuse(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.split(maxsplit=1)[0].upper() in ("INSERT", "UPDATE", "DELETE"):
            raise OperationalError("the disk is full, says the test")
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse):
        yield
