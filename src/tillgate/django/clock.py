"""The one place that reads the time, so that a simulation can give another."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

__all__ = ["SKEW", "now"]

SKEW: Final = timedelta(minutes=5)
"""By so much the clocks of two machines may differ and both be called right."""


def now() -> datetime:
    """Return the present moment, as Django stores moments."""
    return timezone.now()
