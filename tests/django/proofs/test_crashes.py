"""Processes that die: SIGKILL at every commit and every call over the network, one after the other;
then a restart and a worker run.

I2, I3, I5 and I6 hold after any death: money is never lost and never refunded twice, the shop hears
of it once, and unknown outcomes open a review.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.django import project
from tests.django.conftest import World
from tests.django.proofs import carrying_shop
from tests.django.proofs.worker import Worker, workers
from tillgate import hooks
from tillgate.django.models import Order, OutboxEvent, Payment, Refund
from tillgate.django.payments import reconciling
from tillgate.django.refunds import limits, queueing
from tillgate.sandbox import PUBLISHED_STORE_NO

MOST_POINTS = 80


@pytest.fixture
def carried(tmp_path: Path) -> Path:
    """Where the lines of remote events go."""
    file = tmp_path / "carried"
    file.touch()
    return file


@pytest.fixture
def process(world: World, carried: Path) -> Iterator[Worker]:
    """A process of the shop's that can be ordered to die."""
    with workers(1, settings.TILLGATE, carried) as (worker,):
        yield worker


@pytest.fixture
def carrying(world: World, carried: Path) -> Iterator[None]:
    """Let this process know the shop with remote events, and place its orders."""
    world.shop.plugin = carrying_shop.NAME
    shop = carrying_shop.plug_in(carried)
    yield
    hooks.plugin_manager().unregister(shop)


