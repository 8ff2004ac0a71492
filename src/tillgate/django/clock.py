"""The only code that reads the time, so that a simulation can replace it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

__all__ = ["SKEW", "local", "now"]

SKEW: Final = timedelta(minutes=5)
"""The tolerated difference between the clocks of two machines."""


def now() -> datetime:
    """Return the present moment, as Django stores moments."""
    return timezone.now()


def local(moment: datetime) -> datetime:
    """Return a time in the project's time zone; without USE_TZ it is stored that way."""
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment
