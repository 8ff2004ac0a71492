"""Turns, quotas, a pace and an ear for silence: what keeps one account from holding up the others."""

from __future__ import annotations

import pytest

from tillgate.django.operations import bounds
from tillgate.django.operations.bounds import CircuitBreaker, PollLimit, RateLimiter, TimeBudget
from tillgate.lifecycle import Answer, Inconclusive, NotFound, ReviewReason
from tillgate.testing.world import Time

SILENT = Inconclusive(detail="time-out")


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


def never() -> bool:
    return False


@pytest.mark.parametrize(("given", "seconds"), [(None, 60.0), (5.0, 5.0), (0.0, 0.0)])
def test_a_turn_is_over_after_its_seconds_or_as_soon_as_it_shall_stop(clock: Clock, given: float | None, seconds: float) -> None:
    budget = TimeBudget(never, given)
    assert budget.ends == 100.0 + seconds
    clock.seconds += seconds - 0.001
    assert not budget.is_over or not seconds
    clock.seconds = budget.ends
    assert budget.is_over
    assert TimeBudget(lambda: True).is_over


def test_a_quota_is_shared_until_it_is_spent_and_takes_back_what_was_not_used() -> None:
    poll_limit = PollLimit(5)
    assert (poll_limit.take(3), poll_limit.take(3), poll_limit.take(3), poll_limit.is_spent) == (3, 2, 0, True)
    poll_limit.give_back(2)
    assert (poll_limit.is_spent, poll_limit.take(1)) == (False, 1)
    poll_limit.give_back(3)
    assert (poll_limit.take(9), poll_limit.is_spent) == (4, True)


def test_a_quota_without_a_limit_is_never_spent() -> None:
    poll_limit = PollLimit(None)
    assert (poll_limit.take(200), poll_limit.take(200)) == (200, 200)
    poll_limit.give_back(1)
    assert not poll_limit.is_spent


def test_a_pace_lets_so_many_pass_in_a_second_whoever_asks(clock: Clock) -> None:
    limiter = RateLimiter(4)
    assert [limiter.wait(200.0) for _ in range(3)] == [True] * 3
    assert clock.slept == [0.0, 0.25, 0.25]
    clock.seconds += 10
    assert limiter.wait(200.0)
    assert clock.slept[-1] == 0.0, "what was not used is not saved up"
    assert limiter.wait(200.0)
    assert clock.slept[-1] == 0.25


def test_a_pace_does_not_wait_for_what_would_come_too_late(clock: Clock) -> None:
    limiter = RateLimiter(1)
    assert limiter.wait(100.0)
    assert not limiter.wait(100.5)
    assert clock.slept == [0.0]
    assert limiter.wait(101.0), "nobody has taken the place of the one who went away"


def test_without_a_pace_nobody_waits(clock: Clock) -> None:
    limiter = RateLimiter(0)
    assert all(limiter.wait(0.0) for _ in range(10))
    assert clock.slept == []


def test_five_silences_in_a_row_are_too_many_and_news_ends_them() -> None:
    breaker = CircuitBreaker()
    assert (breaker.detail, breaker.is_told, breaker.heard_conclusive, breaker.too_many) == ("", False, False, False)
    for _ in range(4):
        breaker.hear(SILENT)
    assert (breaker.too_many, breaker.detail, breaker.heard_conclusive) == (False, "time-out", False)
    breaker.hear(NotFound(asked_at=Time().now()))
    assert breaker.heard_conclusive
    for number in range(5):
        assert not breaker.too_many
        breaker.hear(Inconclusive(detail=f"unspecified {number}"))
    assert (breaker.too_many, breaker.detail, breaker.heard_conclusive) == (True, "unspecified 4", True)


@pytest.mark.parametrize(
    ("heard", "is_told"),
    [
        ([SILENT], False),
        ([SILENT, Inconclusive(detail="refused", review=ReviewReason.WRONG_CREDENTIALS)], True),
        ([Inconclusive(detail="refused", review=ReviewReason.WRONG_CREDENTIALS), SILENT], True),
    ],
)
def test_a_silence_is_told_when_any_of_its_answers_says_why(heard: list[Answer], is_told: bool) -> None:
    breaker = CircuitBreaker()
    for answer in heard:
        breaker.hear(answer)
    assert breaker.is_told is is_told


def test_a_payment_whose_account_is_gone_says_nothing_of_the_gateway() -> None:
    breaker = CircuitBreaker()
    for _ in range(9):
        breaker.hear(Inconclusive(detail="gone", review=ReviewReason.ACCOUNT_GONE))
    assert (breaker.too_many, breaker.detail, breaker.is_told) == (False, "", False)
