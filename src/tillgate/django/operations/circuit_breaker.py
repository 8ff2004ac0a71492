"""The circuit breaker: the workers leave an account alone while its gateway does not answer, and a long time of that opens a review."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Exists, OuterRef

from tillgate.django import clock
from tillgate.django.models import Heartbeat, Payment, Review, TimelineEntry
from tillgate.django.operations.heartbeats import begin, name_of, set_heartbeat
from tillgate.django.operations.locking import durable
from tillgate.django.operations.reviews import open_review, settle
from tillgate.django.operations.timeline import FORCE_EXPIRE
from tillgate.lifecycle import PaymentStatus, ReviewReason

PAUSE: Final = timedelta(minutes=2)
"""The time for which an account rests. Some worker tries its gateway again within five minutes."""
_TOLD_AFTER: Final = timedelta(minutes=30)
_FORGOTTEN_AFTER: Final = timedelta(hours=3)
"""After so long without a query the count begins again: overdue payments are polled less and less often."""
_ANSWERED: Final = (PaymentStatus.PAID, PaymentStatus.CLOSED, PaymentStatus.EXPIRED)
_PREFIX: Final = "silent:"
_ANSWERS: Final = "answered:"


def in_turn(due: Mapping[str, datetime]) -> list[str]:
    """Return the accounts that do not rest now, the longest waiting first; `due` has the time of each account's oldest due work.

    An account with inconclusive answers waits since the end of its rest: its work stays due, and would come first again and again.
    """
    now = clock.now()
    rests = dict(Heartbeat.objects.filter(name__startswith=_PREFIX).values_list("name", "at"))
    waiting = dict[str, datetime]()
    for account, since in due.items():
        rested = rests.get(name_of(_PREFIX, account))
        if rested is None:
            waiting[account] = since
        elif rested <= now:
            waiting[account] = max(since, rested)
    return sorted(waiting, key=lambda account: (waiting[account], account))


def pause(account: str, detail: str, *, is_told: bool, rest: timedelta = PAUSE) -> None:
    """Note that an account's gateway was inconclusive, and let the account rest. If that lasts, open a review.

    `is_told` says that another review explains it, such as "wrong credentials".
    """
    now = clock.now()
    name = name_of(_PREFIX, account)
    begin(name, now + rest, {"since": now.isoformat()})
    rows = Heartbeat.objects.filter(name=name)
    row = rows.first()
    if row is None:
        return  # another worker had news in this moment
    since = datetime.fromisoformat(row.detail["since"])
    told_after = now - since >= _TOLD_AFTER and not is_told
    if now - row.at > _FORGOTTEN_AFTER or (told_after and has_answered(account, since)):
        since, told_after = now, False
    rows.update(at=now + rest, detail={"since": since.isoformat()})
    if told_after:
        minutes = int((now - since).total_seconds() // 60)
        with durable():
            open_review(ReviewReason.GATEWAY_SILENT, {"minutes": minutes, "error": detail}, "worker", account=account)


def note_answer(account: str) -> None:
    """Write down that an account's gateway has answered a query now."""
    set_heartbeat(name_of(_ANSWERS, account), clock.now(), {})


def answered_at(account: str) -> datetime | None:
    """Return when an account's gateway last did what it was asked, as far as the database knows: a query, or the start of a payment."""
    heard = Heartbeat.objects.filter(name=name_of(_ANSWERS, account)).values_list("at", flat=True)
    moved = Payment.objects.filter(account=account, status__in=(PaymentStatus.PENDING, PaymentStatus.PAID)).order_by("-pk")
    return max([*heard, *moved.values_list("status_since", flat=True)[:1]], default=None)


def silent_since(account: str) -> datetime | None:
    """Return since when an account's gateway gives no usable answer; None while it answers."""
    detail = Heartbeat.objects.filter(name=name_of(_PREFIX, account)).values_list("detail", flat=True).first()
    return datetime.fromisoformat(detail["since"]) if detail else None


def has_answered(account: str, since: datetime) -> bool:
    """Return whether a query, and not staff, brought a payment to a status since then: a notification or a return causes queries too."""
    answered = Payment.objects.filter(account=account, status__in=_ANSWERED)
    held = Exists(TimelineEntry.objects.filter(payment=OuterRef("pk"), event=FORCE_EXPIRE))
    answered = answered.exclude(held, status=PaymentStatus.EXPIRED)
    return answered.filter(status_since__gt=since).exists()


def resume(account: str) -> None:
    """Note that an account's gateway answers, and close the review about it."""
    note_answer(account)
    silence = Heartbeat.objects.filter(name=name_of(_PREFIX, account))
    if silence.exists():
        told = Review.objects.filter(account=account, reason=ReviewReason.GATEWAY_SILENT)
        settle(told, "the gateway answers again")
        silence.delete()  # last: if this process dies before it, another process does all of this again
