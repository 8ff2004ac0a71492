"""The lanes: accounts, and the shop's own. A lane that rests has no turn.

An account rests while its gateway does not answer, and a long time of that opens a review. Staff's
mail rests after each mail. Several processes write these rows by single statements, so none waits
for another's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from tillgate.django.heartbeats import write_lane
from tillgate.django.models import Lane, Payment, Review, TimelineEntry
from tillgate.django.orders.locking import durable
from tillgate.django.orders.timeline import FORCE_EXPIRE
from tillgate.django.reviews.closing import settle
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import PaymentStatus, ReviewReason

PAUSE: Final = timedelta(minutes=2)
"""The time for which an account rests. Some worker tries its gateway again within five minutes."""
_REVIEW_AFTER: Final = timedelta(minutes=30)
_FORGOTTEN_AFTER: Final = timedelta(hours=3)
"""After so long without a query the count begins again: polls become rare."""
_ANSWERED: Final = (PaymentStatus.PAID, PaymentStatus.CLOSED, PaymentStatus.EXPIRED)


def take_turn(name: str, interval: timedelta) -> bool:
    """Take the right to do something once in an interval; the lane of the one that gets it
    rests.
    """
    now = timezone.now()
    Lane.objects.bulk_create([Lane(name=name)], ignore_conflicts=True)
    is_awake = Q(rests_until=None) | Q(rests_until__lte=now)
    return bool(Lane.objects.filter(is_awake, name=name).update(rests_until=now + interval))


def in_turn(due: Mapping[str, datetime]) -> list[str]:
    """Return the accounts that do not rest now, the longest waiting first.

    `due` has the time of each account's oldest due work.

    An account with inconclusive answers waits since the end of its rest: its work stays due, and
    would come first again and again.
    """
    now = timezone.now()
    rests: dict[str, Any] = dict(
        Lane.objects.filter(rests_until__isnull=False).values_list("name", "rests_until"),
    )
    waiting = {account: max(since, rests.get(account, since)) for account, since in due.items()}
    awake = [account for account, since in waiting.items() if since <= now]
    return sorted(awake, key=lambda account: (waiting[account], account))


def rest(account: str, detail: str, *, has_review: bool, pause: timedelta = PAUSE) -> None:
    """Let an account rest after inconclusive answers of its gateway. If that lasts, open a review.

    `has_review` says that another review explains it, such as "wrong credentials".
    """
    now = timezone.now()
    known = Lane.objects.filter(name=account, silent_since__isnull=False).first()
    since = (known and known.silent_since) or now
    rested = (known and known.rests_until) or now
    is_late = now - since >= _REVIEW_AFTER and not has_review
    if now - rested > _FORGOTTEN_AFTER or (is_late and has_answered(account, since)):
        since, is_late = now, False
    write_lane(account, silent_since=since, rests_until=now + pause)
    if is_late:
        minutes = int((now - since).total_seconds() // 60)
        with durable():
            open_review(
                ReviewReason.GATEWAY_SILENT,
                {"minutes": minutes, "error": detail},
                "worker",
                account=account,
            )


def wake(account: str) -> None:
    """Note that an account's gateway answers, and close the review about it."""
    if silent_since(account):
        reviews = Review.objects.filter(account=account, reason=ReviewReason.GATEWAY_SILENT)
        settle(reviews, "the gateway answers again")
    # Last: if this process dies before it, another process does all of this again.
    write_lane(account, answered_at=timezone.now(), silent_since=None, rests_until=None)


def note_answer(account: str) -> None:
    """Write down that an account's gateway has answered a query now."""
    write_lane(account, answered_at=timezone.now())


def answered_at(account: str) -> datetime | None:
    """Return when an account's gateway last answered a query, or created a
    payment.
    """
    noted: Any = Lane.objects.filter(name=account, answered_at__isnull=False).values_list(
        "answered_at",
        flat=True,
    )
    moved = Payment.objects.filter(
        account=account,
        status__in=(PaymentStatus.PENDING, PaymentStatus.PAID),
    ).order_by("-pk")
    return max([*noted, *moved.values_list("status_since", flat=True)[:1]], default=None)


def silent_since(account: str) -> datetime | None:
    """Return since when an account's gateway gives no usable answer; None while it answers."""
    return Lane.objects.filter(name=account).values_list("silent_since", flat=True).first()


def has_answered(account: str, since: datetime) -> bool:
    """Return whether a query, and not staff, brought a payment to a status since then: a
    notification or a return causes queries too.
    """
    answered = Payment.objects.filter(account=account, status__in=_ANSWERED)
    held = Exists(TimelineEntry.objects.filter(payment=OuterRef("pk"), event=FORCE_EXPIRE))
    answered = answered.exclude(held, status=PaymentStatus.EXPIRED)
    return answered.filter(status_since__gt=since).exists()


def note_failures(name: str, failures: Mapping[str, int]) -> None:
    """Write how many rows of each chore failed in the last turn of a lane."""
    if failures:
        write_lane(name, failures=dict(failures))
    else:
        Lane.objects.filter(name=name, failures__isnull=False).update(failures=None)


def failures() -> Counter[str]:
    """Return how many rows of each chore failed in the last turns of all lanes."""
    total = Counter[str]()
    for found in Lane.objects.filter(failures__isnull=False).values_list("failures", flat=True):
        total.update(found)
    return total
