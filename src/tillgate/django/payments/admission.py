"""Whether the pages may create payments at an account, by how its last creations ended.

A gateway that hangs would hold every thread of a web server: after two creations in a row that
hung, in any process, the pages create none for half a minute. Then one press at a time tries, until
one does not hang. Queries for a waiting shopper stop likewise. A gateway that refuses connections
holds no thread: the next shopper may try.

A gateway that refuses every shopper sells nothing either: after three refusals in a row with one
payment method a review opens.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from tillgate.django.heartbeats import lane_of, write_lane
from tillgate.django.models import Lane, Payment, Review
from tillgate.django.orders.locking import durable
from tillgate.django.orders.status import write_status_of
from tillgate.django.reviews.closing import settle
from tillgate.django.reviews.opening import open_review
from tillgate.errors import ConfigurationError, InvalidRequest, Refused, TillgateError
from tillgate.lifecycle import (
    PaymentStatus,
    ReviewReason,
    ReviewStatus,
    account_reason,
    decide_creation,
)
from tillgate.wire.messages import CreatedPayment

_CREATIONS: Final = ":creations:"
_QUERIES: Final = ":queries:"
_REFUSALS: Final = ":refusals:"
_REST: Final = timedelta(seconds=30)
_IN_A_ROW: Final = timedelta(minutes=10)
"""Two creations without an answer that are further apart are not in a row."""
_REFUSALS_BEFORE_REVIEW: Final = 3
_ANSWERS: Final = (CreatedPayment, Refused, InvalidRequest, ConfigurationError)
"""Outcomes of a creation that did not wait for the gateway in vain, however long it took."""
HUNG_SECONDS: Final = 4.0
"""A creation without an answer that took less time held no thread for long."""


class NotPayable(Exception):
    """The order cannot be paid now; the message says why, to a shopper."""


class TryLater(TillgateError):
    """No payment was started now, and nothing was sent: the gateway does not answer, or the order
    had many payments just now.
    """


class CreationState(Enum):
    """Whether the pages may create a payment at an account."""

    SOUND = "sound"
    DOUBTFUL = "doubtful"
    """The last creation hung, or the method's last one was refused."""
    TRIAL = "trial"
    """A rest is over: one press may try, and the others wait for its end."""
    RESTS = "rests"


def creation_state(account: str, method: str) -> CreationState:
    """Return whether a payment may be created at an account now."""
    creations, refusals = lane_of(_CREATIONS, account), _refusals_of(account, method)
    lanes = {lane.name: lane for lane in Lane.objects.filter(name__in=(creations, refusals))}
    until, now = lanes[creations].rests_until if creations in lanes else None, timezone.now()
    if until is None or until <= now - _IN_A_ROW:
        return CreationState.DOUBTFUL if lanes else CreationState.SOUND
    return CreationState.RESTS if until > now else CreationState.TRIAL


def take_trial(account: str) -> bool:
    """Take the right to try the gateway after a rest: one press has it until its call ends, or its
    process is lost.
    """
    now = timezone.now()
    rested = Lane.objects.filter(name=lane_of(_CREATIONS, account), rests_until__lte=now)
    return bool(rested.update(rests_until=now + _REST))


def note_creation(
    payment: Payment,
    outcome: CreatedPayment | TillgateError,
    seconds: float,
    before: CreationState,
) -> None:
    """Note how a creation ended after so many seconds, which began in the state `before`."""
    account, is_doubtful = payment.account, before is not CreationState.SOUND
    if seconds >= HUNG_SECONDS and not isinstance(outcome, _ANSWERS):
        _note_unanswered(lane_of(_CREATIONS, account), _IN_A_ROW)
    elif is_doubtful:
        Lane.objects.filter(name=lane_of(_CREATIONS, account)).delete()
    if isinstance(outcome, CreatedPayment):
        if is_doubtful:
            _forget_refusals(account, payment.method)
    elif decide_creation(outcome) is PaymentStatus.FAILED and account_reason(outcome) is None:
        _note_refusal(account, payment.method, outcome)


def _note_unanswered(lane: str, within: timedelta) -> None:
    """Note a call without an answer, and let the pages rest after a second one."""
    now = timezone.now()
    # Read when the call ends: calls that began together count each other.
    is_second = Q(silent_since__gt=now - within) | Q(rests_until__gt=now - within)
    Lane.objects.bulk_create([Lane(name=lane)], ignore_conflicts=True)
    rows = Lane.objects.filter(name=lane)
    if rows.filter(is_second).update(rests_until=now + _REST):
        return
    # Two that end together both find no first one: the slower of their updates finds it.
    if not rows.exclude(is_second).update(silent_since=now, rests_until=None):
        rows.filter(is_second).update(rests_until=now + _REST)


def _note_refusal(account: str, method: str, error: TillgateError) -> None:
    lane = _refusals_of(account, method)
    former = Lane.objects.filter(name=lane).values_list("failures", flat=True).first()
    count = (former or {}).get("creations", 0) + 1
    write_lane(lane, failures={"creations": count})
    if count >= _REFUSALS_BEFORE_REVIEW:
        facts = {"method": method, "error": error}
        with durable():
            open_review(ReviewReason.CREATIONS_REFUSED, facts, "start", account=account)


def _forget_refusals(account: str, method: str) -> None:
    about = Review.objects.filter(
        reason=ReviewReason.CREATIONS_REFUSED,
        account=account,
        facts__method=method,
    )
    settle(about, "a payment was created")
    # The next refusals are a new case, though they may say the same.
    dismissed = about.filter(status=ReviewStatus.DISMISSED)
    write_status_of(dismissed, ReviewStatus.DISMISSED, ReviewStatus.RESOLVED)
    Lane.objects.filter(name=_refusals_of(account, method)).delete()


def open_refusals() -> QuerySet[Review]:
    """Return the open reviews about accounts that refuse new payments."""
    return Review.objects.filter(reason=ReviewReason.CREATIONS_REFUSED, resolved_at__isnull=True)


def _refusals_of(account: str, method: str) -> str:
    return lane_of(_REFUSALS, f"{account}:{method}")


def resting_queries(account: str) -> QuerySet[Lane]:
    """Return the lane that forbids the pages to query an account now; no row allows it."""
    return Lane.objects.filter(name=lane_of(_QUERIES, account), rests_until__gt=timezone.now())


def note_hung_query(account: str) -> None:
    """Note that a page waited in vain for a query."""
    # No answer takes this back, as that would cost a statement each time: only a second one soon
    # counts.
    _note_unanswered(lane_of(_QUERIES, account), _REST)
