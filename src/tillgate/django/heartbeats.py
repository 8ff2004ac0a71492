"""Heartbeats and lanes: rows that several processes write at the same time, by single statements,
so that none waits for another's lock.

`update_or_create` and a locking `get_or_create` of a missing row deadlock on InnoDB when two
workers meet.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Final

from django.db.models import Model
from django.utils import timezone

from tillgate.django.models import Heartbeat, Lane

WORKER: Final = "worker"
_LONGEST_NAME: Final = 128


def beat(detail: dict[str, Any]) -> None:
    """Note that the worker runs, with a summary of its work."""
    _write(Heartbeat, WORKER, at=timezone.now(), detail=detail)


def last_beat() -> datetime | None:
    """Return when the worker last ran; None if it never did."""
    return Heartbeat.objects.filter(name=WORKER).values_list("at", flat=True).first()


def set_heartbeat(name: str, detail: dict[str, Any]) -> None:
    """Write a heartbeat, over an older one if there is one."""
    _write(Heartbeat, name, at=timezone.now(), detail=detail)


def lane_of(prefix: str, subject: str) -> str:
    """Return the name of one of the shop's own lanes, as long as the column allows."""
    name = f"{prefix}{subject}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{prefix}{hashlib.sha256(subject.encode()).hexdigest()[:32]}"


def write_lane(name: str, **columns: Any) -> None:
    """Write columns of a lane."""
    _write(Lane, name, **columns)


def _write(model: type[Model], name: str, **columns: Any) -> None:
    rows = model._default_manager
    if not rows.filter(name=name).update(**columns):
        rows.bulk_create([model(name=name, **columns)], ignore_conflicts=True)
