"""The worker's work as Celery tasks (`tillgate[celery]`), found by `app.autodiscover_tasks()`.

The database stays the queue: Celery only wakes and spreads the work. `tillgate.run_worker`, which beat sends every few seconds, finds the
accounts that have something due and sends a task for each. Every task claims its rows by lease, so that it may be lost, repeated or run by
any number of workers at once. A task that came too late to be of use expires: the next wake-up finds the same work.
"""

# This module is imported while the apps are being loaded, when models cannot be: operations are imported where they are used.

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from celery import shared_task  # type: ignore[import-untyped]  # Celery ships no types

from tillgate.django.clock import SKEW

if TYPE_CHECKING:
    from tillgate.django.operations.worker import WorkDone

__all__ = ["BEAT_SCHEDULE", "run_account", "run_mail", "run_shop", "run_worker"]

WAKE_SECONDS: Final = 10.0
_EXPIRES_SECONDS: Final = 30.0 + SKEW.total_seconds()
"""Whoever sends a task says by its own clock when it expires, and whoever has it to do looks at another: a worker that is ahead, and right
still, must not take every task for one that came too late."""
_SOFT_LIMIT_SECONDS: Final = 24 * 60
"""Longer than the turns of an account's refunds and payments with the longest deadline that an account may have."""
_HARD_LIMIT_SECONDS: Final = 28 * 60
"""Shorter than RabbitMQ (30 min) and Redis (60 min) wait before they hand an unacknowledged task to somebody else."""

BEAT_SCHEDULE: Final[Mapping[str, Any]] = {
    "tillgate-worker": {"task": "tillgate.run_worker", "schedule": WAKE_SECONDS, "options": {"expires": _EXPIRES_SECONDS}},
}
"""What to merge into the project's `beat_schedule`."""


def _task(name: str) -> Callable[[Callable[..., object]], Any]:
    """Return the decorator for a task that is safe to lose and to repeat."""
    decorator: Callable[[Callable[..., object]], Any] = shared_task(
        name=name, acks_late=True, ignore_result=True, soft_time_limit=_SOFT_LIMIT_SECONDS, time_limit=_HARD_LIMIT_SECONDS
    )
    return decorator


@_task("tillgate.run_worker")
def run_worker() -> dict[str, int]:
    """Wake the workers: send a task for every account that has something due, for the shops and for the mail."""
    from tillgate.django.operations.worker import wake

    accounts = wake()
    for account in accounts:
        run_account.apply_async((account,), expires=_EXPIRES_SECONDS)
    for task in (run_shop, run_mail):
        task.apply_async(expires=_EXPIRES_SECONDS)
    return {"accounts": len(accounts)}


@_task("tillgate.run_account")
def run_account(account: str) -> dict[str, Any]:
    """Send the queued refunds of one account and look at its due payments, for the length of a turn."""
    from tillgate.django.operations.worker import run_account as run

    return _told(run(account))


@_task("tillgate.run_shop")
def run_shop() -> dict[str, Any]:
    """Carry out what is due for shops: lost refunds, unpaid orders, outbox events."""
    from tillgate.django.operations.worker import run_shop as run

    return _told(run())


@_task("tillgate.run_mail")
def run_mail() -> dict[str, Any]:
    """Mail what needs review, if it is time."""
    from tillgate.django.operations.worker import run_mail as run

    return _told(run())


def _told(work_done: WorkDone) -> dict[str, Any]:
    """Return what was done, for the worker's log."""
    return {name: value for name, value in asdict(work_done).items() if value}
