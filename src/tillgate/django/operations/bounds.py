"""Bounds: time budgets, quotas, a rate and a count of failures, so that none holds up the others; and the time to pay an order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from tillgate.django import clock
from tillgate.django.conf import get_settings
from tillgate.django.models import Order
from tillgate.lifecycle import Answer, Inconclusive, ReviewReason

Stop = Callable[[], bool]
"""Says that no new work may begin."""

_SILENCES_BEFORE_PAUSE: Final = 5
"""So many queries in a row without news, and the account rests."""
TURN_SECONDS: Final = 60.0
"""After so long the others get their turn; a call that is under way is awaited."""
PURGE_CHECK: Final = timedelta(days=30)
"""The longest time between two checks whether an order has details that are older than they are kept: a changed setting counts by then."""


def never() -> bool:
    """Let new work begin at any time: it is a `Stop`."""
    return False


def disputable() -> timedelta:
    """Return how long a payment that has ended is polled: a bank may take its money back, and money may come late."""
    return timedelta(days=get_settings().disputable_days)


def pay_until(order: Order) -> datetime | None:
    """Return when no payment of an order can start any more, so that its goods are not held for ever; None before its first payment."""
    settings = get_settings()
    minutes = max(settings.order_payable_for_minutes, settings.order_unpaid_after_minutes)
    return order.tried_since + timedelta(minutes=minutes) if order.tried_since else None


def unpaid_check_at(until: datetime | None = None) -> datetime:
    """Return when the worker checks whether an order is unpaid: the shopper may pay again until then, and no later than `until`."""
    check_at = clock.now() + timedelta(minutes=get_settings().order_unpaid_after_minutes)
    return min(check_at, until or check_at)


class TimeBudget:
    """The time in which new work may begin; its default length is that of a turn."""

    def __init__(self, stop: Stop, seconds: float | None = None) -> None:
        self._stop = stop
        self.ends = time.monotonic() + (TURN_SECONDS if seconds is None else seconds)

    @property
    def is_over(self) -> bool:
        """Whether nothing more may begin."""
        return self._stop() or time.monotonic() >= self.ends


class PollLimit:
    """How many payments may still be polled, shared by all accounts."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit
        self._lock = threading.Lock()

    @property
    def is_spent(self) -> bool:
        """Whether none is left."""
        return self._left is not None and self._left <= 0

    def take(self, wanted: int) -> int:
        """Take up to so many."""
        with self._lock:
            if self._left is None:
                return wanted
            taken = min(wanted, self._left)
            self._left -= taken
            return taken

    def give_back(self, unused: int) -> None:
        """Return the unused part."""
        with self._lock:
            if self._left is not None:
                self._left += unused


class RateLimiter:
    """Lets so many calls pass in a second, for all threads together."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second if per_second else 0.0
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def wait(self, until: float) -> bool:
        """Wait for one's turn; False when it would come too late."""
        if not self._gap:
            return True
        with self._lock:
            now = time.monotonic()
            mine = max(self._next, now)
            if mine > until:
                return False
            self._next = mine + self._gap
        time.sleep(mine - now)
        return True


class CircuitBreaker:
    """Counts queries in a row that brought inconclusive."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self.detail = ""
        self.is_told = False
        self.heard_conclusive = False

    @property
    def any(self) -> bool:
        """Whether the last query brought inconclusive."""
        return self._in_a_row > 0

    @property
    def too_many(self) -> bool:
        """Whether it is no use asking on."""
        return self._in_a_row >= _SILENCES_BEFORE_PAUSE

    def hear(self, answer: Answer) -> None:
        """Count an answer. A payment whose account is gone is no evidence about the gateway: no query was sent."""
        if isinstance(answer, Inconclusive) and answer.review is ReviewReason.ACCOUNT_GONE:
            return
        if isinstance(answer, Inconclusive):
            self._in_a_row += 1
            self.detail, self.is_told = answer.detail, self.is_told or answer.review is not None
        else:
            self._in_a_row, self.heard_conclusive = 0, True
