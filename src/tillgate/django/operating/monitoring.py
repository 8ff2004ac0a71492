"""The figures for a monitor: whether the worker keeps up, and the reviews that wait for staff.

It holds no secret and no personal data, and reads the database in a dozen statements.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Min
from django.utils import timezone

from tillgate.django.conf import get_settings
from tillgate.django.heartbeats import last_beat
from tillgate.django.models import Lane, OutboxEvent, Review
from tillgate.django.worker.run import queue


@dataclass(frozen=True, slots=True, kw_only=True)
class DueWork:
    """The due rows of one chore; `oldest_seconds` is for how long the oldest has been due."""

    chore: str
    waiting: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """The state of the payments now, every age in seconds; None where there is nothing.

    `problems` is empty where all is well. Else it names the trouble: the worker is away or behind,
    or an event has not reached the shop. Accounts that rest and open reviews are no fault of the
    server.
    """

    problems: tuple[str, ...]
    worker_seconds: float | None
    due: tuple[DueWork, ...]
    undelivered_seconds: float | None
    resting: tuple[str, ...]
    open_reviews: int
    oldest_review_seconds: float | None


def vitals() -> Vitals:
    """Return the state now. Work is late once it has waited for `WORKER_LATE_MINUTES`."""
    now = timezone.now()
    late = timedelta(minutes=get_settings().worker_late_minutes).total_seconds()
    worker = _age(last_beat(), now)
    due = tuple(
        DueWork(
            chore=one.chore.name,
            waiting=one.waiting,
            oldest_seconds=_age(one.oldest, now) or 0.0,
        )
        for one in queue()
    )
    waiting = OutboxEvent.objects.filter(done_at__isnull=True)
    event = _age(waiting.aggregate(first=Min("created_at"))["first"], now)
    opened = Review.objects.filter(resolved_at__isnull=True)
    reviews = opened.aggregate(number=Count("pk"), first=Min("opened_at"))
    return Vitals(
        problems=tuple(_problems(worker, due, event, late)),
        worker_seconds=worker,
        due=due,
        undelivered_seconds=event,
        resting=tuple(
            Lane.objects.filter(silent_since__isnull=False)
            .exclude(name__startswith=":")  # the shop's own
            .order_by("name")
            .values_list("name", flat=True)
        ),
        open_reviews=reviews["number"],
        oldest_review_seconds=_age(reviews["first"], now),
    )


def _age(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else round(max(0.0, (now - moment).total_seconds()), 1)


def _problems(
    worker: float | None,
    due: tuple[DueWork, ...],
    event: float | None,
    late: float,
) -> list[str]:
    found = []
    if worker is None or worker > late:
        found.append("the worker is away")
    found += [f"{one.chore}: waits too long" for one in due if one.oldest_seconds > late]
    if event is not None and event > late:
        found.append("an event has not reached the shop")
    return found
