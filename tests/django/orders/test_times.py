"""Bounds of time, and of the calls under way in a process."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tillgate.django.orders import times
from tillgate.testing.world import World


class Clock:
    """A monotonic clock that a test moves, and that sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    monkeypatch.setattr(times, "time", moved)
    return moved


def test_stop_after_its_seconds_or_once_asked(clock: Clock) -> None:
    asked: list[bool] = []
    stop = times.stop_after(5.0, lambda: bool(asked))
    clock.seconds += 4.9
    assert not stop()
    clock.seconds += 0.1
    assert stop()
    later = times.stop_after(5.0, lambda: bool(asked))
    assert not later()
    asked.append(True)
    assert later()


def test_time_under_way_is_no_time_to_pay(world: World) -> None:
    """However often it begins and ends, and however many payments it is of at a time."""
    order = world.start(world.order()).order
    until = times.pay_until(order)
    assert until is not None
    for hours in (30, 5):
        order.payments.update(is_processing=True)
        times.note_under_way(order)
        world.time.advance(hours=hours)
        now_until = times.pay_until(order)
        assert now_until is not None
        times.note_under_way(order)  # another payment of it has begun: no second time
        order.payments.update(is_processing=False)
        times.note_under_way(order)
        world.time.advance(minutes=7)
        assert abs(times.pay_until(order) - now_until) < timedelta(seconds=5)  # type: ignore[operator]
        until += timedelta(hours=hours)
        order.refresh_from_db()
        assert abs(times.pay_until(order) - until) < timedelta(seconds=5)  # type: ignore[operator]
        assert order.under_way_since is None


def test_time_to_try_that_begins_under_way(world: World) -> None:
    """Time before it is not counted out of it, and it never begins later than now."""
    order = world.start(world.order()).order
    order.payments.update(is_processing=True)
    times.note_under_way(order)
    world.time.advance(hours=30)
    order.tried_since = world.time.now()  # as after a refund of a payment that had not paid it
    world.time.advance(hours=2)
    order.payments.update(is_processing=False)
    times.note_under_way(order)
    assert abs(order.tried_since - world.time.now()) < timedelta(seconds=5)


@pytest.mark.parametrize("minutes_before", [50, 70, 1430])
def test_failed_debit_leaves_time_to_pay(
    world: World,
    settings: Any,
    minutes_before: int,
) -> None:
    """Even one that begins when the time to try the order is nearly or wholly over."""
    settings.TILLGATE = {**settings.TILLGATE, "ORDER_PAYABLE_FOR_MINUTES": 60}
    order = world.start(world.order()).order
    world.time.advance(minutes=minutes_before)
    order.payments.update(is_processing=True)
    times.note_under_way(order)
    world.time.advance(hours=30)
    order.payments.update(is_processing=False)
    times.note_under_way(order)
    left = times.pay_until(order) - world.time.now()  # type: ignore[operator]
    assert timedelta(minutes=59) < left < timedelta(minutes=61)
