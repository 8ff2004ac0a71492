"""What a clock that was wrong has put off is put right by the next worker run, and costs no storm of queries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.django.conftest import World
from tests.django.operations.conftest import clock_ahead, due_in, queue, silent
from tillgate.django import clock, operations
from tillgate.django.models import Heartbeat, OutboxEvent, Payment, Refund
from tillgate.django.operations import bounds, wrong_clocks
from tillgate.django.operations.worker import WORKER, WorkDone, run_account, run_mail, run_shop, run_worker, wake

working: Any = sys.modules["tillgate.django.operations.worker"]  # the package gives its function under the same name


def by_tasks() -> None:
    """Worker run in parts, as Celery's tasks do."""
    for account in wake():
        run_account(account)
    run_shop()
    run_mail()


@pytest.mark.parametrize("worker_runs", [run_worker, by_tasks])
@pytest.mark.parametrize("days", [1, 365])
def test_i2_a_clock_that_ran_ahead_puts_off_neither_what_it_looked_at_nor_what_it_began(
    world: World, monkeypatch: pytest.MonkeyPatch, gateway: dict[str, Callable[[], object]], days: int, worker_runs: Callable[[], object]
) -> None:
    last_polled_at = world.start(world.order())
    with clock_ahead(monkeypatch, days):
        begun = world.start(world.order())
        gateway["*"] = silent
        world.run_worker()
        gateway.clear()
    for payment in (last_polled_at, begun):
        assert due_in(world, payment) > 80_000
        world.shopper_pays(payment)
    worker_runs()
    assert [world.fresh(payment).status for payment in (last_polled_at, begun)] == ["paid", "paid"]


def test_i2_a_worker_that_does_not_come_to_its_end_puts_right_what_a_clock_put_off_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    payment = world.start(world.order())
    for _ in range(2):
        operations.enqueue_remote(world.shop.plugin, payment.order.key, "invoice")
        operations.enqueue_remote(world.shop.plugin, world.start(world.order()).order.key, "invoice")
    monkeypatch.setattr(working, "_MOST_AT_ONCE", 1)
    real, rounds = working.beat, list[str]()
    with ExitStack() as ahead:

        def beat(work_done: WorkDone) -> None:
            rounds.append(world.fresh(payment).status)
            real(work_done)
            if len(rounds) == 1:
                ahead.close()  # the clock is put right between two rounds
                world.shopper_pays(payment)

        monkeypatch.setattr(working, "beat", beat)
        ahead.enter_context(clock_ahead(monkeypatch, 2))
        world.run_worker()
    assert rounds[:2] == ["expired", "paid"]


@pytest.mark.parametrize(
    ("last_polled_at", "status_since", "next_poll_at", "is_due"),
    [
        (0, 0, None, False),
        (2, 0, None, True),
        (0, 2, None, True),
        (2, 0, 3, True),
        (0, 2, 3, True),
        (2, 2, 1, False),
        (0, 0, 24, False),
    ],
    ids=str,
)
def test_only_what_was_looked_at_or_settled_at_a_time_to_come_and_is_not_soon_due_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch, last_polled_at: float, status_since: float, next_poll_at: float | None, is_due: bool
) -> None:
    now, many = clock.now(), 120
    for _ in range(2):
        world.start(world.order())
    likeness = Payment.objects.values(*(field.attname for field in Payment._meta.concrete_fields if not field.primary_key)).earliest("pk")
    hours = {"last_polled_at": last_polled_at, "status_since": status_since, "next_poll_at": next_poll_at}
    times = {name: None if ahead is None else now + timedelta(hours=ahead) for name, ahead in hours.items()}
    Payment.objects.all().delete()
    Payment.objects.bulk_create(
        Payment(**likeness | {"status": "closed", "reference": f"R-{n}", "notification_key": f"n{n}", "return_key": f"r{n}"} | times)
        for n in range(many)
    )
    wrong_clocks.poll_now()
    assert Payment.objects.filter(next_poll_at__gte=now, next_poll_at__lte=clock.now()).count() == (many if is_due else 0)
    assert Heartbeat.objects.get(name="clock").detail == {"looked_again": many if is_due else 0}


