"""The worker's work as Celery tasks (`tillgate[celery]`), found by `app.autodiscover_tasks()` as
`tillgate.django.tasks`.

The database stays the queue: Celery only starts and distributes the work. `tillgate.run_worker`,
which beat sends every few seconds, finds the lanes with due work and sends a task for each. Every
task claims its rows by lease. So a task may be lost, may be repeated, and may run on any number of
workers at the same time. A task that is too late expires: the next run finds the same work.
"""

# Django imports this module while it loads the apps, before models can be imported: so the
# functions import the runs.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from celery import shared_task  # type: ignore[import-untyped]  # Celery ships no types

__all__ = ["BEAT_SCHEDULE", "run_lane", "run_worker"]

WAKE_SECONDS: Final = 10.0
_EXPIRES_SECONDS: Final = 330.0
"""Celery compares the clock of the machine that sends a task with the clock of the worker's
machine: five minutes for their difference.
"""
_OPTIONS: Final[Mapping[str, Any]] = {
    "acks_late": True,
    "ignore_result": True,
    # Longer than the turns of a lane's chores with the longest allowed deadline of an account.
    "soft_time_limit": 24 * 60,
    # Shorter than RabbitMQ (30 min) and Redis (60 min) wait before they pass an unacknowledged task
    # to another worker.
    "time_limit": 28 * 60,
}
"""Every task is safe to lose and to repeat."""

BEAT_SCHEDULE: Final[Mapping[str, Any]] = {
    "tillgate-worker": {
        "task": "tillgate.run_worker",
        "schedule": WAKE_SECONDS,
        "options": {"expires": _EXPIRES_SECONDS},
    },
}
"""The entries to merge into the project's `beat_schedule`."""


# Celery ships no types
@shared_task(name="tillgate.run_worker", **_OPTIONS)  # type: ignore[untyped-decorator]
def run_worker() -> dict[str, Any]:
    """Send a task for every account with due work, and one for each lane of the shop's own."""
    from tillgate.django.worker.run import wake

    lanes = wake()
    for lane in lanes:
        run_lane.apply_async((lane,), expires=_EXPIRES_SECONDS)
    return {"lanes": lanes}


# Celery ships no types
@shared_task(name="tillgate.run_lane", **_OPTIONS)  # type: ignore[untyped-decorator]
def run_lane(lane: str) -> dict[str, Any]:
    """Give one lane its turn: an account, by its alias, or one of the shop's own."""
    from tillgate.django.worker import run

    return run.run_lane(lane).summary()
