"""Saleor waits for an answer, and no longer than 18 seconds: whatever the gateway does, ours is there before."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from django.db import connections

__all__ = ["ANSWER_WITHIN_SECONDS", "TooLate", "within"]

_T = TypeVar("_T")

ANSWER_WITHIN_SECONDS: Final = 12.0
"""For what uses the network; an answer is there within 15 seconds, the database and the way to Saleor included."""
_AT_ONCE: Final = 32


class TooLate(Exception):
    """It is not done yet, and goes on; or it was not begun, and never will be."""


@functools.cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tillgate-saleor")


def within(seconds: float, act: Callable[[], _T]) -> _T:
    """Return what an act returns, or raise what it raises; raise `TooLate` when that takes longer.

    The act goes on all the same: what was sent to the gateway is awaited, and its outcome is recorded.
    """

    def acting() -> _T:
        try:
            return act()
        finally:
            connections.close_all()  # this thread's own

    under_way = _workers().submit(acting)
    try:
        return under_way.result(timeout=seconds)
    except TimeoutError:
        if not under_way.cancel() and under_way.done():
            return under_way.result()  # in the last moment, or a time-out of the act's own
        raise TooLate from None
