"""Whether the pages may create payments at an account: after two creations in a row without an answer they create none for a while."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from enum import Enum
from typing import Final

from tillgate.django import clock
from tillgate.django.models import Heartbeat
from tillgate.django.operations.heartbeats import set_heartbeat
from tillgate.django.operations.lanes import rests_until

_CREATIONS: Final = "creations:"
_PAUSE: Final = timedelta(seconds=30)
_IN_A_ROW: Final = timedelta(minutes=10)
"""Two creations without an answer that are further apart are not in a row."""
_LONGEST_NAME: Final = 64


def _name(account: str) -> str:
    name = f"{_CREATIONS}{account}"
    return name if len(name) <= _LONGEST_NAME else f"{_CREATIONS}{hashlib.sha256(account.encode()).hexdigest()[:32]}"


class CreationState(Enum):
    """Whether the pages may create a payment at an account."""

    SOUND = "sound"
    DOUBTFUL = "doubtful"
    """The last creation had no answer: one more without an answer, and the pages create none."""
    RESTS = "rests"
    """None may be created now."""


def creation_state(account: str) -> CreationState:
    """Return whether a payment may be created at an account now."""
    now = clock.now()
    unanswered_at = Heartbeat.objects.filter(name=_name(account)).values_list("at", flat=True).first()
    if unanswered_at and unanswered_at > now:
        return CreationState.RESTS
    if unanswered_at and unanswered_at > now - _IN_A_ROW:
        return CreationState.DOUBTFUL
    return CreationState.SOUND


def note_creation(account: str, before: CreationState, *, is_answered: bool) -> None:
    """Note whether the gateway answered a creation. `before` is the state in which the creation began.

    An account that rests from the worker's queries is in doubt only: a single payment that the gateway fails about must stop no sale.
    """
    if not is_answered:
        resting, now = rests_until(account), clock.now()
        is_doubtful = before is not CreationState.SOUND or (resting is not None and resting > now)
        rest = _PAUSE if is_doubtful else timedelta(0)
        set_heartbeat(_name(account), now + rest, {})
    elif before is not CreationState.SOUND:
        Heartbeat.objects.filter(name=_name(account)).delete()
