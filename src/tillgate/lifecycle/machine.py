"""A state machine is a table: from each status, the statuses that may follow. One function asks the
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

Status = TypeVar("Status", bound=StrEnum)
Transitions = Mapping[Status, frozenset[Status]]


class IllegalTransition(Exception):  # a bug of Tillgate, so no TillgateError
    """The table of a machine does not allow a move."""


def table(rows: Mapping[Status, set[Status]]) -> Transitions[Status]:
    """Return a machine's table, frozen. A final status has an empty row."""
    return MappingProxyType({status: frozenset(following) for status, following in rows.items()})


def move(transitions: Transitions[Status], old: Status, new: Status) -> Status:
    """Return the new status, or raise `IllegalTransition` where the table does not lead there. No
    move is always allowed.
    """
    if new is not old and new not in transitions[old]:
        raise IllegalTransition(f"{type(old).__name__} does not move from {old} to {new}")
    return new
