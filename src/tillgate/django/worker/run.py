"""The runs of a worker, for the command, Celery and plugins of shops: all due work, or one lane."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from django.db import close_old_connections

from tillgate.django.heartbeats import beat as note_beat
from tillgate.django.orders.locking import outside_transactions, reconnect_if_cut
from tillgate.django.orders.times import Stop, never
from tillgate.django.payments.restores import look_for_restore
from tillgate.django.worker import lanes
from tillgate.django.worker.chores import CHORES, OWN_LANES, REMOTE, STAFF
from tillgate.django.worker.mail import alert_reviews, mail_reviews
from tillgate.django.worker.runner import Progress, Run, Waiting, WorkDone, quiet
from tillgate.django.worker.runner import queue as queue_of
from tillgate.django.worker.watch import look_at_worker

STAFF_WORK: Final[tuple[tuple[str, Callable[[], int]], ...]] = (
    ("mail", mail_reviews),
    ("alerts", alert_reviews),
)
"""The turn of staff's lane: the reviews that staff must hear of."""


def run_worker(progress: Progress = quiet, stop: Stop = never) -> WorkDone:
    """Do all due work, and return a summary. Safe to run many times at the same time.

    `progress` receives the summary after each batch; once `stop` returns true, the current work is
    finished and the rest left for the next worker run.
    """
    outside_transactions("worker")
    run = Run(CHORES, stop, progress)
    is_left = True
    while is_left:
        before = run.work.work
        run.do("restore", look_for_restore)
        is_left = run.take_accounts()
        reconnect_if_cut()  # this thread has idled while others took the accounts' turns
        for lane in OWN_LANES:
            is_left |= _take(run, lane)
        beat(run.work)
        has_worked = run.work.work > before and not stop()
        # failed events may have led to remote ones
        is_left = has_worked and (is_left or run.is_due(REMOTE))
    run.do("worker", look_at_worker)
    return run.work


def run_lane(lane: str) -> WorkDone:
    """Give one lane its turn, and return a summary: an account, or one of `OWN_LANES`."""
    outside_transactions("run_lane")
    run = Run(CHORES, never, quiet)
    _take(run, lane)
    if lane == STAFF:
        run.do("worker", look_at_worker)
    return run.work


def wake() -> list[str]:
    """Begin a run for other processes: write the heartbeat, and return the lanes that have due
    work.
    """
    run = Run(CHORES, never, quiet)
    run.do("restore", look_for_restore)
    beat(run.work)
    return [*run.accounts(), *(lane for lane in OWN_LANES if lane == STAFF or run.is_due(lane))]


def queue() -> tuple[Waiting, ...]:
    """Return the queue of due work, chore by chore."""
    return queue_of(CHORES, lanes.failures())


def _take(run: Run, lane: str) -> bool:
    """Give a lane its turn; staff's has work of no rows too."""
    is_left = run.take_lane(lane)
    if lane == STAFF:
        for name, work in STAFF_WORK:
            run.do(name, partial(_count, run.work, name, work))
    return is_left


def _count(work_done: WorkDone, name: str, work: Callable[[], int]) -> None:
    work_done.count(name, work())


def beat(work: WorkDone) -> None:
    """Write the heartbeat with a summary of the work."""
    note_beat(work.summary())
    close_old_connections()