@pytest.mark.parametrize(("created", "hours", "is_due"), [(0, 2.1, True), (0, 1.9, False), (25, 2.1, False)])
def test_only_what_is_further_off_than_any_young_payment_waits_is_brought_forward(
    world: World, created: float, hours: float, is_due: bool
) -> None:
    now = clock.now()
    payment = world.start(world.order())
    due = now + timedelta(hours=hours)
    Payment.objects.update(created_at=now - timedelta(hours=created), next_poll_at=due)
    wrong_clocks.bring_forward()
    assert (world.fresh(payment).next_poll_at == due) is not is_due
    assert (due_in(world, payment) <= 0) is is_due


def test_a_refund_and_an_outbox_event_that_wait_for_a_wrong_clock_are_brought_forward_and_what_is_over_is_left(world: World) -> None:
    far = clock.now() + timedelta(days=1)
    waiting, over = (queue(world.paid_payment()) for _ in range(2))
    done = OutboxEvent.objects.latest("pk")
    key = operations.enqueue_remote(world.shop.plugin, waiting.payment.order.key, "invoice")
    Refund.objects.update(due_at=far)
    Refund.objects.filter(pk=over.pk).update(status="failed")
    OutboxEvent.objects.update(due_at=far)
    wrong_clocks.bring_forward()
    assert Refund.objects.get(pk=waiting.pk).due_at <= clock.now()  # type: ignore[operator]
    assert Refund.objects.get(pk=over.pk).due_at == far
    assert OutboxEvent.objects.get(event_id=key).due_at <= clock.now()  # type: ignore[operator]
    assert OutboxEvent.objects.get(pk=done.pk).due_at == far


def test_what_a_wrong_clock_put_off_and_cannot_be_put_right_keeps_nobody_from_their_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(wrong_clocks, "bring_forward", fail)
    world.start(world.order())
    world.time.advance(minutes=1)
    assert wake() == ["default"]
    assert Heartbeat.objects.get(name=WORKER).detail["faults"] == ["what was put off too far: RuntimeError: a bug"]


@pytest.mark.parametrize("days", [5, 40])
def test_i2_a_payment_that_a_clock_days_ahead_took_for_expired_is_looked_at_once_it_is_right(
    world: World, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    payment = world.start(world.order())
    with clock_ahead(monkeypatch, days):
        world.run_worker()
    assert world.fresh(payment).status == "expired"
    world.shopper_pays(payment)
    world.run_worker()
    assert world.fresh(payment).status == "paid"


@pytest.mark.parametrize("days", [2, 40])
@pytest.mark.parametrize("door", ["worker", "staff"])
def test_i2_a_clock_that_leaps_while_the_gateway_is_asked_loses_no_tail_look(
    world: World, monkeypatch: pytest.MonkeyPatch, gateway: dict[str, Callable[[], object]], days: int, door: str
) -> None:
    payment = world.start(world.order())
    world.time.advance(hours=3)
    world.run_worker()
    assert world.fresh(payment).status == "closed"
    world.time.advance(hours=2)
    with ExitStack() as ahead:
        gateway["*"] = lambda: ahead.enter_context(clock_ahead(monkeypatch, days))
        if door == "worker":
            world.run_worker()
        else:
            operations.reconcile(world.fresh(payment), "staff:ann")
        gateway.clear()
    world.pays_late(payment)
    world.time.advance(minutes=61)
    world.run_worker()
    assert world.fresh(payment).status == "paid"


def test_i2_a_clock_that_leaps_while_the_gateway_is_asked_loses_no_look_at_what_a_person_was_told_of(
    world: World, monkeypatch: pytest.MonkeyPatch, gateway: dict[str, Callable[[], object]]
) -> None:
    payment = world.paid_payment()
    world.time.advance(hours=2)
    world.sandbox.control.reverse(payment.reference)
    with ExitStack() as ahead:
        gateway["*"] = lambda: ahead.enter_context(clock_ahead(monkeypatch, 40))
        world.run_worker()
        gateway.clear()
    assert world.reviews() == ["changed-after-paid"]
    assert world.fresh(payment).next_poll_at is None
    world.time.advance(minutes=61)
    world.run_worker()
    assert world.fresh(payment).next_poll_at


def test_to_a_clock_that_lags_all_seems_to_be_of_a_time_to_come_and_is_made_due_a_part_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrong_clocks, "_MOST_AT_ONCE", 2)
    payments = [world.start(world.order()) for _ in range(3)]
    Payment.objects.update(status="closed", next_poll_at=None)
    due = list[list[int]]()
    with clock_ahead(monkeypatch, -365):
        for _ in range(3):
            wrong_clocks.poll_now()
            due.append([place for place, payment in enumerate(payments) if world.fresh(payment).next_poll_at])
    assert due == [[1, 2], [0, 1, 2], [0, 1, 2]]
    assert Heartbeat.objects.get(name="clock").detail == {"looked_again": 1}, "then it rests"


