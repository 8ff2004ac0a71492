"""The time limit of a shop's handlers: what hangs takes no page, no other order and no worker with it, and staff hear of it."""

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
from django.core import mail
from django.db import connection, connections

from tests.django import project
from tests.django.conftest import World
from tillgate import hooks
from tillgate.django import operations
from tillgate.django.models import OutboxEvent, Payment, Refund, Review
from tillgate.django.operations import outbox
from tillgate.django.operations.locking import OrderHeld, locked_order
from tillgate.django.operations.worker import run_account

Configure = Callable[..., None]
ROOT = Path(__file__).parents[3]

needs_row_locks = pytest.mark.skipif(project.DATABASE == "sqlite", reason="SQLite locks no single row")


@contextmanager
def hanging_handler(world: World, payment: Payment) -> Iterator[threading.Thread]:
    """Let the gateway notify in a thread, whose handler asks an ERP that does not answer before the block ends."""
    manager = hooks.plugin_manager()
    owner = manager.get_plugin(world.shop.plugin)
    [handler] = [one for one in manager.hook.tillgate_payment_paid.get_hookimpls() if one.plugin is owner]
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


def test_i3_a_handler_that_hangs_is_cut_off_and_staff_hear_of_it_while_it_hangs(world: World, configure: Configure, settings: Any) -> None:
    settings.MANAGERS = [("Owner", "owner@shop.example")]
    configure(HANDLER_SECONDS=0.2)
    payment = paid_at_the_gateway(world)
    with hanging_handler(world, payment) as notifying:
        until = time.monotonic() + 8
        while not mail.outbox and time.monotonic() < until:
            time.sleep(0.02)
        assert notifying.is_alive()
        [event] = OutboxEvent.objects.filter(done_at__isnull=True, kind="payment-paid")
        assert (event.attempts, event.fault.partition(":")[0]) == (1, "HandlerHangs")
        [review] = Review.objects.all()
        assert (review.reason, review.outbox_event, review.order) == ("delivery-failing", event, payment.order)
        assert "has not returned within 0.2 s" in mail.outbox[0].body
        with locked_order(payment.order_id):
            pass
    assert not world.shop.is_paid(payment.order.key), "the handler that was cut off has no effect"
    world.time.advance(minutes=1)
    world.run_worker()
    assert world.shop.times_paid(payment.order.key) == 1
    assert world.reviews() == []


