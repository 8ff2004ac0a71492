"""Saleor waits for an answer, and no longer than 18 seconds: whatever the gateway does, ours is there before."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from django.db import connections

__all__ = ["ANSWER_WITHIN_SECONDS", "TooLate", "within"]

_T = TypeVar("_T")

ANSWER_WITHIN_SECONDS: Final = 12.0
"""For what uses the network; an answer is there within 15 seconds, the database and the way to Saleor included."""
_AT_ONCE: Final = 32
_AT_ONCE_EACH: Final = 8
"""Of these, so that a Saleor whose gateway hangs leaves room for the others."""


class TooLate(Exception):
    """It is not done yet, and goes on; or it was not begun, and never will be."""


@functools.cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tillgate-saleor")


@functools.cache
def _lane(installation_id: int) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(_AT_ONCE_EACH)


def within(seconds: float, action: Callable[[], _T], installation_id: int = 0) -> _T:
    """Return what an act for a Saleor returns, or raise what it raises; raise `TooLate` when that takes longer.

    The act goes on all the same: what was sent to the gateway is awaited, and its outcome is recorded.
    """

    def acting() -> _T:
        try:
            return action()
        finally:
            connections.close_all()  # this thread's own

    until, lane = time.monotonic() + seconds, _lane(installation_id)
    if not lane.acquire(timeout=seconds):
        raise TooLate
    under_way = _workers().submit(acting)
    under_way.add_done_callback(lambda _: lane.release())
    try:
        return under_way.result(timeout=max(0.0, until - time.monotonic()))
    except TimeoutError:
        if not under_way.cancel() and under_way.done():
            return under_way.result()  # in the last moment, or a time-out of the act's own
        raise TooLate from None
