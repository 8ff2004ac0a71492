"""The one place that reads the time, so that a simulation can give another."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

__all__ = ["now"]


def now() -> datetime:
    """Return the present moment, as Django stores moments."""
    return timezone.now()
