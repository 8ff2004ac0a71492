"""The record of the one pay or refund that a call through the hooks may send, so that no plugin can
send it twice or deny it (I6).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tillgate.errors import ConfigurationError, NotSent, OutcomeUnknown, Refused
from tillgate.wire.exchange import HttpRequest

__all__ = ["Dispatch", "dispatching", "moving_money"]


@dataclass(slots=True)
class Dispatch:
    """Whether money may have moved within the call, and the error of the gateway's own client, if
    it raised one.
    """

    moved: bool = False
    error: BaseException | None = None


_current: ContextVar[Dispatch | None] = ContextVar("dispatch", default=None)


@contextmanager
def dispatching() -> Iterator[Dispatch]:
    """Record one call through the hooks. A plugin's further calls within it share the record."""
    outer, record = _current.get(), Dispatch()
    token = _current.set(record)
    try:
        yield record
    finally:
        _current.reset(token)
        if outer:
            outer.moved |= record.moved


@contextmanager
def moving_money(request: HttpRequest) -> Iterator[None]:
    """Send a pay or refund, unless the same call through the hooks has sent one. Outside of such
    calls there is no limit.
    """
    record = _current.get()
    if record and record.moved:
        raise OutcomeUnknown(
            request.operation,
            request.reference,
            "a plugin had sent it already, and let it be sent again",
        )
    if record:
        record.moved = True  # before the send: a plugin may go on while its own task still sends
    try:
        yield
    except BaseException as error:
        if record:
            record.moved, record.error = (
                not isinstance(error, NotSent | Refused | ConfigurationError),
                error,
            )
        raise
