"""Asking the gateway of one account about many payments: at a bounded rate, through a bounded pool, until it falls silent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from django.db import connections

from tillgate.django.conf import get_settings
from tillgate.django.models import Payment
from tillgate.django.operations.bounds import CircuitBreaker, RateLimiter, TimeBudget
from tillgate.lifecycle import Answer, Inconclusive

_log = logging.getLogger("tillgate")

Ask = Callable[[Payment], Answer]


class Asker:
    """Asks in one turn; with a single connection it does so in the thread that calls it."""

    def __init__(self, ask: Ask, budget: TimeBudget, connections_at_most: int | None = None) -> None:
        settings = get_settings()
        self.breaker = CircuitBreaker()
        self._ask, self._budget = ask, budget
        self._limiter = RateLimiter(settings.queries_per_second)
        self._workers = connections_at_most or settings.poll_connections
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="tillgate-query")  # its threads begin when they are needed

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown()

    @property
    def is_over(self) -> bool:
        """Whether no further query is sent."""
        return self._budget.is_over or self.breaker.too_many

    def about(self, batch: list[Payment]) -> list[Answer | None]:
        """Return the answer about each payment of a batch, None for those that were not asked about."""
        if self._workers == 1:
            return [self._look(payment) for payment in batch]
        answers: list[Answer | None] = [None] * len(batch)
        left, lock = iter(enumerate(batch)), threading.Lock()

        def work() -> None:
            try:
                while True:
                    with lock:
                        place, payment = next(left, (0, None))
                    if payment is None:
                        return
                    answers[place] = self._look(payment)
            finally:
                connections.close_all()  # this thread's own: a plugin that keeps accounts may have read one

        working: Iterable[Future[None]] = [self._pool.submit(work) for _ in range(min(self._workers, len(batch)))]
        for worker in working:
            worker.result()
        return answers

    def _look(self, payment: Payment) -> Answer | None:
        if self.is_over or not self._limiter.wait(self._budget.ends):
            return None
        try:
            answer = self._ask(payment)
        except Exception as error:  # a plugin may raise anything about its account, and that is inconclusive
            _log.exception("the look at %s failed", payment.reference)
            answer = Inconclusive(detail=f"{type(error).__name__} in a plugin")
        self.breaker.hear(answer)
        return answer
