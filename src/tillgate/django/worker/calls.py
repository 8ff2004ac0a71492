"""Queries of one account's payments, bounded in number, rate and time, until the gateway is
silent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final

from django.db import connections

from tillgate.django.conf import get_settings
from tillgate.django.models import Payment
from tillgate.django.orders.times import Stop, never
from tillgate.lifecycle import Answer, Inconclusive, ReviewReason

_log = logging.getLogger("tillgate")

_SILENT_AFTER: Final = 5
"""So many inconclusive answers in a row, and nothing more is asked."""

Ask = Callable[[Payment], Answer]


class Calls:
    """The queries of one turn; with a single connection they happen in the caller's thread."""

    def __init__(
        self,
        ask: Ask,
        *,
        stop: Stop = never,
        ends: float | None = None,
        connections: int | None = None,
    ) -> None:
        settings = get_settings()
        self._ask, self._stop, self._ends = ask, stop, ends
        self._gap = 1 / settings.queries_per_second if settings.queries_per_second else 0.0
        self._next, self._lock = time.monotonic(), threading.Lock()
        self._at_once = connections or settings.poll_connections
        # its threads begin when they are needed
        self._pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="tillgate-query")
        self._in_a_row = 0
        self.detail = ""
        """The detail of the last inconclusive answer."""
        self.has_review = False
        """Whether a review explains one of them."""
        self.has_heard = False
        """Whether the gateway has answered."""

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown()

    @property
    def is_silent(self) -> bool:
        """Whether it is no use to ask on."""
        return self._in_a_row >= _SILENT_AFTER

    @property
    def last_was_silent(self) -> bool:
        """Whether the last query brought no usable answer."""
        return self._in_a_row > 0

    @property
    def is_over(self) -> bool:
        """Whether no further query is sent."""
        return self.is_silent or self._stop()

    def answers(self, payments: Sequence[Payment]) -> list[Answer | None]:
        """Return the answer about each payment, None for those that were not asked about."""
        answers: list[Answer | None] = [None] * len(payments)
        left = deque(enumerate(payments))
        if self._at_once == 1:
            self._work(left, answers)
            return answers
        working = [
            self._pool.submit(self._work_in_thread, left, answers)
            for _ in range(min(self._at_once, len(payments)))
        ]
        for one in working:
            one.result()
        return answers

    def _work_in_thread(
        self,
        left: deque[tuple[int, Payment]],
        answers: list[Answer | None],
    ) -> None:
        try:
            self._work(left, answers)
        finally:
            # this thread's own: a plugin that keeps accounts may have read one
            connections.close_all()

    def _work(self, left: deque[tuple[int, Payment]], answers: list[Answer | None]) -> None:
        while left and not self.is_over and self._wait():
            try:
                place, payment = left.popleft()
            except IndexError:  # another thread has taken the last one
                return
            answers[place] = self._answer(payment)

    def _wait(self) -> bool:
        """Wait for the next moment at which the rate lets a query pass; return whether that is in
        time.
        """
        if not self._gap:
            return self._ends is None or time.monotonic() < self._ends
        with self._lock:
            now = time.monotonic()
            mine = max(self._next, now)
            if self._ends is not None and mine >= self._ends:
                return False
            self._next = mine + self._gap
        time.sleep(mine - now)
        return True

    def _answer(self, payment: Payment) -> Answer:
        try:
            answer = self._ask(payment)
        except (
            Exception
        ) as error:  # a plugin may raise anything about its account, and that is inconclusive
            _log.exception("the query of %s failed", payment.reference)
            answer = Inconclusive(detail=f"{type(error).__name__} in a plugin")
        if not isinstance(answer, Inconclusive):
            self._in_a_row, self.has_heard = 0, True
        elif answer.review is not ReviewReason.ACCOUNT_GONE:  # for which no query was sent
            self._in_a_row += 1
            self.detail, self.has_review = (
                answer.detail,
                self.has_review or answer.review is not None,
            )
        return answer
