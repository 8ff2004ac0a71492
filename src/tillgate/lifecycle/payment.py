"""The payment's machine and the times of its polls. Late money is money: every status can become
*paid*, which is final (I9).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tillgate.errors import ConfigurationError, InvalidRequest, NotSent, Refused, TillgateError
from tillgate.lifecycle.machine import table
from tillgate.wire.messages import CreatedPayment

__all__ = [
    "OPEN_PAYMENT_STATUSES",
    "PAYMENT_TRANSITIONS",
    "PaymentStatus",
    "decide_creation",
    "is_unanswered",
    "next_poll",
    "next_retry",
]


class PaymentStatus(StrEnum):
    """The status of a payment, which is one attempt to pay one order."""

    CREATED = "created"
    """The row exists. The gateway may not know the payment yet."""
    PENDING = "pending"
    """The gateway knows the payment and waits for the money."""
    PAID = "paid"
    """The gateway's answer to a query says paid, for the right money, or staff accepted it (I1).
    Final.
    """
    FAILED = "failed"
    CLOSED = "closed"
    EXPIRED = "expired"
    """The payment page timed out, and a later answer, or staff, said that no money came."""


_P = PaymentStatus

PAYMENT_TRANSITIONS: Final = table(
    {
        _P.CREATED: {_P.PENDING, _P.PAID, _P.FAILED, _P.CLOSED, _P.EXPIRED},
        _P.PENDING: {_P.PAID, _P.FAILED, _P.CLOSED, _P.EXPIRED},
        _P.FAILED: {_P.PAID},
        _P.CLOSED: {_P.PAID},
        _P.EXPIRED: {_P.PAID},
        _P.PAID: set(),
    },
)

OPEN_PAYMENT_STATUSES: Final = frozenset({_P.CREATED, _P.PENDING})
"""Statuses in which the shopper may still pay."""

_EARLY_POLLS = tuple(timedelta(seconds=after) for after in (5, 15, 30, 60, 120, 300))
_POLL = timedelta(minutes=10)
_RETRY: Final = timedelta(minutes=2)
_TAIL_RETRIES: Final = 20
_UNANSWERED_AFTER: Final = timedelta(hours=6)
_OVERDUE_POLL = timedelta(minutes=5)
_TAIL_POLLS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
LONGEST_BETWEEN_POLLS: Final = timedelta(days=30)
"""The longest pause between two polls of a payment."""
DISPUTABLE: Final = timedelta(days=540)
"""The time in which banks take the money of a payment back, unless the shop knows better. Money may
come as late.
"""


def decide_creation(outcome: CreatedPayment | TillgateError) -> PaymentStatus:
    """Return the status of a *created* payment after the attempt to create it at the gateway
    (unspecified behaviour 13).

    A refusal and a request that never left give *failed*, which the worker still polls. An unknown
    outcome stays *created*.
    """
    if isinstance(outcome, CreatedPayment):
        return PaymentStatus.PENDING
    if isinstance(outcome, Refused | NotSent | InvalidRequest | ConfigurationError):
        return PaymentStatus.FAILED
    return PaymentStatus.CREATED


def next_poll(
    status: PaymentStatus,
    since: datetime,
    expires_at: datetime,
    now: datetime,
    disputable: timedelta = DISPUTABLE,
) -> datetime | None:
    """Return the time of a payment's next poll, always after `now`, or None for no further poll.

    `since` is the creation of an open payment, or the moment at which another one came to its
    status. The worker polls an open payment often at first, and once at its expiry. After that the
    answers settle nothing, and the pauses grow. The others get a few late polls, and then one every
    30 days while they are `disputable`: a bank may take the money back, and money may come late.
    """
    if status not in OPEN_PAYMENT_STATUSES:
        months = LONGEST_BETWEEN_POLLS * max(1, (now - since) // LONGEST_BETWEEN_POLLS + 1)
        late = (*_TAIL_POLLS, *([months] if months <= disputable else []))
        return next((moment for after in late if (moment := since + after) > now), None)
    if now >= expires_at:
        return now + min(
            max(_OVERDUE_POLL, (now - expires_at) / _TAIL_RETRIES),
            LONGEST_BETWEEN_POLLS,
        )
    early = (since + after for after in _EARLY_POLLS)
    moment = next((moment for moment in early if moment > now), now + _POLL)
    return min(moment, max(expires_at, now + timedelta(seconds=1)))


def next_retry(
    status: PaymentStatus,
    since: datetime,
    expires_at: datetime,
    now: datetime,
    disputable: timedelta = DISPUTABLE,
) -> datetime:
    """Return the time of a payment's next poll after an inconclusive answer; the arguments are
    those of `next_poll`.

    For an open payment the poll comes soon. For another one the pause grows with its age, since a
    gateway may have forgotten it.
    """
    pause = (
        _RETRY
        if status in OPEN_PAYMENT_STATUSES
        else min(max(_RETRY, (now - since) / _TAIL_RETRIES), LONGEST_BETWEEN_POLLS)
    )
    due = next_poll(status, since, expires_at, now, disputable)
    return min(due, now + pause) if due else now + pause


def is_unanswered(status: PaymentStatus, expires_at: datetime, now: datetime) -> bool:
    """Return whether a payment is still open long after its expiry, which opens a review."""
    return status in OPEN_PAYMENT_STATUSES and now >= expires_at + _UNANSWERED_AFTER
