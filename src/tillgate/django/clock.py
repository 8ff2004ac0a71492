"""The one place that reads the time, so that a simulation can give another."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

__all__ = ["SKEW", "local", "now"]

SKEW: Final = timedelta(minutes=5)
"""By so much the clocks of two machines may differ and both be called right."""


def now() -> datetime:
    """Return the present moment, as Django stores moments."""
    return timezone.now()


def local(moment: datetime) -> datetime:
    """Return a moment as the project's clocks show it; without USE_TZ it is stored so already."""
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment
