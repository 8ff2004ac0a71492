"""Places for the presses of a web process that wait for the gateway.

A gateway that answers slowly, or not at all, would hold every thread of the process, and the shop's
other pages would wait. So at most half of the threads wait for it. A press without a place holds
none: its page asks again after a moment.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PATIENCE_SECONDS: Final = 0.3
_LEAST: Final = 2


class _Places:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = 0

    @contextmanager
    def take(self) -> Iterator[bool]:
        """Hold a place, if one is free within a moment; the value tells whether there was one."""
        with self._changed:
            has_place = self._changed.wait_for(self._is_one_free, _PATIENCE_SECONDS)
            self._taken += has_place
        try:
            yield has_place
        finally:
            with self._changed:
                self._taken -= has_place
                self._changed.notify()

    def _is_one_free(self) -> bool:
        # No web server tells the number of its threads: they are named alike.
        kind = _kind(threading.current_thread())
        threads = sum(_kind(one) == kind for one in threading.enumerate())
        return self._taken < max(_LEAST, threads // 2)


def _kind(thread: threading.Thread) -> str:
    return re.sub(r"\d+", "", thread.name)


place_at_gateway = _Places().take
