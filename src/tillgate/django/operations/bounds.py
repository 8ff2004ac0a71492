"""Bounds: of the calls under way in a process, and of the time to pay an order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from django.core.signals import setting_changed

from tillgate.django import clock
from tillgate.django.conf import get_settings
from tillgate.django.models import Order

_SLOW_SECONDS: Final = 2.0
"""A call that lasts longer makes its key slow."""
_HANG_SECONDS: Final = 4.0
"""A call that took longer has hung, and its key stays slow for a while."""
_SLOW_FOR_SECONDS: Final = 30.0

Stop = Callable[[], bool]
"""Says that no new work may begin."""

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


def stop_after(seconds: float, stop: Stop = never) -> Stop:
    """Return a `Stop` that says so after some seconds, or once another one does."""
    return partial(_is_after, time.monotonic() + seconds, stop)


def _is_after(ends: float, stop: Stop) -> bool:
    return stop() or time.monotonic() >= ends


class Gate:
    """Lets a bounded number of calls of this process pass at a time, by a key, so that calls that hang hold few of its threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._began: dict[str, dict[object, float]] = {}
        self._slow_until: dict[str, float] = {}
        setting_changed.connect(self._forget)

    @contextmanager
    def passing(self, key: str, most: int | None = None, *, wait_seconds: float = 0.0) -> Iterator[bool]:
        """Hold a place during a block, and tell whether there was one; without `most` there always is. A slow key is not waited for."""
        call = object()
        with self._changed:
            wait_seconds = 0.0 if self._is_slow(key) else wait_seconds
            may_pass = self._changed.wait_for(lambda: most is None or len(self._began.get(key, ())) < most, wait_seconds)
            if may_pass:
                self._began.setdefault(key, {})[call] = time.monotonic()
        try:
            yield may_pass
        finally:
            if may_pass:
                self._leave(key, call)

    def is_slow(self, key: str) -> bool:
        """Return whether a call hangs at this moment, or the last one that ended had hung and another call tries again or none may yet."""
        with self._changed:
            return self._is_slow(key)

    def _is_slow(self, key: str) -> bool:
        now, under_way = time.monotonic(), self._began.get(key, {})
        if key in self._slow_until and (under_way or now < self._slow_until[key]):
            return True  # one call alone tries again after the pause
        return any(now - began > _SLOW_SECONDS for began in under_way.values())

    def _leave(self, key: str, call: object) -> None:
        with self._changed:
            now = time.monotonic()
            if now - self._began[key].pop(call) > _HANG_SECONDS:
                self._slow_until[key] = now + _SLOW_FOR_SECONDS
            else:
                self._slow_until.pop(key, None)
            self._changed.notify_all()

    def _forget(self, *, setting: str, **_: object) -> None:
        if setting == "TILLGATE":
            self._slow_until.clear()
