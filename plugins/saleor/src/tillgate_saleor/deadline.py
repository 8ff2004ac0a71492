"""Saleor waits at most 18 seconds for an answer: this module answers in time, however slow the
gateway is.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from django.db import connections

_T = TypeVar("_T")

ANSWER_WITHIN_SECONDS: Final = 12.0
"""The limit for network work; an answer then arrives within 15 seconds, including the database and
the way to Saleor.
"""
_AT_ONCE: Final = 32
_AT_ONCE_EACH: Final = 8
"""The limit of concurrent acts for one Saleor: if its gateway hangs, the others still have room."""


class TooLate(Exception):
    """The act is not done yet and continues, or it did not start and never will."""


@functools.cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tillgate-saleor")


@functools.cache
def _lane(installation_id: int) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(_AT_ONCE_EACH)


def within(seconds: float, action: Callable[[], _T], installation_id: int = 0) -> _T:
    """Run an act for a Saleor and return its result, or raise its exception; raise `TooLate` when
    that takes too long.

    A late act continues: it waits for the gateway's answer and records the result.
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
