"""The zygote: a process of one thread that has everything loaded and forks a child for each kill.

It is forked before any thread starts, so that no child inherits a lock that no thread will release;
and it keeps no connection open, so that each child opens its own, to the database and to the
gateway.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final, Generic, TypeVar

__all__ = ["End", "Zygote"]

_Job = TypeVar("_Job")
_LONGEST_SECONDS: Final = 60.0
"""A child that takes longer hangs."""

Carry = Callable[[_Job, int, Callable[[str], object]], int]
"""Does a job, to be killed at a point and telling where; returns how many points it passed."""


@dataclass(frozen=True, slots=True)
class End:
    """How a child ended: killed at a place, done after so many points, or wrong."""

    place: str = ""
    points: int = 0
    fault: str = ""


class Zygote(Generic[_Job]):
    """Forks immediately; all that its job uses must be reachable from here, since only the job
    itself is sent.
    """

    def __init__(self, carry: Carry[_Job], begin: Callable[[], object]) -> None:
        if threading.active_count() > 1:
            raise RuntimeError("the zygote must be forked before any thread starts")
        self._connection, others = Pipe()
        self._process_id = os.fork()
        if self._process_id == 0:
            self._connection.close()
            # Ctrl-C reaches the whole group; the zygote's maker ends it in order
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                begin()
                _serve(others, carry)
            finally:
                os._exit(0)
        others.close()

    def do(self, job: _Job, *, kill_at: int = 0, fork: bool = True) -> End:
        """Let a child do a job, and be killed at a point of it; return how it ended. Without `fork`
        the zygote itself gets warm by it.
        """
        self._connection.send((job, kill_at, fork))
        end: End = self._connection.recv()
        return end

    def end(self) -> None:
        """End it."""
        self._connection.close()
        os.waitpid(self._process_id, 0)


def _serve(connection: Connection, carry: Carry[Any]) -> None:
    while True:
        try:
            job, kill_at, fork = connection.recv()
        except EOFError:
            return
        if fork:
            connection.send(_in_a_child(job, kill_at, carry))
        else:
            connection.send(_here(job, 0, carry, lambda _: None))
            gc.collect()
            gc.freeze()  # a collection in a child would write to every page, and so copy it


def _here(job: Any, kill_at: int, carry: Carry[Any], tell: Callable[[str], object]) -> End:
    try:
        return End(points=carry(job, kill_at, tell))
    except BaseException:  # noqa: BLE001  # the parent hears of any error
        return End(fault=traceback.format_exc(limit=-4))


def _in_a_child(job: Any, kill_at: int, carry: Carry[Any]) -> End:
    reading, writing = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            writing.send(_here(job, kill_at, carry, lambda place: writing.send(End(place=place))))
        finally:
            os._exit(0)
    writing.close()
    end, is_over = None, False
    with reading:
        if reading.poll(_LONGEST_SECONDS):
            try:
                end = reading.recv()
            except EOFError:  # the child sends nothing more: it crashed, or the system killed it
                is_over = True
    if end is None and not is_over:
        os.kill(child, signal.SIGKILL)
        end = End(fault=f"it hangs: nothing was heard for {_LONGEST_SECONDS:.0f} seconds")
    _, status = os.waitpid(child, 0)
    if end is None:
        return End(
            fault=f"it ended without a word, with exit code {os.waitstatus_to_exitcode(status)}",
        )
    was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return (
        end
        if end.fault or was_killed == bool(end.place)
        else End(fault=f"it ended with status {status}, and said {end}")
    )