@pytest.mark.parametrize("days", [9, 40])
def test_i2_the_tail_looks_that_a_clock_days_ahead_took_for_done_are_made(world: World, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    payment = world.start(world.order())
    world.time.advance(hours=3)
    world.run_worker()
    assert world.fresh(payment).status == "closed"
    world.time.advance(hours=2)
    world.run_worker()
    world.time.advance(hours=20)
    with clock_ahead(monkeypatch, days):
        world.run_worker()
    world.pays_late(payment)
    world.run_worker()
    assert world.fresh(payment).status == "paid"


def test_what_settled_while_the_clock_was_months_ahead_is_not_asked_about_at_every_worker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    with clock_ahead(monkeypatch, 60):
        world.run_worker()
    assert world.fresh(payment).status == "paid"
    before = world.queries()
    for _ in range(24):
        world.time.advance(minutes=5)
        world.run_worker()
    assert world.queries() - before <= 3, "now, and an hour after it came to its status"


def test_what_another_machine_looked_at_ahead_of_time_is_looked_for_once_an_hour(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = world.start(world.order())
    world.time.advance(hours=3)
    world.run_worker()
    assert world.fresh(payment).status == "closed"
    world.time.advance(minutes=30)
    with clock_ahead(monkeypatch, 5):
        operations.reconcile(world.fresh(payment), "return")  # by a worker of the web
    before = world.queries()
    world.time.advance(minutes=20)
    world.run_worker()
    assert world.queries() == before
    world.time.advance(minutes=15)
    world.run_worker()
    assert world.queries() == before + 1


@pytest.mark.parametrize("at_once", [1, 2, 1000])
@pytest.mark.parametrize("hours", [-48, -2, 2, 48])
def test_two_machines_whose_clocks_differ_for_good_ask_no_more_often_than_one_an_hour(
    world: World, monkeypatch: pytest.MonkeyPatch, hours: float, at_once: int
) -> None:
    monkeypatch.setattr(wrong_clocks, "_MOST_AT_ONCE", at_once)
    for payment in [world.paid_payment() for _ in range(3)]:
        assert payment.status == "paid"
    world.time.advance(minutes=65)
    world.run_worker()
    world.time.advance(minutes=5)
    rests = {ahead: wrong_clocks.Search(wrong_clocks._LOOK_AGAIN_EVERY) for ahead in (0, hours)}
    monkeypatch.setattr(bounds, "time", SimpleNamespace(monotonic=lambda: world.time.offset.total_seconds() + 0))
    before = world.queries()
    for _ in range(30):
        world.time.advance(minutes=1)
        for ahead, rest in rests.items():
            with clock_ahead(monkeypatch, ahead / 24):
                monkeypatch.setattr(wrong_clocks, "_search", rest)
                world.run_worker()
    assert world.queries() - before <= 9, "each machine makes each of the three due once an hour, and a tail look may be due"


@pytest.mark.parametrize("minutes", [-62, -30, 30])
def test_a_worker_whose_clock_is_wrong_gives_up_no_fresh_order(world: World, monkeypatch: pytest.MonkeyPatch, minutes: float) -> None:
    key = world.order()
    operations.open_order(world.shop.plugin, key)
    with clock_ahead(monkeypatch, minutes / 24 / 60):
        world.run_worker()
    world.run_worker()
    assert not world.shop.is_released(key)


def test_a_refund_that_was_cut_off_while_the_clock_ran_a_day_ahead_is_told_within_hours(world: World) -> None:
    refund = queue(world.paid_payment())
    Refund.objects.filter(pk=refund.pk).update(status="sending", due_at=clock.now() + timedelta(days=1))
    assert not world.run_worker().refunds_lost, "its process may be alive"
    world.time.advance(hours=2, seconds=1)
    assert world.run_worker().refunds_lost == 1
