"""Asking about many: each payment's answer in its place, and nobody once it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.django.conftest import World
from tillgate.django import clock
from tillgate.django.models import Payment
from tillgate.django.operations.bounds import TimeBudget
from tillgate.django.operations.polling import Asker
from tillgate.lifecycle import Answer, Inconclusive, NotFound

BATCH = [Payment(pk=number, reference=f"S{number}") for number in range(1, 8)]


def budget(*, stop: Callable[[], bool] = lambda: False) -> TimeBudget:
    return TimeBudget(stop)


@pytest.fixture(autouse=True)
def shop(world: World, configure: Callable[..., None]) -> None:
    configure(POLL_CONNECTIONS=3)


@pytest.mark.parametrize("connections", [None, 1, 2, 20])
def test_each_answer_is_in_its_payments_place(connections: int | None) -> None:
    threads: set[str] = set()

    def ask(payment: Payment) -> Answer:
        threads.add(threading.current_thread().name)
        return NotFound(asked_at=clock.now()) if payment.pk == 1 else Inconclusive(detail=payment.reference) if payment.pk < 5 else told

    told = NotFound(asked_at=clock.now())
    with Asker(ask, budget(), connections) as asker:
        answers = asker.about(BATCH)
        assert asker.about([]) == []
    assert [getattr(answer, "detail", None) for answer in answers] == [None, "S2", "S3", "S4", None, None, None]
    assert answers[4:] == [told] * 3
    assert isinstance(answers[0], NotFound)
    names = {name.rpartition("_")[0] for name in threads}
    assert names == ({""} if connections == 1 else {"tillgate-query"})
    assert len(threads) <= (connections or 3)


def test_as_many_are_asked_at_once_as_there_are_connections() -> None:
    many = 40
    together = threading.Barrier(many, timeout=10)

    def ask(payment: Payment) -> Answer:
        together.wait()
        return NotFound(asked_at=clock.now())

    with Asker(ask, budget(), many) as asker:
        answers = asker.about([Payment(pk=number, reference=f"S{number}") for number in range(many)])
    assert all(isinstance(answer, NotFound) for answer in answers)


@pytest.mark.parametrize("connections", [1, 3])
def test_nobody_is_asked_once_it_shall_stop(connections: int) -> None:
    asked: list[str] = []

    def ask(payment: Payment) -> Answer:
        asked.append(payment.reference)
        return NotFound(asked_at=clock.now())

    with Asker(ask, budget(stop=lambda: len(asked) >= 2), connections) as asker:
        before, answers, after = asker.is_over, asker.about(BATCH), asker.is_over
    assert (before, after) == (False, True)
    assert sum(answer is not None for answer in answers) == len(asked) <= 2 + connections - 1
    assert answers.count(None) == len(BATCH) - len(asked)


def test_nobody_is_asked_once_too_many_were_silent() -> None:
    with Asker(lambda payment: Inconclusive(detail=payment.reference), budget(), 1) as asker:
        answers = asker.about(BATCH)
        assert asker.is_over
    assert [answer is None for answer in answers] == [False] * 5 + [True] * 2
    assert asker.breaker.detail == "S5"


@pytest.mark.parametrize("connections", [1, 3])
def test_a_plugin_that_raises_is_no_news(connections: int, caplog: pytest.LogCaptureFixture) -> None:
    def ask(payment: Payment) -> Answer:
        raise ZeroDivisionError

    with Asker(ask, budget(), connections) as asker:
        assert asker.about(BATCH[:1]) == [Inconclusive(detail="ZeroDivisionError in a plugin")]
    assert "the look at S1 failed" in caplog.text


def test_what_would_be_asked_too_late_is_not_asked(configure: Callable[..., None]) -> None:
    configure(QUERIES_PER_SECOND=0.001)
    with Asker(lambda _: NotFound(asked_at=clock.now()), budget(), 1) as asker:
        assert [answer is None for answer in asker.about(BATCH[:3])] == [False, True, True]
