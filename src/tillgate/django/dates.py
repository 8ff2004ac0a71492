"""Moments in the project's time zone."""

from __future__ import annotations

from datetime import date, datetime

from django.conf import settings
from django.utils import timezone


def local(moment: datetime) -> datetime:
    """Return a time in the project's time zone; without USE_TZ it is stored that way."""
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def start_of(day: date) -> datetime:
    """Return the first moment of a day in the project's time zone, as Django stores moments."""
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001  # made aware in the next line
    return timezone.make_aware(midnight) if settings.USE_TZ else midnight
