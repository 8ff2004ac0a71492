"""Notifications: a message from outside is only a hint to reconcile, with any content, number and
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection
from django.test import Client
from django.urls import reverse

from tillgate.django.refunds import queueing
from tillgate.testing.conformance.judging import (
    at_payment_page,
    expect_paid_once,
    expect_released,
    expect_unpaid,
    needs_review,
    paid_at_gateway,
    pay,
)
from tillgate.testing.world import World, together


class Notifications:
    """Scenarios of notifications and returns that are doubled, disordered, late, forged or
    lying.
    """

    def test_duplicate_notifications(self, world: World) -> None:
        """However often notifications and returns come, the order is paid once."""
        order, payment = paid_at_gateway(world)
        for _ in range(3):
            world.gateway_notification(payment)
            world.come_back(payment)
        world.a_day_passes()
        expect_paid_once(world, order)
        needs_review(world)

    def test_notifications_returns_and_worker_runs_at_once(self, world: World) -> None:
        """Notifications, returns and worker runs that collide pay the order once, and none of them
        fails.
        """
        order, payment = paid_at_gateway(world)
        world.time.advance(seconds=10)
        notification = reverse("tillgate:payment-notification", args=[payment.notification_key])
        back = reverse("tillgate:return", args=[payment.return_key])

        acts = [
            lambda: Client().post(notification).status_code,
            lambda: Client().get(back).status_code,
        ]
        answers = together(*acts, lambda: len(world.run_worker().faults), *acts)
        assert [answer for answer in answers if answer not in (0, 200, 302)] == []
        expect_paid_once(world, order)

    def test_reordered_notifications(self, world: World) -> None:
        """An old notification that says "pending" after the one that says "success" changes
        nothing.
        """
        order = world.order()
        payment = pay(world, order)
        world.gateway_notification(payment, "stale", status="pending")
        world.gateway_notification(payment, "stale", status="failed")
        world.a_day_passes()
        expect_paid_once(world, order)

    def test_forged_notifications(self, world: World) -> None:
        """Forged notifications that say "success", signed wrongly or unsigned, pay nothing and
        cause at most one query.
        """
        world.configure(NOTIFICATION_THROTTLE_SECONDS=60)
        order, payment = at_payment_page(world)
        lie = (
            "status=success&amount=12.50&currency=USD"
            f"&reference={payment.reference}&transactionNo={payment.transaction_no}"
        )
        world.gateway_notification(payment, "forged")
        world.notification(payment, lie)
        world.notification(payment, f"{lie}&verifySign=00000000000000000000000000000000")
        expect_unpaid(world, order)
        assert world.queries() <= 1, f"the gateway received {world.queries()} queries (I7)"
        assert world.fresh(payment).status == "pending"

    def test_lying_return(self, world: World) -> None:
        """A shopper that returns unpaid, with "success" in the address, has paid nothing."""
        order, payment = at_payment_page(world)
        path = reverse("tillgate:return", args=[payment.return_key])
        for query in (
            f"status=success&amount=12.50&reference={payment.reference}",
            "status={status}&amount={amount}",
        ):
            assert world.client.get(f"{path}?{query}").status_code == 200
        expect_unpaid(world, order)

    def test_late_notification(self, world: World) -> None:
        """A notification that arrives a day after the worker run found the money changes nothing
        more.
        """
        order, payment = paid_at_gateway(world)
        world.a_day_passes()
        expect_paid_once(world, order)
        world.gateway_notification(payment)
        expect_paid_once(world, order)
        needs_review(world)

    def test_late_money(self, world: World) -> None:
        """Money that comes after the payment page has closed pays an order that the shop still
        keeps.
        """
        order, payment = at_payment_page(world)
        world.time.advance(hours=2, minutes=15)
        world.run_worker()
        assert world.fresh(payment).status in ("closed", "expired")
        assert not world.shop.is_released(order)
        world.pays_late(payment)
        world.gateway_notification(payment)
        expect_paid_once(world, order)
        world.a_day_passes()
        expect_paid_once(world, order)

    def test_late_money_for_a_released_order(self, world: World) -> None:
        """Money for a released order opens a review, even if no notification arrives; refunding it
        releases nothing again.
        """
        order, payment = at_payment_page(world)
        world.a_day_passes()
        expect_released(world, order)
        world.pays_late(payment)
        world.time.advance(days=8)
        world.run_worker()
        assert world.fresh(payment).status == "paid"
        expect_unpaid(world, order)
        needs_review(world, "paid-not-payable")
        assert queueing.refund(payment.pk, payment.amount).status == "succeeded"
        world.a_day_passes()
        expect_released(world, order)
        needs_review(world)

    def test_notification_is_kept_before_it_is_acknowledged(self, world: World) -> None:
        """A notification that could not be kept is not acknowledged, so that the gateway sends it
        again.
        """
        order, payment = paid_at_gateway(world)
        client, address = (
            Client(raise_request_exception=False),
            reverse("tillgate:payment-notification", args=[payment.notification_key]),
        )
        with _broken_database():
            answer = client.post(address)
        assert answer.status_code >= 500, (
            f"the notification was lost, and acknowledged with HTTP {answer.status_code}"
        )
        assert client.post(address).content == world.acknowledgement
        expect_paid_once(world, order)


@contextmanager
def _broken_database() -> Iterator[None]:
    """Let every write fail, as on a full disk."""

    def refuse(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.split(maxsplit=1)[0].upper() in ("INSERT", "UPDATE", "DELETE"):
            raise OperationalError("the disk is full, says the test")
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse):
        yield
