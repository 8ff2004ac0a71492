"""Handlers that hang or end their process: they take no page and no other order with them, and
staff hear of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connection, connections

from tests.django import project
from tests.django.conftest import World
from tillgate import hooks
from tillgate.django.models import OutboxEvent, Payment, Refund
from tillgate.django.orders.locking import OrderHeld
from tillgate.django.outbox import delivering, remote
from tillgate.django.refunds import limits, queueing
from tillgate.django.worker.run import run_lane
from tillgate.testing.crashes import Crash

Configure = Callable[..., None]
ROOT = Path(__file__).parents[3]

needs_row_locks = pytest.mark.skipif(
    project.DATABASE == "sqlite",
    reason="SQLite locks no single row",
)


@contextmanager
def hanging_handler(world: World, payment: Payment) -> Iterator[threading.Thread]:
    """Let the gateway notify in a thread. Its handler asks an ERP that does not answer before the
    block ends.
    """
    manager = hooks.plugin_manager()
    owner = manager.get_plugin(world.shop.plugin)
    [handler] = [
        one for one in manager.hook.tillgate_payment_paid.get_hookimpls() if one.plugin is owner
    ]
    real, asks, answers = handler.function, threading.Event(), threading.Event()

    def ask_first(*arguments: Any) -> Any:
        asks.set()
        answers.wait(20)
        return real(*arguments)

    def notify() -> None:
        try:
            world.notification(payment)
        finally:
            connections.close_all()

    notifying = threading.Thread(target=notify)
    with mock.patch.object(handler, "function", ask_first):
        notifying.start()
        assert asks.wait(10)
        try:
            yield notifying
        finally:
            answers.set()
            notifying.join()


def paid_at_the_gateway(world: World) -> Payment:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    return payment


@contextmanager
def killing_handler(world: World, hook: str = "tillgate_payment_paid") -> Iterator[list[int]]:
    """Let the shop's handler end its process each time, as kill -9 and a lack of memory do; yield
    one number for each time.
    """
    real, killed = hooks.call_owner, list[int]()

    def call_owner(plugin: str, name: str, **arguments: Any) -> Any:
        if name != hook:
            return real(plugin, name, **arguments)
        killed.append(len(killed))
        raise Crash("killed")

    with mock.patch.object(hooks, "call_owner", call_owner):
        yield killed


def worker_is_killed(world: World) -> None:
    with pytest.raises(Crash):
        world.run_worker()


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
def test_killed_delivery_is_tried_at_once(world: World, is_remote: bool) -> None:
    payment = undelivered(world, is_remote=is_remote)
    with killing_handler(world, "tillgate_deliver" if is_remote else "tillgate_payment_paid"):
        worker_is_killed(world)
    event = OutboxEvent.objects.get(done_at=None)
    assert (event.attempts, event.begun_at is not None) == (0, True)
    world.run_worker()
    assert OutboxEvent.objects.filter(done_at=None).exists(), "the lease stands"
    world.time.advance(minutes=6)
    world.run_worker()
    event.refresh_from_db()
    assert (event.attempts, event.begun_at, event.fault) == (2, None, "")
    assert event.done_at
    assert world.reviews() == []
    assert world.shop.times_paid(payment.order.key) == 1


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
def test_second_killed_delivery_pauses_with_review(world: World, is_remote: bool) -> None:
    undelivered(world, is_remote=is_remote)
    with killing_handler(
        world,
        "tillgate_deliver" if is_remote else "tillgate_payment_paid",
    ) as killed:
        for _ in range(2):
            worker_is_killed(world)
            world.time.advance(minutes=6)
        world.run_worker()
        assert killed == [0, 1], "the pause comes first"
        assert world.reviews() == ["delivery-failing"]
        event = OutboxEvent.objects.get(done_at=None, review=None)
        assert (event.attempts, event.begun_at) == (2, None)
        assert "ProcessEnded" in event.fault
        for minutes in (1, 6):
            world.time.advance(minutes=minutes)
            worker_is_killed(world) if minutes == 1 else world.run_worker()
        event.refresh_from_db()
        assert (event.attempts, killed) == (3, [0, 1, 2])
    world.time.advance(minutes=2)
    world.run_worker()
    event.refresh_from_db()
    assert event.done_at
    assert world.reviews() == []


def test_ordinary_failure_leaves_no_mark(world: World) -> None:
    undelivered(world)
    with world.failing_handler("tillgate_payment_paid"):
        world.run_worker()
    event = OutboxEvent.objects.get()
    assert (event.attempts, event.begun_at) == (1, None)


def undelivered(world: World, *, is_remote: bool = False) -> Payment:
    """Return a payment with an event that no process has tried to deliver."""
    if is_remote:
        payment = world.paid_payment()
        remote.enqueue_remote(world.shop.plugin, payment.order.key, "invoice")
        return payment
    with mock.patch.object(delivering, "deliver_now", return_value=0):
        return world.paid_payment()


@needs_row_locks
def test_page_does_not_await_hanging_handler(world: World) -> None:
    """The page goes on without it."""
    payment = paid_at_the_gateway(world)
    with hanging_handler(world, payment):
        began = time.monotonic()
        page = world.come_back(payment)
        assert time.monotonic() - began < 3
        assert page.status_code == 200
        assert "Confirming your payment" in page.content.decode()
        assert (
            "data-poll" in page.content.decode()
            or "Refresh" in page.headers
            or "http-equiv" in page.content.decode()
        )
    assert world.come_back(payment).status_code == 302
    assert world.shop.times_paid(payment.order.key) == 1


@needs_row_locks
def test_held_order_says_try_later(world: World) -> None:
    """The shopper does not wait for the handler that holds the order."""
    payment = paid_at_the_gateway(world)
    with hanging_handler(world, payment):
        began = time.monotonic()
        answer = world.choose(payment.order.key, "paypal")
        assert time.monotonic() - began < 3
        assert answer.status_code in (200, 302, 409)
        assert Payment.objects.count() == 1


@needs_row_locks
def test_held_order_refuses_refund_soon(
    world: World,
) -> None:
    """No refund is sent while a handler holds the order."""
    paid, payment = world.paid_payment(), paid_at_the_gateway(world)
    Payment.objects.filter(pk=paid.pk).update(order_id=payment.order_id)
    with hanging_handler(world, payment):
        began = time.monotonic()
        with pytest.raises(limits.RefundNotPossible, match="another transaction holds the order"):
            queueing.refund(paid.pk, "1.00")
        assert time.monotonic() - began < 3
    assert not Refund.objects.exists()


@needs_row_locks
def test_worker_skips_held_order(world: World) -> None:
    payment, other = (paid_at_the_gateway(world) for _ in range(2))
    with hanging_handler(world, payment):
        with pytest.raises(OrderHeld):
            delivering.deliver_now(payment.order_id)
        assert delivering.deliver(payment.order_id) == 0
    world.notification(other)
    assert world.shop.is_paid(other.order.key)


def test_hanging_handlers_hold_two_threads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "_WAIT_FOR_PLACE_SECONDS", 0.01)
    payment = world.paid_payment()
    told: list[int] = []

    def tell(order_id: int) -> int:
        told.append(order_id)
        return 1

    monkeypatch.setattr(delivering, "deliver_now", tell)
    with delivering._places, delivering._places:
        assert delivering.deliver(payment.order_id) == 0
    assert told == []
    assert delivering.deliver(payment.order_id) == 1


@pytest.mark.parametrize(
    "run",
    [lambda world: world.run_worker(), lambda _: run_lane("default")],
    ids=["worker", "account"],
)
def test_batch_answers_precede_hanging_handlers(
    world: World,
    run: Callable[[World], object],
) -> None:
    """The answers of a batch are written before a handler can hang."""
    payments = [paid_at_the_gateway(world) for _ in range(3)]
    Payment.objects.update(next_poll_at=world.time.now())
    owner = hooks.plugin_manager().get_plugin(world.shop.plugin)
    [handler] = [
        one
        for one in hooks.plugin_manager().hook.tillgate_payment_paid.get_hookimpls()
        if one.plugin is owner
    ]
    real, seen = handler.function, []

    def look_first(*arguments: Any) -> Any:
        seen.append(list(Payment.objects.values_list("status", flat=True)))
        return real(*arguments)

    with mock.patch.object(handler, "function", look_first):
        run(world)
    assert seen == [["paid"] * 3] * 3
    assert [world.shop.times_paid(payment.order.key) for payment in payments] == [1, 1, 1]


def test_hanging_worker_ends_with_stack(world: World, settings: Any) -> None:
    stuck = undelivered(world)
    told = {
        "database": str(connection.settings_dict["NAME"]),
        "tillgate": dict(settings.TILLGATE),
        "plugin": world.shop.plugin,
    }
    ended = subprocess.run(
        [sys.executable, "-m", "tests.django.outbox.hanging_worker", json.dumps(told)],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.django.project"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, "the handler begins" in ended.stdout) == (1, True), ended.stderr
    assert "in ask_the_erp" in ended.stderr, "the stack names the handler"
    event = OutboxEvent.objects.get()
    assert (event.attempts, event.begun_at is not None) == (0, True)
    world.time.advance(minutes=6)
    world.run_worker()
    assert world.shop.times_paid(stuck.order.key) == 1