def test_a_remote_event_whose_delivery_hangs_is_noted_and_mailed_and_due_again(
    world: World, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MANAGERS = [("Owner", "owner@shop.example")]
    monkeypatch.setattr(outbox, "_REMOTE_SECONDS", 0.2)
    answers, calls = threading.Event(), []

    class Remote:
        @hooks.hookimpl
        def tillgate_deliver(self, outbox_event: hooks.RemoteEvent) -> None:
            calls.append(outbox_event.name)
            answers.wait(20)

        @hooks.hookimpl
        def tillgate_describe_order(self, order_key: str) -> hooks.OrderDescription:
            return described

    def deliver() -> None:
        try:
            outbox.deliver_remote(order.pk)
        finally:
            connections.close_all()

    order = world.start(world.order()).order
    described: hooks.OrderDescription = hooks.call_owner(order.plugin, "tillgate_describe_order", order_key=order.key)
    hooks.plugin_manager().register(Remote(), name="remote-shop")
    try:
        order.plugin = "remote-shop"
        order.save()
        outbox.enqueue_remote("remote-shop", order.key, "receipt")
        delivering = threading.Thread(target=deliver)
        delivering.start()
        until = time.monotonic() + 8
        while not mail.outbox and time.monotonic() < until:
            time.sleep(0.02)
        assert delivering.is_alive()
        event = OutboxEvent.objects.get(kind="remote")
        assert (event.attempts, event.fault.partition(":")[0]) == (1, "HandlerHangs")
        assert Review.objects.get().reason == "delivery-failing"
        assert "has not returned within 0.2 s" in mail.outbox[0].body
        answers.set()
        delivering.join()
        event.refresh_from_db()
        assert (event.attempts, event.done_at) == (1, None), "the late end is not counted once more"
        world.time.advance(minutes=1)
        world.run_worker()
        assert calls == ["receipt", "receipt"]
        assert world.reviews() == []
    finally:
        answers.set()
        hooks.plugin_manager().unregister(name="remote-shop")


@needs_row_locks
def test_a_page_does_not_wait_for_a_handler_that_hangs_and_goes_on_by_itself(world: World) -> None:
    payment = paid_at_the_gateway(world)
    with hanging_handler(world, payment):
        began = time.monotonic()
        page = world.come_back(payment)
        assert time.monotonic() - began < 3
        assert page.status_code == 200
        assert "Confirming your payment" in page.content.decode()
        assert "data-poll" in page.content.decode() or "Refresh" in page.headers or "http-equiv" in page.content.decode()
    assert world.come_back(payment).status_code == 302
    assert world.shop.times_paid(payment.order.key) == 1


@needs_row_locks
def test_a_press_on_an_order_that_a_handler_holds_is_told_to_try_later(world: World) -> None:
    payment = paid_at_the_gateway(world)
    with hanging_handler(world, payment):
        began = time.monotonic()
        answer = world.choose(payment.order.key, "paypal")
        assert time.monotonic() - began < 3
        assert answer.status_code in (200, 302, 409)
        assert Payment.objects.count() == 1


@needs_row_locks
def test_a_refund_of_an_order_that_a_handler_holds_is_refused_soon_and_nothing_is_sent(world: World) -> None:
    paid, payment = world.paid_payment(), paid_at_the_gateway(world)
    Payment.objects.filter(pk=paid.pk).update(order_id=payment.order_id)
    with hanging_handler(world, payment):
        began = time.monotonic()
        with pytest.raises(operations.RefundNotPossible, match="another transaction holds the order"):
            operations.refund(paid.pk, "1.00")
        assert time.monotonic() - began < 3
    assert not Refund.objects.exists()


@needs_row_locks
def test_the_worker_passes_over_an_order_that_a_handler_holds(world: World) -> None:
    payment, other = (paid_at_the_gateway(world) for _ in range(2))
    with hanging_handler(world, payment):
        with pytest.raises(OrderHeld):
            outbox.deliver_now(payment.order_id)
        assert operations.deliver(payment.order_id) == 0
    world.notification(other)
    assert world.shop.is_paid(other.order.key)


def test_hanging_handlers_hold_two_threads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_WAIT_FOR_PLACE_SECONDS", 0.01)
    payment = world.paid_payment()
    told: list[int] = []

    def tell(order_id: int) -> int:
        told.append(order_id)
        return 1

    monkeypatch.setattr(outbox, "deliver_now", tell)
    with outbox._places, outbox._places:
        assert operations.deliver(payment.order_id) == 0
    assert told == []
    assert operations.deliver(payment.order_id) == 1


@pytest.mark.parametrize("run", [lambda world: world.run_worker(), lambda _: run_account("default")], ids=["worker", "account"])
def test_the_answers_of_a_batch_are_written_before_a_handler_that_may_hang(world: World, run: Callable[[World], object]) -> None:
    payments = [paid_at_the_gateway(world) for _ in range(3)]
    Payment.objects.update(next_poll_at=world.time.now())
    owner = hooks.plugin_manager().get_plugin(world.shop.plugin)
    [handler] = [one for one in hooks.plugin_manager().hook.tillgate_payment_paid.get_hookimpls() if one.plugin is owner]
    real, seen = handler.function, []

    def look_first(*arguments: Any) -> Any:
        seen.append(list(Payment.objects.values_list("status", flat=True)))
        return real(*arguments)

    with mock.patch.object(handler, "function", look_first):
        run(world)
    assert seen == [["paid"] * 3] * 3
    assert [world.shop.times_paid(payment.order.key) for payment in payments] == [1, 1, 1]


@pytest.mark.skipif(project.DATABASE == "sqlite", reason="SQLite has one writer: the worker would hold up this test's own")
def test_a_worker_whose_handler_hangs_polls_the_others_first_and_ends_for_its_supervisor(world: World, settings: Any) -> None:
    told = dict(settings.TILLGATE) | {"HANDLER_SECONDS": 0.3}
    with world.failing_handler("tillgate_payment_paid"):
        stuck = world.paid_payment()
    polled = paid_at_the_gateway(world)
    OutboxEvent.objects.update(due_at=world.time.now())
    Payment.objects.filter(pk=polled.pk).update(next_poll_at=world.time.now())
    told = {"database": str(connection.settings_dict["NAME"]), "tillgate": told, "plugin": world.shop.plugin}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.django.operations.hanging_worker", json.dumps(told)],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.django.project"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 75, ended.stderr
    assert "the handler begins" in ended.stdout
    assert world.fresh(polled).status == "paid"
    assert "has not returned within 0.3 s" in ended.stdout, "the worker's mail"
    assert Review.objects.get(reason="delivery-failing").order == polled.order, "the event that has failed comes last"
    world.time.advance(minutes=2)
    world.run_worker()
    assert world.shop.times_paid(stuck.order.key) == world.shop.times_paid(polled.order.key) == 1
    assert world.reviews() == []
