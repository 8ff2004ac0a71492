"""The payment's machine: its statuses, its table, and when a payment is polled.

Late money is money: *failed*, *closed* and *expired* can still become *paid*. *Paid* is final (I9).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tillgate.errors import ConfigurationError, InvalidRequest, NotSent, Refused, TillgateError
from tillgate.lifecycle.machine import move, table
from tillgate.wire.messages import CreatedPayment

__all__ = [
    "OPEN_PAYMENT_STATUSES",
    "PAYMENT_TRANSITIONS",
    "PaymentStatus",
    "decide_creation",
    "is_unanswered",
    "move_payment",
    "next_poll",
    "next_retry",
]


class PaymentStatus(StrEnum):
    """Where a payment, one attempt to pay one order, stands."""

    CREATED = "created"
    """The row exists; whether the gateway knows of it is not known yet."""
    PENDING = "pending"
    """The gateway knows it and nobody has paid."""
    PAID = "paid"
    """The gateway's own query said so, for the right money (I1). Final."""
    FAILED = "failed"
    CLOSED = "closed"
    EXPIRED = "expired"
    """The payment page timed out, and an answer given after that, or a person, said that nobody had paid."""


_P = PaymentStatus

PAYMENT_TRANSITIONS: Final = table(
    {
        _P.CREATED: {_P.PENDING, _P.PAID, _P.FAILED, _P.CLOSED, _P.EXPIRED},
        _P.PENDING: {_P.PAID, _P.FAILED, _P.CLOSED, _P.EXPIRED},
        _P.FAILED: {_P.PAID},
        _P.CLOSED: {_P.PAID},
        _P.EXPIRED: {_P.PAID},
        _P.PAID: set(),
    }
)

OPEN_PAYMENT_STATUSES: Final = frozenset({_P.CREATED, _P.PENDING})
"""Statuses in which a payment may still be paid in the ordinary course."""

_EARLY_POLLS = tuple(timedelta(seconds=after) for after in (5, 15, 30, 60, 120, 300))
_POLL = timedelta(minutes=10)
_RETRY: Final = timedelta(minutes=2)
_TAIL_RETRIES: Final = 20
_UNANSWERED_AFTER: Final = timedelta(hours=6)
_OVERDUE_POLL = timedelta(minutes=5)
_TAIL_POLLS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7), timedelta(days=30))
LONGEST_BETWEEN_POLLS: Final = _TAIL_POLLS[-1]
"""The longest pause between two polls of a payment."""


def move_payment(old: PaymentStatus, new: PaymentStatus) -> PaymentStatus:
    """Return the new status, or raise `IllegalTransition` where the table does not lead there."""
    return move(PAYMENT_TRANSITIONS, old, new)


def decide_creation(outcome: CreatedPayment | TillgateError) -> PaymentStatus:
    """Return where a *created* payment stands after the attempt to create it at the gateway (unspecified 13).

    A refusal, and a request that never left, is *failed*, and is still polled later; an unknown outcome stays *created* and is watched.
    """
    if isinstance(outcome, CreatedPayment):
        return PaymentStatus.PENDING
    if isinstance(outcome, Refused | NotSent | InvalidRequest | ConfigurationError):
        return PaymentStatus.FAILED
    return PaymentStatus.CREATED


def next_poll(status: PaymentStatus, since: datetime, expires_at: datetime, now: datetime) -> datetime | None:
    """Return when a payment is polled next, always after `now`, or None when never again.

    `since` is when an open payment was created, or when another one came to its status. An open one is watched closely at first and is
    polled once more when its time to pay is over. Past that it is open only because the answers settle nothing, and a contradiction may
    stand for ever: the pauses grow from a few minutes on, with the time that has passed. The others get tail looks.
    """
    if status not in OPEN_PAYMENT_STATUSES:
        return next((moment for after in _TAIL_POLLS if (moment := since + after) > now), None)
    if now >= expires_at:
        return now + min(max(_OVERDUE_POLL, (now - expires_at) / _TAIL_RETRIES), LONGEST_BETWEEN_POLLS)
    early = (since + after for after in _EARLY_POLLS)
    moment = next((moment for moment in early if moment > now), now + _POLL)
    return min(moment, max(expires_at, now + timedelta(seconds=1)))


def next_retry(status: PaymentStatus, since: datetime, expires_at: datetime, now: datetime) -> datetime:
    """Return when a payment is polled next after an answer that was inconclusive. Arguments as for `next_poll`.

    Soon, for an open one. For another one the pause grows with the time it has been settled: a gateway that has forgotten old transactions
    never answers about them, and must not be asked every few minutes for ever.
    """
    pause = _RETRY if status in OPEN_PAYMENT_STATUSES else min(max(_RETRY, (now - since) / _TAIL_RETRIES), LONGEST_BETWEEN_POLLS)
    due = next_poll(status, since, expires_at, now)
    return min(due, now + pause) if due else now + pause


def is_unanswered(status: PaymentStatus, expires_at: datetime, now: datetime) -> bool:
    """Tell whether a payment that is still open should long have been settled by an answer: a person must know of it."""
    return status in OPEN_PAYMENT_STATUSES and now >= expires_at + _UNANSWERED_AFTER
