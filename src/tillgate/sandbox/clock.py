"""A clock that can be moved ahead, so that two hours of retries pass in a test's blink."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Seconds since 1970: those of `source`, and what was added by `advance`."""

    def __init__(self, source: Callable[[], float]) -> None:
        self._source = source
        self._ahead_seconds = 0.0

    def __call__(self) -> float:
        """Return the time now."""
        return self._source() + self._ahead_seconds

    def advance(self, seconds: float) -> None:
        """Move ahead; time never goes back."""
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"a clock cannot be moved by {seconds} seconds")
        self._ahead_seconds += seconds

    @classmethod
    def standing(cls, at: float = 1_767_225_600.0) -> Clock:
        """Return a clock that moves only when it is told to: by default it stands at the start of 2026."""
        return cls(lambda: at)
