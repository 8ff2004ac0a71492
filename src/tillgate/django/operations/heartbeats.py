"""Heartbeats: rows that several workers write at once, by single statements, so that none waits for another's lock.

`update_or_create` and a locking `get_or_create` of a missing row deadlock on InnoDB when two workers meet.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from tillgate.django.clock import SKEW
from tillgate.django.models import Heartbeat

__all__ = ["begin", "is_fresh", "set_heartbeat", "take_turn"]


def begin(name: str, at: datetime, detail: dict[str, Any] | None = None) -> None:
    """Write a heartbeat unless it is there already."""
    Heartbeat.objects.bulk_create([Heartbeat(name=name, at=at, detail=detail or {})], ignore_conflicts=True)


def set_heartbeat(name: str, at: datetime, detail: dict[str, Any]) -> None:
    """Write a heartbeat, over an older one if there is one."""
    if not Heartbeat.objects.filter(name=name).update(at=at, detail=detail):
        begin(name, at, detail)


def take_turn(name: str, now: datetime, interval: timedelta) -> bool:
    """Take the right to do something that is done once in an interval; one worker gets it.

    A turn that lies further ahead than an interval was taken by a clock that was wrong, and holds nobody up.
    """
    begin(name, now - 2 * interval)
    is_free = Q(at__lte=now - interval) | Q(at__gt=now + interval)
    return bool(Heartbeat.objects.filter(is_free, name=name).update(at=now))


def is_fresh(name: str, now: datetime, interval: timedelta) -> bool:
    """Tell whether a heartbeat was written in the last interval, for what may be done twice but must not be left undone."""
    return Heartbeat.objects.filter(name=name, at__gt=now - interval, at__lte=now + SKEW).exists()
