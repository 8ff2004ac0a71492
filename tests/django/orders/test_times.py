"""Bounds of time, and of the calls under way in a process."""

from __future__ import annotations

import pytest

from tillgate.django.orders import times


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
