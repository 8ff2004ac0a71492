"""The progress of a long test run, on standard error."""

from __future__ import annotations

import sys
import time
from typing import Final

__all__ = ["Progress"]

_EVERY_SECONDS: Final = 10.0


class Progress:
    """Prints progress: continuously in one line on a terminal, now and then elsewhere."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, line: str) -> None:
        """Print the progress."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()
        elif time.monotonic() - self._last > _EVERY_SECONDS:
            self._last = time.monotonic()
            sys.stderr.write(f"{line}\n")

    def clear(self) -> None:
        """Take the line away, to make room for a result."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
