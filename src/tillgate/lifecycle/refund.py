"""The refund's machine: its statuses, its table, and the status that follows an attempt to send
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from tillgate.errors import ConfigurationError, InvalidRequest, NotSent, Refused, TillgateError
from tillgate.lifecycle.machine import table
from tillgate.wire.messages import Refunded, ReportedRefund

__all__ = [
    "BOUND_REFUND_STATUSES",
    "REFUND_LATE_AFTER",
    "REFUND_TRANSITIONS",
    "UNSETTLED_REFUND_STATUSES",
    "KnownRefund",
    "RefundStatus",
    "decide_refund",
    "match_refunds",
    "next_refund_poll",
]


class RefundStatus(StrEnum):
    """The status of a refund."""

    QUEUED = "queued"
    SENDING = "sending"
    """The request may be on its way. After a crash the outcome is unknown."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PENDING = "pending"
    """The gateway has accepted the refund, and has not finished it."""
    UNKNOWN = "unknown"
    """The gateway may have refunded the money. Tillgate never sends it again (I6) and blocks its
    amount (I5).
    """


_R = RefundStatus

REFUND_TRANSITIONS: Final = table(
    {
        _R.QUEUED: {_R.SENDING, _R.FAILED},  # failed: staff withdrew it
        _R.SENDING: {
            _R.PENDING,
            _R.SUCCEEDED,
            _R.FAILED,
            _R.UNKNOWN,
            _R.QUEUED,
        },  # queued again: the request certainly did not leave
        _R.PENDING: {
            _R.SUCCEEDED,
            _R.FAILED,
        },  # by a query, a notification on the refund's own address, or staff
        _R.UNKNOWN: {_R.PENDING, _R.SUCCEEDED, _R.FAILED},  # for the same reasons
        _R.SUCCEEDED: set(),
        _R.FAILED: set(),
    },
)

BOUND_REFUND_STATUSES: Final = frozenset(
    {_R.QUEUED, _R.SENDING, _R.PENDING, _R.UNKNOWN, _R.SUCCEEDED},
)
"""Statuses in which a refund takes or may take its amount. These refunds never exceed the paid
amount (I5).
"""


UNSETTLED_REFUND_STATUSES: Final = frozenset({_R.PENDING, _R.UNKNOWN})
"""Statuses in which the gateway is asked about the outcome of the refund."""

REFUND_LATE_AFTER: Final = timedelta(days=7)
"""A refund that is pending for longer opens a review."""

_POLLS: Final = tuple(timedelta(minutes=after) for after in (1, 5, 30, 60, 180, 360))
_POLL: Final = timedelta(hours=12)
_LAST_POLL: Final = timedelta(days=90)


def next_refund_poll(since: datetime, now: datetime) -> datetime | None:
    """Return when the gateway is asked next about a refund that is pending or unknown since a
    moment: often at first, then twice a day.

    None after 90 days, when gateways refund nothing any more.
    """
    if now - since >= _LAST_POLL:
        return None
    return next((moment for after in _POLLS if (moment := since + after) > now), now + _POLL)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRefund:
    """A refund as Tillgate has it, to be found in the gateway's list."""

    id: int
    amount: Decimal
    status: RefundStatus
    refund_id: str
    refund_no: str | None = None
    external: bool = False


def match_refunds(
    known: Iterable[KnownRefund],
    reported: Iterable[ReportedRefund],
) -> tuple[list[tuple[KnownRefund, ReportedRefund]], list[ReportedRefund]]:
    """Find Tillgate's refunds in the gateway's list, and return the pairs and the reported refunds
    that were made elsewhere.

    A refund is found by the gateway's number, then by its id, and at last by its amount: an answer
    may name neither. A queued refund, which is believed not to have left, is found by its names
    alone.
    """
    left, rest = list(known), list(reported)
    pairs = []
    for is_same in (_same_number, _same_id, _same_amount):
        for there in tuple(rest):
            here = next((one for one in left if is_same(one, there)), None)
            if here is not None:
                pairs.append((here, there))
                left.remove(here)
                rest.remove(there)
    return pairs, rest


def _same_number(here: KnownRefund, there: ReportedRefund) -> bool:
    return here.refund_no is not None and here.refund_no == there.refund_no


def _same_id(here: KnownRefund, there: ReportedRefund) -> bool:
    return here.refund_id == there.refund_id


def _same_amount(here: KnownRefund, there: ReportedRefund) -> bool:
    is_unnamed = here.refund_no is None and (there.refund_id is None or here.external)
    return (
        is_unnamed
        and here.amount == there.amount
        and here.status not in (RefundStatus.FAILED, RefundStatus.QUEUED)
    )


def decide_refund(outcome: Refunded | TillgateError) -> RefundStatus:
    """Return the status of a *sending* refund after the attempt: *queued* if nothing left,
    *unknown* in doubt (unspecified 12, 14).
    """
    if isinstance(outcome, Refunded):
        return RefundStatus(outcome.outcome.value)
    if isinstance(outcome, Refused | InvalidRequest):
        return RefundStatus.FAILED
    if isinstance(outcome, NotSent | ConfigurationError):
        return RefundStatus.QUEUED
    return RefundStatus.UNKNOWN
