"""The refund's machine: its statuses, its table, and the status that follows an attempt to send it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tillgate.errors import ConfigurationError, InvalidRequest, NotSent, Refused, TillgateError
from tillgate.lifecycle.machine import move, table
from tillgate.wire.messages import Refunded

__all__ = ["BOUND_REFUND_STATUSES", "REFUND_TRANSITIONS", "RefundStatus", "decide_refund", "move_refund"]


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
    """The gateway may have refunded the money. Tillgate never sends it again (I6) and blocks its amount (I5)."""


_R = RefundStatus

REFUND_TRANSITIONS: Final = table(
    {
        _R.QUEUED: {_R.SENDING, _R.FAILED},  # failed: staff withdrew it
        _R.SENDING: {_R.PENDING, _R.SUCCEEDED, _R.FAILED, _R.UNKNOWN, _R.QUEUED},  # queued again: the request certainly did not leave
        _R.PENDING: {_R.SUCCEEDED, _R.FAILED},  # by a query, a notification on the refund's own address, or staff
        _R.UNKNOWN: {_R.PENDING, _R.SUCCEEDED, _R.FAILED},  # for the same reasons
        _R.SUCCEEDED: set(),
        _R.FAILED: set(),
    }
)

BOUND_REFUND_STATUSES: Final = frozenset({_R.QUEUED, _R.SENDING, _R.PENDING, _R.UNKNOWN, _R.SUCCEEDED})
"""Statuses in which a refund takes or may take its amount. These refunds never exceed the paid amount (I5)."""


def move_refund(old: RefundStatus, new: RefundStatus) -> RefundStatus:
    """Return the new status, or raise `IllegalTransition` where the table does not lead there."""
    return move(REFUND_TRANSITIONS, old, new)


def decide_refund(outcome: Refunded | TillgateError) -> RefundStatus:
    """Return the status of a *sending* refund after the attempt: *queued* if nothing left, *unknown* in doubt (unspecified 12, 14)."""
    if isinstance(outcome, Refunded):
        return RefundStatus(outcome.outcome.value)
    if isinstance(outcome, Refused | InvalidRequest):
        return RefundStatus.FAILED
    if isinstance(outcome, NotSent | ConfigurationError):
        return RefundStatus.QUEUED
    return RefundStatus.UNKNOWN
