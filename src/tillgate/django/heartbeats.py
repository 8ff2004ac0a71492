"""Heartbeats: rows that several workers write at the same time, by single statements, so that none
waits for another's lock.

`update_or_create` and a locking `get_or_create` of a missing row deadlock on InnoDB when two
workers meet.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any, Final

from tillgate.django.models import Heartbeat

_LONGEST_NAME: Final = 64


def name_of(prefix: str, account: str) -> str:
    """Return the name of a heartbeat about an account, as long as the column allows."""
    name = f"{prefix}{account}"
    return (
        name
        if len(name) <= _LONGEST_NAME
        else f"{prefix}{hashlib.sha256(account.encode()).hexdigest()[:32]}"
    )


def begin(name: str, at: datetime, detail: dict[str, Any] | None = None) -> None:
    """Write a heartbeat unless it is there already."""
    Heartbeat.objects.bulk_create(
        [Heartbeat(name=name, at=at, detail=detail or {})],
        ignore_conflicts=True,
    )


def set_heartbeat(name: str, at: datetime, detail: dict[str, Any]) -> None:
    """Write a heartbeat, over an older one if there is one."""
    if not Heartbeat.objects.filter(name=name).update(at=at, detail=detail):
        begin(name, at, detail)


def take_turn(name: str, now: datetime, interval: timedelta) -> bool:
    """Take the right to do something that is done once in an interval; one worker gets it."""
    begin(name, now - 2 * interval)
    return bool(Heartbeat.objects.filter(name=name, at__lte=now - interval).update(at=now))
