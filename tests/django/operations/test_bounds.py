"""Bounds of time, and of the calls under way in a process."""

from __future__ import annotations

import pytest

from tillgate.django.operations import bounds
from tillgate.django.operations.bounds import Gate


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
    monkeypatch.setattr(bounds, "time", moved)
    return moved


def test_stop_after_its_seconds_or_once_asked(clock: Clock) -> None:
    asked: list[bool] = []
    stop = bounds.stop_after(5.0, lambda: bool(asked))
    clock.seconds += 4.9
    assert not stop()
    clock.seconds += 0.1
    assert stop()
    later = bounds.stop_after(5.0, lambda: bool(asked))
    assert not later()
    asked.append(True)
    assert later()


def test_a_gate_lets_a_bounded_number_of_calls_of_a_key_pass_at_a_time() -> None:
    gate = Gate()
    with gate.passing("a", 1) as first, gate.passing("a", 1) as second, gate.passing("b", 1) as other, gate.passing("a") as unbounded:
        assert (first, second, other, unbounded) == (True, False, True, True)
    with gate.passing("a", 1) as again:
        assert again


def test_a_gate_is_slow_while_a_call_hangs_and_for_a_while_after_one_that_hung(clock: Clock) -> None:
    gate = Gate()
    with gate.passing("a"):
        clock.seconds += 2
        assert not gate.is_slow("a")
        clock.seconds += 0.1
        assert gate.is_slow("a")
        assert not gate.is_slow("b")
        clock.seconds += 3
    assert gate.is_slow("a")
    clock.seconds += 29
    assert gate.is_slow("a")
    clock.seconds += 1
    assert not gate.is_slow("a")
    with gate.passing("a"):
        assert gate.is_slow("a"), "a call alone tries whether it still hangs"
        clock.seconds += 5
    with gate.passing("a"):
        clock.seconds += 0.1
    with gate.passing("a"):
        assert not gate.is_slow("a"), "the gateway answers again, and calls pass side by side"
