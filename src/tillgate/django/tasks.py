"""The worker's work as Celery tasks (`tillgate[celery]`), found by `app.autodiscover_tasks()`.

The database stays the queue: Celery only starts and distributes the work. `tillgate.run_worker`, which beat sends every few seconds, finds
the accounts with due work and sends a task for each. Every task claims its rows by lease. So a task may be lost, may be repeated, and may
run on any number of workers at the same time. A task that is too late expires: the next run finds the same work.
"""

# Django imports this module while it loads the apps, before models can be imported: so the functions import the operations.

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from celery import shared_task  # type: ignore[import-untyped]  # Celery ships no types

if TYPE_CHECKING:
    from tillgate.django.operations.worker import WorkDone

__all__ = ["BEAT_SCHEDULE", "run_account", "run_mail", "run_shop", "run_worker"]

WAKE_SECONDS: Final = 10.0
_EXPIRES_SECONDS: Final = 330.0
"""Celery compares the clock of the machine that sends a task with the clock of the worker's machine: five minutes for their difference."""
_SOFT_LIMIT_SECONDS: Final = 24 * 60
"""Longer than the time budgets for an account's refunds and polls with the longest allowed deadline of an account."""
_HARD_LIMIT_SECONDS: Final = 28 * 60
"""Shorter than RabbitMQ (30 min) and Redis (60 min) wait before they pass an unacknowledged task to another worker."""

BEAT_SCHEDULE: Final[Mapping[str, Any]] = {
    "tillgate-worker": {"task": "tillgate.run_worker", "schedule": WAKE_SECONDS, "options": {"expires": _EXPIRES_SECONDS}},
}
"""The entries to merge into the project's `beat_schedule`."""


def _task(name: str) -> Callable[[Callable[..., object]], Any]:
    """Return the decorator for a task that is safe to lose and to repeat."""
    decorator: Callable[[Callable[..., object]], Any] = shared_task(
        name=name, acks_late=True, ignore_result=True, soft_time_limit=_SOFT_LIMIT_SECONDS, time_limit=_HARD_LIMIT_SECONDS
    )
    return decorator


@_task("tillgate.run_worker")
def run_worker() -> dict[str, int]:
    """Send a task for every account with due work, one for the shops and one for the mail."""
    from tillgate.django.operations.worker import wake

    accounts = wake()
    for account in accounts:
        run_account.apply_async((account,), expires=_EXPIRES_SECONDS)
    for task in (run_shop, run_mail):
        task.apply_async(expires=_EXPIRES_SECONDS)
    return {"accounts": len(accounts)}


@_task("tillgate.run_account")
def run_account(account: str) -> dict[str, Any]:
    """Send the queued refunds of one account and poll its due payments, within a time budget."""
    from tillgate.django.operations.worker import run_account as run

    return _told(run(account))


@_task("tillgate.run_shop")
def run_shop() -> dict[str, Any]:
    """Run the due work for shops: lost refunds, unpaid orders, outbox events, details that are older than they are kept."""
    from tillgate.django.operations.worker import run_shop as run

    return _told(run())


@_task("tillgate.run_mail")
def run_mail() -> dict[str, Any]:
    """Mail the open reviews, if mail is due."""
    from tillgate.django.operations.worker import run_mail as run

    return _told(run())


def _told(work_done: WorkDone) -> dict[str, Any]:
    """Return a summary of the work, for the worker's log."""
    return {name: value for name, value in asdict(work_done).items() if value}
