"""What a clock that was wrong has put off, or seems to have done already, is made due. Every round of a worker run begins with it.

Machines' clocks leap, by days or years, and what was written meanwhile stays: a next look that lies a month ahead would be kept.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db.models import Q

from tillgate.django import clock
from tillgate.django.models import OutboxEvent, Payment, Refund
from tillgate.django.operations.bounds import Rest
from tillgate.django.operations.heartbeats import is_fresh, set_heartbeat
from tillgate.lifecycle import OPEN_PAYMENT_STATUSES, RefundStatus

__all__ = ["Search", "bring_forward", "poll_now"]

_LONGEST_WAIT: Final = timedelta(hours=2)
"""Longer than any refund or outbox event is put off, or any open payment that is young."""
_YOUNG: Final = timedelta(days=1)
"""An open payment's looks are further apart only when it has long been overdue."""
_LOOK_AGAIN_EVERY: Final = timedelta(hours=1)
_HEARTBEAT: Final = "clock"
_MOST_AT_ONCE: Final = 1_000
"""To a clock that lags, all that was settled since seems to be of a time to come: it must not come before what is truly due."""
_BATCH: Final = 50


class Search(Rest):
    """How far the search for what was polled ahead of time has got, from the newest payment to the oldest; then it rests."""

    before: int | None = None


_search = Search(_LOOK_AGAIN_EVERY)


def bring_forward() -> None:
    """Make due what lies further ahead than its kind is ever put off: whoever put it there had a clock that was wrong."""
    now = clock.now()
    payments, refunds = Payment.objects, Refund.objects
    for rows, name, due in (
        (payments.filter(status__in=OPEN_PAYMENT_STATUSES, created_at__gt=now - _YOUNG), "next_poll_at", now),
        (refunds.filter(status=RefundStatus.QUEUED), "due_at", now),
        (refunds.filter(status=RefundStatus.SENDING), "due_at", now + _LONGEST_WAIT),  # it may be under way
        (OutboxEvent.objects.filter(done_at__isnull=True), "due_at", now),
    ):
        parked = rows.filter(**{f"{name}__gt": now + _LONGEST_WAIT})
        if parked.exists():
            parked.update(**{name: due})


def poll_now() -> None:
    """Make due what was polled, or came to its status, at a time that is still to come: its next look may be far off, or none at all.

    No index leads to these, so that they are polled for once an hour, and at once when the clock was put back. Where two machines' clocks
    differ for good, each finds the other's heartbeat wrong, and keeps to once an hour by itself.
    """
    now = clock.now()
    if not _search.is_over(now) or is_fresh(_HEARTBEAT, now, _LOOK_AGAIN_EVERY):
        _search.before = None
        return
    payments = Payment.objects
    is_ahead = Q(last_polled_at__gt=now + clock.SKEW) | Q(status_since__gt=now + clock.SKEW)
    is_far = Q(next_poll_at__gt=now + _LONGEST_WAIT) | Q(next_poll_at__isnull=True)
    # Each of them once: another machine, whose clock is ahead of this one's, may have polled the first again by then.
    not_yet = Q() if _search.before is None else Q(pk__lt=_search.before)
    # Found before they are changed: InnoDB would lock all that it reads.
    ids = list(payments.filter(is_ahead, is_far, not_yet).order_by("-pk").values_list("pk", flat=True)[:_MOST_AT_ONCE])
    for start in range(0, len(ids), _BATCH):
        payments.filter(pk__in=ids[start : start + _BATCH]).update(next_poll_at=now)
    if len(ids) == _MOST_AT_ONCE:
        _search.before = ids[-1]
        return
    set_heartbeat(_HEARTBEAT, now, {"looked_again": len(ids)})
    _search.before = None
    _search.begin(now)
