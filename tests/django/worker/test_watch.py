"""The watch over the worker: the web process reports a worker that is away, frozen or behind."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail

from tests.django.conftest import World
from tillgate import shop
from tillgate.django.heartbeats import beat
from tillgate.django.models import OutboxEvent, Review
from tillgate.django.reviews.closing import resolve
from tillgate.django.worker import watch
from tillgate.django.worker.watch import look_at_worker, look_now_and_then


@pytest.fixture
def looks(world: World, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Let each page look."""
    settings.MANAGERS = [("Owner", "owner@shop.example")]
    monkeypatch.setattr(watch._watch, "is_time", lambda: True)


def ended() -> None:
    """Wait for the thread of a look."""
    for thread in threading.enumerate():
        if thread.name == "tillgate-watch":
            thread.join()


@pytest.mark.usefixtures("looks")
def test_shopper_page_reports_absent_worker(world: World) -> None:
    """The review and the mail do not need the worker."""
    payment = world.start(world.order())
    world.run_worker()
    world.time.advance(minutes=14)
    world.come_back(payment)
    ended()
    assert (world.reviews(), mail.outbox) == ([], [])
    world.time.advance(minutes=2)
    for _ in range(2):
        assert world.come_back(payment).status_code == 200
        ended()
    assert world.reviews() == ["worker-late"]
    [sent] = mail.outbox
    assert "The worker has not run since" in sent.body
    world.run_worker()
    assert world.reviews() == []


@pytest.mark.usefixtures("looks")
def test_undelivered_shop_event_is_reported(
    world: World,
) -> None:
    """The event is reported even while the worker's heartbeat is recent."""
    order = world.order()
    with world.failing_handler("tillgate_payment_paid"):
        payment = world.start(order)
        world.shopper_pays(payment)
        world.notification(payment)
    world.time.advance(minutes=16)
    beat({})
    world.see_pay_page(world.order())
    ended()
    [review] = Review.objects.filter(reason="worker-late")
    assert f"order {payment.order} waits since" in review.message
    world.run_worker()
    assert world.shop.is_paid(order)
    assert world.reviews() == []


def test_blocked_events_open_no_review(world: World) -> None:
    """An event may wait behind one that fails."""
    payment = world.paid_payment()
    now = world.time.now()
    event = OutboxEvent.objects.get(order=payment.order, kind="payment-paid")
    world.time.advance(minutes=20)
    beat({})
    OutboxEvent.objects.filter(pk=event.pk).update(
        done_at=None,
        due_at=world.time.now(),
        attempts=3,
    )
    OutboxEvent.objects.create(
        order=payment.order,
        payment=payment,
        kind="payment-paid",
        created_at=now,
        due_at=now,
    )
    look_at_worker()
    assert world.reviews() == []
    OutboxEvent.objects.filter(pk=event.pk).update(done_at=now)
    look_at_worker()
    assert world.reviews() == ["worker-late"]


def test_unsent_remote_event_is_reported(
    world: World,
) -> None:
    """An event before its time is not reported."""
    payment = world.paid_payment()
    shop.enqueue_remote(
        payment.order.plugin,
        payment.order.key,
        "invoice",
        delay=timedelta(minutes=30),
    )
    for minutes, told in ((44, []), (2, ["worker-late"])):
        world.time.advance(minutes=minutes)
        beat({})
        look_at_worker()
        assert world.reviews() == told


def test_dismissal_covers_only_one_case(world: World) -> None:
    """The next case opens a review again."""
    world.run_worker()
    world.time.advance(hours=1)
    look_at_worker()
    [review] = Review.objects.all()
    resolve(review.pk, "known", "anna", dismissed=True)
    look_at_worker()
    assert world.reviews() == []
    world.run_worker()
    world.time.advance(hours=1)
    look_at_worker()
    assert world.reviews() == ["worker-late"]


def test_process_looks_once_per_minute(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A failure to look does not affect the shopper."""
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    pages = watch._Watch()
    heard = []
    for _ in range(13):
        heard.append(pages.is_time())
        seconds[0] += 10
    assert heard == [False] * 6 + [True] + [False] * 5 + [True]
    monkeypatch.setattr(watch._watch, "is_time", lambda: True)

    def away() -> Any:
        raise RuntimeError("the database is away")

    monkeypatch.setattr(watch, "_trouble", away)
    look_now_and_then()
    assert "whether the worker runs could not be seen" in caplog.text
