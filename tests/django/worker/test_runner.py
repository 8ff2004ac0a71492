"""The runner: it does each due row once, within bounds, despite faults, hangs, locks and crashes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.utils import timezone

from tests.django import project
from tests.django.conftest import World
from tests.django.gateway import due_in, many, queue, silent
from tests.smallest_shop.placing import unregistered
from tillgate import hooks
from tillgate.account import Account
from tillgate.django.heartbeats import WORKER
from tillgate.django.models import Heartbeat, Lane, Order, OutboxEvent, Payment, Refund
from tillgate.django.orders import registering
from tillgate.django.orders.locking import InsideTransaction, OrderHeld, durable
from tillgate.django.outbox import delivering, remote
from tillgate.django.refunds import sending
from tillgate.django.worker import calls, chores, runner
from tillgate.django.worker.run import queue as queue_of_chores
from tillgate.django.worker.run import run_lane, run_worker, wake
from tillgate.testing.crashes import Crash

Gateway = dict[str, Callable[[], object]]

needs_row_locks = pytest.mark.skipif(
    project.DATABASE == "sqlite",
    reason="SQLite locks no single row",
)


def several_accounts(settings: Any, count: int) -> list[str]:
    """Configure so many more accounts on the sandbox."""
    names, default = (
        [f"account-{number}" for number in range(count)],
        settings.TILLGATE["ACCOUNTS"]["default"],
    )
    settings.TILLGATE = {
        **settings.TILLGATE,
        "POLL_CONNECTIONS": 1,
        "ACCOUNTS": {"default": default} | dict.fromkeys(names, default),
    }
    return names


def slow_time(monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> None:
    """Let the runner's time be the last of some seconds."""
    fake = SimpleNamespace(monotonic=lambda: seconds[-1], sleep=time.sleep)
    for module in (runner, calls):
        monkeypatch.setattr(module, "time", fake)


def lost_refund(world: World) -> Refund:
    """Return a refund that was being sent when its process ended."""
    refund = queue(world.paid_payment())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hooks, "refund", crash)
        with pytest.raises(Crash):
            sending.send_refund(refund.pk)
    return refund


def crash(*_: object, **__: object) -> Any:
    raise Crash("killed")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "AT_ONCE", 4)


# Claims -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_batches")
def test_killed_worker_has_applied_its_batches(
    world: World,
    configure: Callable[..., None],
    gateway: Gateway,
) -> None:
    configure(POLL_CONNECTIONS=1)
    payments = many(world, 8)
    for late, payment in enumerate(reversed(payments)):
        world.shopper_pays(payment)
        Payment.objects.filter(pk=payment.pk).update(
            next_poll_at=timezone.now() - timedelta(minutes=late),
        )
    gateway[payments[-1].reference] = crash
    with pytest.raises(Crash):
        world.run_worker()
    assert sum(world.fresh(payment).status == "paid" for payment in payments) == 4


def test_lease_of_killed_worker_runs_out(
    world: World,
    configure: Callable[..., None],
    gateway: Gateway,
) -> None:
    configure(POLL_CONNECTIONS=1)
    [payment] = many(world, 1)
    world.shopper_pays(payment)
    gateway["*"] = crash
    with pytest.raises(Crash):
        world.run_worker()
    gateway.clear()
    assert world.run_worker().work == 0
    world.time.advance(minutes=6)
    assert world.run_worker().news["changed"] == 1
    assert world.shop.is_paid(payment.order.key)


