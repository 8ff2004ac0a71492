"""Turns, quotas, a pace and an ear for silence: what keeps one account from holding up the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tillgate.django.clock import SKEW
from tillgate.django.operations import turns
from tillgate.django.operations.turns import Pace, Quota, Rest, Silences, Turn
from tillgate.lifecycle import Answer, AttentionReason, NoNews, NotFound
from tillgate.testing.world import Time

SILENT = NoNews(because="time-out")


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
    monkeypatch.setattr(turns, "time", moved)
    return moved


def never() -> bool:
    return False


@pytest.mark.parametrize(("given", "seconds"), [(None, 60.0), (5.0, 5.0), (0.0, 0.0)])
def test_a_turn_is_over_after_its_seconds_or_as_soon_as_it_shall_stop(clock: Clock, given: float | None, seconds: float) -> None:
    turn = Turn(never, given)
    assert turn.ends == 100.0 + seconds
    clock.seconds += seconds - 0.001
    assert not turn.is_over or not seconds
    clock.seconds = turn.ends
    assert turn.is_over
    assert Turn(lambda: True).is_over


def test_a_quota_is_shared_until_it_is_spent_and_takes_back_what_was_not_used() -> None:
    quota = Quota(5)
    assert (quota.take(3), quota.take(3), quota.take(3), quota.is_spent) == (3, 2, 0, True)
    quota.give_back(2)
    assert (quota.is_spent, quota.take(1)) == (False, 1)
    quota.give_back(3)
    assert (quota.take(9), quota.is_spent) == (4, True)


def test_a_quota_without_a_limit_is_never_spent() -> None:
    quota = Quota(None)
    assert (quota.take(200), quota.take(200)) == (200, 200)
    quota.give_back(1)
    assert not quota.is_spent


def test_a_pace_lets_so_many_pass_in_a_second_whoever_asks(clock: Clock) -> None:
    pace = Pace(4)
    assert [pace.wait(200.0) for _ in range(3)] == [True] * 3
    assert clock.slept == [0.0, 0.25, 0.25]
    clock.seconds += 10
    assert pace.wait(200.0)
    assert clock.slept[-1] == 0.0, "what was not used is not saved up"
    assert pace.wait(200.0)
    assert clock.slept[-1] == 0.25


def test_a_pace_does_not_wait_for_what_would_come_too_late(clock: Clock) -> None:
    pace = Pace(1)
    assert pace.wait(100.0)
    assert not pace.wait(100.5)
    assert clock.slept == [0.0]
    assert pace.wait(101.0), "nobody has taken the place of the one who went away"


def test_without_a_pace_nobody_waits(clock: Clock) -> None:
    pace = Pace(0)
    assert all(pace.wait(0.0) for _ in range(10))
    assert clock.slept == []


def test_five_silences_in_a_row_are_too_many_and_news_ends_them() -> None:
    silences = Silences()
    assert (silences.because, silences.is_told, silences.heard_news, silences.too_many) == ("", False, False, False)
    for _ in range(4):
        silences.hear(SILENT)
    assert (silences.too_many, silences.because, silences.heard_news) == (False, "time-out", False)
    silences.hear(NotFound(asked_at=Time().now()))
    assert silences.heard_news
    for number in range(5):
        assert not silences.too_many
        silences.hear(NoNews(because=f"silence {number}"))
    assert (silences.too_many, silences.because, silences.heard_news) == (True, "silence 4", True)


@pytest.mark.parametrize(
    ("heard", "is_told"),
    [
        ([SILENT], False),
        ([SILENT, NoNews(because="refused", attention=AttentionReason.WRONG_CREDENTIALS)], True),
        ([NoNews(because="refused", attention=AttentionReason.WRONG_CREDENTIALS), SILENT], True),
    ],
)
def test_a_silence_is_told_when_any_of_its_answers_says_why(heard: list[Answer], is_told: bool) -> None:
    silences = Silences()
    for answer in heard:
        silences.hear(answer)
    assert silences.is_told is is_told


def test_a_payment_whose_account_is_gone_says_nothing_of_the_gateway() -> None:
    silences = Silences()
    for _ in range(9):
        silences.hear(NoNews(because="gone", attention=AttentionReason.ACCOUNT_GONE))
    assert (silences.too_many, silences.because, silences.is_told) == (False, "", False)


def test_a_rest_lasts_its_time_and_ends_at_once_when_the_clock_is_put_forward_or_back(clock: Clock) -> None:
    rest, now = Rest(timedelta(hours=1)), datetime(2026, 1, 1, tzinfo=UTC)
    assert rest.is_over(now), "it was never done"
    rest.begin(now)
    clock.seconds += 3599
    passed = now + timedelta(seconds=3599)
    assert not rest.is_over(passed)
    assert not rest.is_over(passed + SKEW)
    assert not rest.is_over(passed - SKEW)
    assert rest.is_over(passed + SKEW + timedelta(seconds=1))
    assert rest.is_over(passed - SKEW - timedelta(seconds=1))
    clock.seconds += 1
    assert rest.is_over(passed + timedelta(seconds=1))
