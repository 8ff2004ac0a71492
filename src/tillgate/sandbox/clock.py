"""A clock that a test can move ahead, so that two hours of retries pass in a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_LATEST: Final = 221_845_392_000.0
"""The year 9000. Dates follow the clock, and some lie a time-out of years after it; the calendar
ends with the year 9999.
"""


class Clock:
    """Seconds since 1970: those of `source`, plus the seconds added by `advance`."""

    def __init__(self, source: Callable[[], float]) -> None:
        self._source = source
        self._ahead_seconds = 0.0

    def __call__(self) -> float:
        """Return the time now."""
        return self._source() + self._ahead_seconds

    def advance(self, seconds: float) -> None:
        """Move ahead; time never goes back, and stays on the calendar."""
        if not seconds >= 0:
            raise ValueError(f"a clock cannot be moved by {seconds} seconds")
        if seconds > _LATEST or self() + seconds > _LATEST:
            raise ValueError("a clock cannot be moved past the year 9000")
        self._ahead_seconds += seconds

    @classmethod
    def standing(cls, at: float = 1_767_225_600.0) -> Clock:
        """Return a clock that moves only by `advance`: by default it stands at the start of
        2026.
        """
        return cls(lambda: at)