@pytest.fixture
def walk(world: World, process: Worker, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Walk every point of an act: prepare, kill the process at the n-th point, restart, check;
    until it is done without having died.
    """

    def walking(
        action: str,
        prepare: Callable[[], tuple[Any, dict[str, Any]]],
        check: Callable[[Any], None],
    ) -> None:
        for number in range(1, MOST_POINTS):
            subject, arguments = prepare()
            said = process.do(action, kill_at=number, ahead=world.time.offset, **arguments)
            assert "error" not in said, said
            for ahead in (
                {"seconds": 10},
                {"minutes": 20},
                {"hours": 3},
                {"hours": 3},
                {"days": 1},
            ):
                world.time.advance(**ahead)
                assert world.run_worker().faults == []
            check(subject)
            # the next round has nothing to do with this one
            Payment.objects.update(next_poll_at=None)
            if not said.get("died"):
                with capsys.disabled():
                    sys.stdout.write(
                        f"\n{project.DATABASE}: {action} killed at each of its "
                        f"{len(said['points'])} points: {', '.join(said['points'])}",
                    )
                assert number == len(said["points"]) + 1
                return
        pytest.fail(f"{action} has more than {MOST_POINTS} points")

    return walking


def gateway_knows(world: World, order: str) -> list[Any]:
    references = set(Payment.objects.filter(order__key=order).values_list("reference", flat=True))
    return [one for one in world.sandbox.service.transactions() if one.reference in references]


def assert_paid(world: World, order: str) -> None:
    assert world.shop.times_paid(order) == 1
    assert not OutboxEvent.objects.filter(order__key=order, done_at__isnull=True).exists()
    assert OutboxEvent.objects.filter(order__key=order, kind="payment-paid").count() == 1


def test_i2_interrupted_start_loses_no_money(
    world: World,
    walk: Callable[..., None],
) -> None:
    """Every payment that the gateway knows is paid: the shopper may have seen the page."""

    def prepare() -> tuple[str, dict[str, Any]]:
        order = world.order()
        return order, {"order_key": order}

    def check(order: str) -> None:
        known = gateway_knows(world, order)
        assert (
            len(known)
            == len(
                [
                    one
                    for one in world.sandbox.service.transactions()
                    if one.reference.startswith(f"S{order}-")
                ],
            )
            <= 1
        )
        if known:
            world.pays_late(Payment.objects.get(order__key=order))
            Payment.objects.filter(order__key=order).update(next_poll_at=world.time.now())
            world.run_worker()
            assert Payment.objects.get(order__key=order).status == "paid"
            # The order was released hours ago: late money for it is for staff to decide.
            assert world.shop.is_released(order)
            assert world.reviews()[-1] == "paid-not-payable"
        else:
            assert not Payment.objects.filter(
                order__key=order,
                status__in=["created", "pending", "paid"],
            ).exists()

    walk("start", prepare, check)


def test_i2_payment_after_interrupted_start_counts(
    world: World,
    process: Worker,
) -> None:
    """The shopper pays, and the order is paid."""
    for number in range(1, MOST_POINTS):
        order = world.order()
        said = process.do("start", order_key=order, kill_at=number, ahead=world.time.offset)
        known = gateway_knows(world, order)
        for transaction in known:
            world.sandbox.control.pay(transaction.reference)
        # the creation that died counts as under way for as long as one may last
        world.time.advance(seconds=40)
        assert world.run_worker().faults == []
        if known:
            assert_paid(world, order)
        else:  # the shopper tries again
            payment = world.start(order)
            world.shopper_pays(payment)
            world.notification(payment)
            assert_paid(world, order)
        if not said.get("died"):
            return
    pytest.fail("it never ends")


def test_i2_i3_interrupted_reconcile_pays_once(
    world: World,
    walk: Callable[..., None],
) -> None:
    def prepare() -> tuple[str, dict[str, Any]]:
        order = world.order()
        payment = world.start(order)
        world.shopper_pays(payment)
        return order, {"key": payment.notification_key}

    walk("notification", prepare, lambda order: assert_paid(world, order))


def test_i2_i3_interrupted_worker_pays_once(
    world: World,
    walk: Callable[..., None],
) -> None:
    def prepare() -> tuple[str, dict[str, Any]]:
        order = world.order()
        payment = world.start(order)
        world.shopper_pays(payment)
        world.time.advance(seconds=6)
        return order, {}

    walk("run_worker", prepare, lambda order: assert_paid(world, order))


def test_i5_i6_interrupted_refund_is_never_doubled(
    world: World,
    walk: Callable[..., None],
) -> None:
    """No refund goes unseen, either."""

    def prepare() -> tuple[Payment, dict[str, Any]]:
        payment = world.paid_payment("12.50")
        return payment, {"payment_id": payment.pk, "amount": "5.00"}

    def check(payment: Payment) -> None:
        refunded_amount = world.sandbox.service.find(payment.reference).refunds
        rows = list(Refund.objects.filter(payment=payment))
        assert len(refunded_amount) <= len(rows) <= 1
        told = world.shop.refunded(payment.order.key)
        for row in rows:
            assert row.status in ("succeeded", "unknown")
            assert limits.refundable(payment) == Decimal("7.50")
            assert told == (row.amount if row.status == "succeeded" else 0)
            assert len(refunded_amount) == 1 or row.status == "unknown"
            assert row.reviews.filter(reason="refund-unknown").exists() == (row.status == "unknown")
        assert_paid(world, payment.order.key)

    walk("refund", prepare, check)


@pytest.fixture
def version_3(world: World) -> None:
    """Let the gateway finish refunds later, and list them; the killed process has the same
    settings.
    """
    world.configure({"DIALECT": "v3", "STORE_NO": PUBLISHED_STORE_NO})
    world.sandbox.control.set_options({"refund_outcome": "pending"})


def test_i3_i5_interrupted_worker_ends_refund_once(
    world: World,
    version_3: None,
    walk: Callable[..., None],
) -> None:
    """The refund was pending."""

    def prepare() -> tuple[Payment, dict[str, Any]]:
        payment = world.paid_payment("12.50")
        assert queueing.refund(payment.pk, "5.00").status == "pending"
        world.sandbox.control.finish_refund(payment.reference)
        world.time.advance(minutes=2)
        return payment, {}

    def check(payment: Payment) -> None:
        refund = Refund.objects.get(payment=payment)
        assert (refund.status, world.shop.refunded(payment.order.key)) == (
            "succeeded",
            Decimal("5.00"),
        )
        assert OutboxEvent.objects.filter(refund=refund).count() == 1
        assert len(world.sandbox.service.find(payment.reference).refunds) == 1
        assert_paid(world, payment.order.key)

    walk("run_worker", prepare, check)


def test_i3_interrupted_outbox_event_is_not_lost(
    world: World,
    carrying: None,
    walk: Callable[..., None],
    carried: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes effect once here and at least once over the network."""

    def prepare() -> tuple[str, dict[str, Any]]:
        order = world.order()
        payment = world.start(order)
        world.shopper_pays(payment)
        with monkeypatch.context() as patch:
            patch.setattr(reconciling, "deliver", lambda _: 0)  # as when the process died before
            world.notification(payment)
        assert world.shop.times_paid(order) == 0
        return order, {"order_id": Order.objects.get(key=order).pk}

    def check(order: str) -> None:
        assert_paid(world, order)
        lines = [
            line.split()[1:]
            for line in carried.read_text().splitlines()
            if line.split()[0] == order
        ]
        assert {event for _, event in lines} == {
            str(one.event_id) for one in OutboxEvent.objects.filter(order__key=order, kind="remote")
        }
        names = [name for name, _ in lines]
        assert 2 <= len(names) <= 3
        assert names == sorted(names)  # the confirmation before the invoice, whichever came twice

    walk("deliver", prepare, check)
