"""The watch over the worker by other processes: a worker that is away, frozen or behind opens a
review, and mails it without the worker.

The web processes look at most once a minute each, when a shopper opens a page. The worker looks
too, for events that another process holds.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from typing import Any, Final

from django.db import connections
from django.utils import timezone

from tillgate.django.conf import get_settings
from tillgate.django.heartbeats import last_beat
from tillgate.django.models import Review
from tillgate.django.orders.locking import durable
from tillgate.django.orders.status import write_status_of
from tillgate.django.reviews.closing import settle
from tillgate.django.reviews.opening import open_review
from tillgate.django.worker.chores import first_of_each_order
from tillgate.django.worker.mail import alert_reviews, mail_reviews
from tillgate.lifecycle import ReviewReason, ReviewStatus

_log = logging.getLogger("tillgate")

_EVERY_SECONDS: Final = 60.0


class _Watch:
    """When this process looks again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = time.monotonic() + _EVERY_SECONDS

    def is_time(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if now < self._next:
                return False
            self._next = now + _EVERY_SECONDS
            return True


_watch: Final = _Watch()


def look_now_and_then() -> None:
    """Look at the worker, if this process has not done so for a minute. Never raises: the page of a
    shopper goes first.
    """
    if not _watch.is_time():
        return
    try:
        if _trouble():
            # In a thread, since the page must not wait for a mail server.
            threading.Thread(target=_report, name="tillgate-watch", daemon=True).start()
    except Exception:
        _log.exception("whether the worker runs could not be seen")


def look_at_worker() -> None:
    """Open a review where the worker is away, or shop events wait too long, and close it when that
    is over.
    """
    about = Review.objects.filter(reason=ReviewReason.WORKER_LATE).exclude(
        status=ReviewStatus.RESOLVED,
    )
    if facts := _trouble():
        with durable():
            open_review(ReviewReason.WORKER_LATE, facts, "watch")
    elif about.exists():
        settle(about, "the worker runs again, and no shop event waits")
        write_status_of(
            about.filter(status=ReviewStatus.DISMISSED),
            ReviewStatus.DISMISSED,
            ReviewStatus.RESOLVED,
        )


def _report() -> None:
    """Open the review and send it; the worker may be away."""
    try:
        for act in (look_at_worker, mail_reviews, alert_reviews):
            try:
                act()
            except Exception:
                _log.exception("the review of a late worker could not be sent")
    finally:
        connections.close_all()  # this thread's own


def _trouble() -> dict[str, Any]:
    """Return the facts about a late worker, the same for as long as the case lasts; none where all
    is well.
    """
    now, late = timezone.now(), timedelta(minutes=get_settings().worker_late_minutes)
    worker_at = last_beat()
    if worker_at and now - worker_at > late:
        return {"case": "away", "since": worker_at.isoformat(timespec="minutes")}
    for is_remote in (False, True):  # neither waits for the other
        first = first_of_each_order(is_remote=is_remote).filter(due_at__lte=now - late)
        oldest = first.select_related("order").order_by("due_at").first()
        if oldest is not None and oldest.due_at:
            since = oldest.due_at.isoformat(timespec="minutes")
            return {"case": "queue", "since": since, "order": str(oldest.order)}
    return {}
