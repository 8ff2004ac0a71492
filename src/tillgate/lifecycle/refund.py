"""The refund's machine: its statuses, its table, and the status that follows an attempt to send it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tillgate.errors import ConfigurationError, InvalidRequest, NotSent, Refused, TillgateError
from tillgate.lifecycle.machine import move, table
from tillgate.wire.messages import Refunded

__all__ = ["BOUND_REFUND_STATUSES", "REFUND_TRANSITIONS", "RefundStatus", "decide_refund", "move_refund"]


class RefundStatus(StrEnum):
    """Where a refund stands."""

    QUEUED = "queued"
    SENDING = "sending"
    """It may be on its way. A crash here is an unknown outcome."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It may have been carried out. Never sent again by software (I6); blocks its amount (I5)."""


_R = RefundStatus

REFUND_TRANSITIONS: Final = table(
    {
        _R.QUEUED: {_R.SENDING, _R.FAILED},  # failed without being sent: staff withdrew it
        _R.SENDING: {_R.SUCCEEDED, _R.FAILED, _R.UNKNOWN, _R.QUEUED},  # queued again: the request certainly did not leave
        _R.UNKNOWN: {_R.SUCCEEDED, _R.FAILED},  # by a notification on the refund's own address, or by staff
        _R.SUCCEEDED: set(),
        _R.FAILED: set(),
    }
)

BOUND_REFUND_STATUSES: Final = frozenset({_R.QUEUED, _R.SENDING, _R.UNKNOWN, _R.SUCCEEDED})
"""Statuses in which a refund takes its amount, or may: together never more than the paid amount (I5)."""


def move_refund(old: RefundStatus, new: RefundStatus) -> RefundStatus:
    """Return the new status, or raise `IllegalTransition` where the table does not lead there."""
    return move(REFUND_TRANSITIONS, old, new)


def decide_refund(outcome: Refunded | TillgateError) -> RefundStatus:
    """Return where a *sending* refund stands after the attempt (unspecified 12 and 14).

    Closed by default: what is not certain is *unknown*. What certainly never left is *queued* again, unless it never can leave.
    """
    if isinstance(outcome, Refunded):
        return RefundStatus.SUCCEEDED
    if isinstance(outcome, Refused | InvalidRequest):
        return RefundStatus.FAILED
    if isinstance(outcome, NotSent | ConfigurationError):
        return RefundStatus.QUEUED
    return RefundStatus.UNKNOWN
