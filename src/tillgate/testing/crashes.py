"""Crashes: the points at which a process can die, and a simulated death within the test's process.

The points are after each commit, each write outside a transaction, and each call of the gateway,
and before the first of them: a death before a later one leaves what a death after its predecessor
left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tillgate.transport import SyncTransport


class Crash(BaseException):
    """The process has died here. No handler of exceptions catches it."""


class Points:
    """Counts the points that an act passes, and ends it at one of them; 0 ends it nowhere.

    An ended process does nothing more: clean-up code cannot write or call, and callbacks that wait
    for a commit do not run.
    """

    def __init__(self, end_at: int = 0) -> None:
        self.end_at, self.names = end_at, list[str]()
        self.has_ended = False

    def reach(self, name: str) -> None:
        """Pass a point, or end here."""
        if not self.has_ended:
            self.names.append(name)
            self.has_ended = len(self.names) == self.end_at
        if self.has_ended:
            self.end()

    def end(self) -> None:
        """Die. A subclass may end a real process."""
        raise Crash(self.names[-1])

    def begin(self, name: str) -> None:
        """Begin an act: the first has a point before it, and an ended process begins none."""
        if self.has_ended or not self.names:
            self.reach(f"before {name}")

    def around(self, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        """Return the act with a point after it, and before it where it is the first."""

        def acting(*arguments: Any, **named: Any) -> Any:
            self.begin(name)
            result = action(*arguments, **named)
            self.reach(f"after {name}")
            return result

        return acting

    @contextmanager
    def installed(self) -> Iterator[Points]:
        """Put points around every commit, lone write and call of the gateway."""
        commit = BaseDatabaseWrapper.commit

        def committing(database: BaseDatabaseWrapper) -> None:
            try:
                self.begin("COMMIT")
            except Crash:
                database.rollback()
                raise
            commit(database)
            try:
                self.reach("after COMMIT")
            except Crash:
                database.run_on_commit = []
                raise

        def autocommitted(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
            word = sql.split(maxsplit=1)[0].upper()
            if connection.in_atomic_block or word not in ("INSERT", "UPDATE", "DELETE"):
                return execute(sql, *rest)
            return self.around(f"a lone {word}", execute)(sql, *rest)

        sending = self.around("the gateway", SyncTransport.send)
        try:
            with (
                mock.patch.object(BaseDatabaseWrapper, "commit", committing),
                mock.patch.object(SyncTransport, "send", sending),
                connection.execute_wrapper(autocommitted),
            ):
                yield self
        finally:
            if self.has_ended:
                connections.close_all()  # the next process opens its own