def test_late_answer_after_lease_does_no_harm(
    world: World,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(POLL_CONNECTIONS=1)
    [payment] = many(world, 1)
    world.shopper_pays(payment)
    real, queries = hooks.query, list[str]()

    def query(account: Account, reference: str, **bounds: Any) -> Any:
        queries.append(reference)
        answer = real(account, reference, **bounds)
        if len(queries) == 1:
            world.time.advance(hours=1)
            world.run_worker()
        return answer

    monkeypatch.setattr(hooks, "query", query)
    world.run_worker()
    assert (
        len(queries),
        world.shop.times_paid(payment.order.key),
        OutboxEvent.objects.count(),
    ) == (2, 1, 1)


def test_notification_during_poll_is_not_lost(
    world: World,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(POLL_CONNECTIONS=1)
    [payment] = many(world, 1)
    real, queries = hooks.query, list[str]()

    def query(account: Account, reference: str, **bounds: Any) -> Any:
        queries.append(reference)
        answer = real(account, reference, **bounds)
        if len(queries) == 1:
            world.shopper_pays(payment)
            world.notification(payment)
        return answer

    monkeypatch.setattr(hooks, "query", query)
    world.run_worker()
    assert (world.fresh(payment).status, world.shop.is_paid(payment.order.key)) == ("paid", True)


@needs_row_locks
def test_claim_passes_over_locked_rows(world: World) -> None:
    held = many(world, 6)[:2]
    with held_by_a_hanging_transaction(Payment, [payment.pk for payment in held]):
        assert run_lane("default").counts["payments"] == 4


@contextmanager
def held_by_a_hanging_transaction(model: Any, pks: list[int]) -> Iterator[None]:
    is_held, is_over = threading.Event(), threading.Event()

    def hang() -> None:
        try:
            with durable():
                list(model.objects.select_for_update().filter(pk__in=pks))
                is_held.set()
                is_over.wait(30)
        finally:
            connections.close_all()

    hanging = threading.Thread(target=hang)
    hanging.start()
    assert is_held.wait(30)
    try:
        yield
    finally:
        is_over.set()
        hanging.join()


@needs_row_locks
@pytest.mark.parametrize("kind", ["payment", "event", "unpaid order", "lost refund", "refund"])
def test_held_orders_are_passed_over(world: World, kind: str) -> None:
    """A hanging transaction holds three of four orders; the fourth is done, and nothing waits or
    fails.
    """
    if kind == "unpaid order":
        for _ in range(4):
            registering.open_order(world.shop.plugin, world.order())
    elif kind == "payment":
        for payment in many(world, 4):
            world.shopper_pays(payment)
    elif kind == "event":
        with world.failing_handler("tillgate_payment_paid", times=4):
            for _ in range(4):
                world.paid_payment()
    else:
        for _ in range(4):
            lost_refund(world) if kind == "lost refund" else queue(world.paid_payment())
    Payment.objects.exclude(status="pending").update(next_poll_at=None)
    world.time.advance(minutes=61)
    held, last = Order.objects.order_by("pk")[:3], Order.objects.order_by("pk")[3]
    with held_by_a_hanging_transaction(Order, [order.pk for order in held]):
        work_done = world.run_worker()
    assert work_done.faults == []
    names = {
        "payment": "payments",
        "event": "failed events",
        "unpaid order": "unpaid orders",
        "lost refund": "lost refunds",
    }
    assert work_done.counts[names.get(kind, "refunds to send")] == 1
    if kind in ("payment", "event"):
        assert world.shop.is_paid(last.key)
    world.run_worker()
    assert not OutboxEvent.objects.filter(done_at=None).exists()
    assert not Refund.objects.filter(status__in=("queued", "sending")).exists()


# Bounds -------------------------------------------------------------------------------------------


def test_rows_beyond_turn_keep_due_time(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    configure: Callable[..., None],
    gateway: Gateway,
) -> None:
    configure(POLL_CONNECTIONS=1)
    seconds = [0.0]
    gateway["*"] = lambda: seconds.append(seconds[-1] + 40)
    slow_time(monkeypatch, seconds)
    many(world, 6)
    before = list(Payment.objects.order_by("next_poll_at").values_list("next_poll_at", flat=True))
    assert run_lane("default").counts["payments"] == 2
    due = Payment.objects.filter(next_poll_at__lte=timezone.now()).order_by("next_poll_at")
    assert list(due.values_list("next_poll_at", flat=True)) == before[2:]


def test_at_most_eight_accounts_at_once(world: World, settings: Any, gateway: Gateway) -> None:
    for name in several_accounts(settings, 16):
        many(world, 1, name)
    lock, now, most = threading.Lock(), [0], [0]

    def count(step: int) -> None:
        with lock:
            now[0] += step
            most[0] = max(most[0], now[0])

    def meet() -> None:
        count(1)
        time.sleep(0.3)
        count(-1)

    gateway["*"] = meet
    assert world.run_worker().counts["payments"] == 16
    assert 1 < most[0] <= 8


def test_shop_has_its_turn_between_many_accounts(
    world: World,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    gateway: Gateway,
) -> None:
    for name in several_accounts(settings, 12):
        world.shopper_pays(many(world, 1, name)[0])
    seconds, delivered = [0.0], list[int]()
    gateway["*"] = lambda: seconds.append(seconds[-1] + 8)
    slow_time(monkeypatch, seconds)
    real = hooks.call_owner

    def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
        if hook == "tillgate_payment_paid":
            delivered.append(len(seconds))
        return real(plugin, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", call_owner)
    world.run_worker()
    assert len(delivered) == 12
    assert min(delivered) < 12


def test_silent_accounts_leave_turns_to_others(
    world: World,
    settings: Any,
    gateway: Gateway,
) -> None:
    """Their work stays due, and longer than that of the account that answers."""
    for name in several_accounts(settings, 9):
        for payment in many(world, 8, name):
            gateway[payment.reference] = silent
    world.time.advance(minutes=1)
    (live,) = many(world, 1)
    world.shopper_pays(live)
    world.run_worker()
    assert world.shop.is_paid(live.order.key)
    assert Lane.objects.filter(rests_until__gt=timezone.now()).count() == 9


def test_run_continues_after_remote_turn(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(7):
        remote.enqueue_remote(world.shop.plugin, world.start(unregistered()).order.key, "invoice")
    seconds, real = [0.0], hooks.call_owner

    def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
        if hook == "tillgate_deliver":
            seconds.append(seconds[-1] + 40)
        return real(plugin, hook, **arguments)

    slow_time(monkeypatch, seconds)
    monkeypatch.setattr(hooks, "call_owner", call_owner)
    assert run_lane(chores.REMOTE).counts["remote events"] == 2
    assert world.run_worker().counts["remote events"] == 5


@pytest.mark.usefixtures("small_batches")
def test_one_run_does_all_due_rows(world: World) -> None:
    for _ in range(9):
        registering.open_order(world.shop.plugin, world.order())
        queue(world.paid_payment())
    world.time.advance(minutes=61)
    work_done = world.run_worker()
    assert (
        work_done.counts["unpaid orders"],
        work_done.counts["refunds to send"],
        work_done.faults,
    ) == (9, 9, [])
    assert not OutboxEvent.objects.filter(done_at=None).exists()


# Failures -----------------------------------------------------------------------------------------


def test_failing_row_keeps_no_other_waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = queue(world.paid_payment()), queue(world.paid_payment())
    real = hooks.refund

    def refund(account: Account, request: Any) -> Any:
        if request.refund_id == first.refund_id:
            Refund.objects.filter(pk=first.pk).delete()
        return real(account, request)

    monkeypatch.setattr(hooks, "refund", refund)
    work_done = world.run_worker()
    assert work_done.counts["refunds to send"] == 1
    assert [fault.partition(":")[0] for fault in work_done.faults] == [
        f"refunds to send {first.pk}",
    ]
    assert Heartbeat.objects.get(name=WORKER).detail["faults"] == work_done.faults
    assert Refund.objects.get(pk=second.pk).status == "succeeded"


@pytest.mark.parametrize(
    ("broken", "chore"),
    [
        ("mark_lost", "lost refunds"),
        ("send_unless_made", "refunds to send"),
        ("poll_refund", "refunds to ask about"),
        ("queue_event", "unpaid orders"),
        ("purge_order", "orders to purge"),
    ],
)
def test_failure_names_chore_and_row(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    chore: str,
) -> None:
    lost = lost_refund(world)
    unknown, queued = queue(world.paid_payment()), queue(world.paid_payment())
    Refund.objects.filter(pk=unknown.pk).update(status="unknown")
    registering.open_order(world.shop.plugin, world.order())
    opened = Order.objects.latest("pk")
    Order.objects.filter(pk=lost.payment.order_id).update(purge_check_at=timezone.now())
    world.time.advance(minutes=61)

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    rows = {
        "mark_lost": lost,
        "send_unless_made": queued,
        "poll_refund": unknown,
        "queue_event": opened,
        "purge_order": lost.payment.order,
    }
    with monkeypatch.context() as patch:
        patch.setattr(chores, broken, fail)
        assert world.run_worker().faults == [f"{chore} {rows[broken].pk}: RuntimeError: a bug"]
    [waiting] = [one for one in queue_of_chores() if one.chore.name == chore]
    assert (waiting.waiting, waiting.failures) == (0, 1), "the lease stands until it is tried again"
    world.time.advance(minutes=6)
    assert world.run_worker().faults == []
    assert all(not one.failures for one in queue_of_chores())


def test_plugin_that_raises_is_inconclusive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    [payment] = many(world, 1)

    def ask(_: Payment) -> Any:
        raise RuntimeError("the plugin's own table is away")

    monkeypatch.setattr("tillgate.django.payments.closing.ask", ask)
    assert world.run_worker().news["inconclusive"] == 1
    assert 0 < due_in(world, payment) <= 300


def test_run_ends_where_the_database_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        queue(world.paid_payment())
    tried: list[int] = []

    def away(pk: int) -> Any:
        tried.append(pk)
        if len(tried) == 1:
            broken.setattr(type(connections["default"]), "ensure_connection", unreachable)
        raise OperationalError("server closed the connection unexpectedly")

    def unreachable(*_: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(chores, "send_unless_made", away)
    with monkeypatch.context() as broken, pytest.raises(OperationalError, match="refused"):
        world.run_worker()
    assert len(tried) == 1
    world.time.advance(minutes=6)
    assert len(world.run_worker().faults) == 3


def test_account_without_a_connection_ends_no_other(
    world: World,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = several_accounts(settings, 2)
    payments = [*many(world, 1, first), *many(world, 1, second)]
    real_lane = runner.Run.take_lane

    def take_lane(run: Any, lane: str) -> bool:
        if lane == second and threading.current_thread() is not threading.main_thread():
            raise OperationalError("too many connections")
        return real_lane(run, lane)

    monkeypatch.setattr(runner.Run, "take_lane", take_lane)
    work_done = world.run_worker()
    assert work_done.faults == [f"account {second}: OperationalError: too many connections"]
    assert all(due_in(world, payment) > 0 for payment in payments), (
        "the other one by the thread that has one"
    )


@pytest.mark.parametrize("operation", ["worker", "run_lane"])
def test_i12_nothing_runs_inside_a_transaction(world: World, operation: str) -> None:
    with (
        pytest.raises(InsideTransaction, match=rf"^{operation} uses the network"),
        transaction.atomic(),
    ):
        run_worker() if operation == "worker" else run_lane("default")


# The queue ----------------------------------------------------------------------------------------


def test_queue_shows_each_chore(world: World) -> None:
    lost_refund(world)
    queue(world.paid_payment())
    registering.open_order(world.shop.plugin, world.order())
    with world.failing_handler("tillgate_payment_paid"):
        failed = world.paid_payment()
    remote.enqueue_remote(world.shop.plugin, failed.order.key, "invoice")
    remote.enqueue_remote(world.shop.plugin, failed.order.key, "reminder", delay=timedelta(days=1))
    many(world, 2)
    world.time.advance(minutes=61)
    waiting = {one.chore.name: one.waiting for one in queue_of_chores() if one.waiting}
    assert waiting == {
        "refunds to send": 1,
        "payments": 5,
        "lost refunds": 1,
        "unpaid orders": 1,
        "failed events": 1,
        "remote events": 1,
    }
    assert all(one.oldest for one in queue_of_chores() if one.waiting)
    world.run_worker()
    assert [one for one in queue_of_chores() if one.waiting] == []


def test_failed_events_come_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.failing_handler("tillgate_payment_paid"):
        failed = world.paid_payment()
    world.time.advance(minutes=1)
    monkeypatch.setattr(delivering, "deliver_now", lambda _: 0)
    fresh = [world.paid_payment() for _ in range(2)]
    told, real = list[str](), hooks.call_owner

    def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
        if hook == "tillgate_payment_paid":
            told.append(arguments["payment"].order.key)
        return real(plugin, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", call_owner)
    world.run_worker()
    assert told == [*(payment.order.key for payment in fresh), failed.order.key]


def test_wake_names_lanes_and_leaves_a_heartbeat(world: World) -> None:
    many(world, 1)
    assert wake() == ["default", chores.STAFF]
    registering.open_order(world.shop.plugin, world.order())
    world.time.advance(minutes=61)
    assert wake() == ["default", chores.SHOP, chores.STAFF]
    assert Heartbeat.objects.get(name=WORKER).at <= timezone.now()


def test_new_chore_is_one_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kind of work needs a row of the table and nothing else: `run.py` reads the table."""
    assert len({chore.name for chore in chores.CHORES}) == len(chores.CHORES)
    for chore in chores.CHORES:
        assert bool(chore.account) is not bool(chore.lane)
        assert chore.lane in ("", *chores.OWN_LANES)
        assert chore.due_rows(timezone.now()).count() == 0


def test_held_order_is_no_failed_event(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shop's own transaction has the order for longer than the worker waits."""
    order = Order.objects.get(pk=world.start(world.order()).order.pk)
    Payment.objects.update(status="failed")
    now = timezone.now()
    event = OutboxEvent.objects.create(order=order, kind="order-unpaid", created_at=now, due_at=now)
    with monkeypatch.context() as patch:
        patch.setattr(delivering, "locked_order", held)
        assert len(run_worker().faults) == 1
    event.refresh_from_db()
    assert (event.begun_at, event.attempts) == (None, 0)
    world.time.advance(seconds=11)
    assert run_worker().faults == []
    event.refresh_from_db()
    assert (event.done_at is not None, event.attempts) == (True, 1)


def held(*_: object, **__: object) -> Any:
    raise OrderHeld("another transaction holds the order")
