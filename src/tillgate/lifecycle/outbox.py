"""The outbox event's machine: written with the change, delivered after it, in order per order
(I3).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tillgate.lifecycle.machine import table

__all__ = ["OUTBOX_TRANSITIONS", "OutboxStatus"]


class OutboxStatus(StrEnum):
    """The status of an outbox event, which its row holds as `done_at`, `attempts` and `outcome`."""

    WAITING = "waiting"
    """The event is due, or waits behind an older one of its order."""
    FAILING = "failing"
    """A delivery failed; the worker tries again."""
    DELIVERED = "delivered"
    ABANDONED = "abandoned"
    """Staff dismissed the review of a failing remote event. The worker does not try it again."""


_E = OutboxStatus

OUTBOX_TRANSITIONS: Final = table(
    {
        _E.WAITING: {_E.DELIVERED, _E.FAILING, _E.ABANDONED},
        _E.FAILING: {_E.DELIVERED, _E.ABANDONED},
        _E.DELIVERED: set(),
        _E.ABANDONED: set(),
    },
)
