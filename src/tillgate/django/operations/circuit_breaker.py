"""Pauses: an account whose gateway does not answer is left alone for a moment by every worker, and told to a person when it lasts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Exists, OuterRef

from tillgate.django import clock
from tillgate.django.models import Heartbeat, Payment, Review, TimelineEntry
from tillgate.django.operations.heartbeats import begin
from tillgate.django.operations.locking import durable
from tillgate.django.operations.reviews import open_review, settle
from tillgate.django.operations.timeline import FORCE_EXPIRE
from tillgate.lifecycle import PaymentStatus, ReviewReason

__all__ = ["PAUSE", "has_answered", "in_turn", "pause", "resume"]

PAUSE: Final = timedelta(minutes=2)
"""How long an account rests. Its gateway is tried again within five minutes, whoever worker runs."""
_TOLD_AFTER: Final = timedelta(minutes=30)
_FORGOTTEN_AFTER: Final = timedelta(hours=3)
"""When nobody has asked for longer, a silence begins anew: overdue payments are asked about less and less often."""
_ANSWERED: Final = (PaymentStatus.PAID, PaymentStatus.CLOSED, PaymentStatus.EXPIRED)
_PREFIX: Final = "silent:"
_LONGEST_NAME: Final = 64


def _name(account: str) -> str:
    name = f"{_PREFIX}{account}"
    return name if len(name) <= _LONGEST_NAME else f"{_PREFIX}{hashlib.sha256(account.encode()).hexdigest()[:32]}"


def in_turn(due: Mapping[str, datetime]) -> list[str]:
    """Return the accounts that need not rest now, those first that have waited longest; `due` says since when each has something due.

    One that brought inconclusive waits since its rest was over: what it could not learn is due as before, and would come first again and
    again.
    """
    now = clock.now()
    rests = dict(Heartbeat.objects.filter(name__startswith=_PREFIX).values_list("name", "at"))
    waiting = dict[str, datetime]()
    for account, since in due.items():
        rested = rests.get(_name(account))
        if rested is None:
            waiting[account] = since
        elif rested <= now:
            waiting[account] = max(since, rested)
    return sorted(waiting, key=lambda account: (waiting[account], account))


def pause(account: str, detail: str, *, is_told: bool, rest: timedelta = PAUSE) -> None:
    """Note that an account's gateway brought inconclusive, and let the account rest. A silence that lasts is told to a person.

    `is_told` says that a person hears why in another way, such as "wrong credentials".
    """
    now = clock.now()
    name = _name(account)
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


def has_answered(account: str, since: datetime) -> bool:
    """Tell whether a query brought a payment to a status, and no person did: a notification or a return may have asked meanwhile."""
    answered = Payment.objects.filter(account=account, status__in=_ANSWERED)
    held = Exists(TimelineEntry.objects.filter(payment=OuterRef("pk"), event=FORCE_EXPIRE))
    answered = answered.exclude(held, status=PaymentStatus.EXPIRED)
    return answered.filter(status_since__gt=since).exists()


def resume(account: str) -> None:
    """Note that an account's gateway answers, and take back what a person was told of its silence."""
    silence = Heartbeat.objects.filter(name=_name(account))
    if silence.exists():
        told = Review.objects.filter(account=account, reason=ReviewReason.GATEWAY_SILENT)
        settle(told, "the gateway answers again")
        silence.delete()  # last, so that whoever is cut off here is followed by one who finishes
