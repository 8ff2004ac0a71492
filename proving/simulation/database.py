"""The database of the simulation: a real one, whose driver now and then fails or dies, and where
commits let others act.

The errors come out of a database backend: `proving.simulation.backends.sqlite3`, `.postgresql` or
`.mysql` is the ENGINE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, Protocol
from unittest import mock

from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from proving.simulation.scheduler import Scheduler
from tillgate.testing.crashes import Crash

__all__ = ["DATABASE_FAULTS", "Interposed", "Interposer", "switching"]

_WRITES: Final = ("INSERT", "UPDATE", "DELETE")
_TIMELINE: Final = "tillgate_timelineentry"

DATABASE_FAULTS: Final = {
    "deadlock": "deadlock detected",
    "serialization": "could not serialize access due to concurrent update",
    "disk_full": "database or disk is full",
    "commit_lost": "server closed the connection unexpectedly, and nothing was committed",
    "commit_unheard": "server closed the connection unexpectedly, and everything was committed",
}
"""The faults that a database shows its client. The last two strike at COMMIT, where no client can
distinguish them.
"""


class Interposer(Protocol):
    """Decides whether a fault strikes."""

    def strikes(self, *faults: str) -> str:
        """Return the fault that strikes here, or nothing."""

    def draws(self, *faults: str) -> str:
        """Return a fault that is about to strike, or nothing; its observer notes it."""

    def note(self, fault: str) -> str:
        """Count a fault that has struck."""

    def dies(self, where: str) -> None:
        """Raise `Crash` when the process dies here."""


class _Heard(CursorWrapper):
    """A cursor that shows its results to the scheduler."""

    _rowcount: int | None = None

    def execute(self, sql: Any, params: Any = None) -> Any:
        """Execute a statement."""
        self._rowcount = None
        return super().execute(sql, params)

    def hear_rowcount(self) -> None:
        """Hear how many rows a statement has changed, before others act."""
        self._rowcount = self._hear(lambda cursor: cursor.rowcount)

    def _hear(self, read: Callable[[Any], Any]) -> Any:
        assert Interposed.scheduler
        return Interposed.scheduler.hear_rows(self.cursor, read)

    def fetchone(self) -> Any:
        return self._hear(lambda cursor: cursor.fetchone())

    def fetchmany(self, *size: int) -> Any:
        return self._hear(lambda cursor: cursor.fetchmany(*size))

    def fetchall(self) -> Any:
        return self._hear(lambda cursor: cursor.fetchall())

    @property
    def rowcount(self) -> Any:
        if self._rowcount is None:
            self.hear_rowcount()
        return self._rowcount


class Interposed(BaseDatabaseWrapper):
    """A database connection with room for an interposer."""

    interposer: Interposer | None = None
    scheduler: Scheduler | None = None
    recorded: ClassVar[int] = 0
    """How many lines the timeline was given, so a reader of the lines knows when to look."""
    written: ClassVar[int] = 0
    """How many commits and writes without a transaction came about."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.execute_wrappers.append(self._executing)

    def make_cursor(self, cursor: Any) -> CursorWrapper:
        """Let the scheduler hear the rows that are read."""
        return _Heard(cursor, self) if Interposed.scheduler else super().make_cursor(cursor)

    @property
    def _between(self) -> tuple[Interposer, Scheduler] | None:
        own = Interposed
        if own.interposer is None or own.scheduler is None or own.scheduler.actor is None:
            return None  # the world itself looks at its rows, and nothing happens to it
        return own.interposer, own.scheduler

    def _executing(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        between = self._between
        if between is None:
            return execute(sql, *rest)
        interposer, scheduler = between
        assert scheduler.actor
        if scheduler.actor.is_dead:
            raise Crash("a dead process reaches no database")
        word = sql.split(maxsplit=1)[0].upper()
        if word not in _WRITES:
            return execute(sql, *rest)
        Interposed.recorded += word == "INSERT" and _TIMELINE in sql
        interposer.dies(f"before an {word}")
        if fault := interposer.strikes("deadlock", "serialization", "disk_full"):
            raise OperationalError(DATABASE_FAULTS[fault])
        result = execute(sql, *rest)
        # a commit of its own; a statement that returns rows is over after they are read
        if not self.in_atomic_block and "RETURNING" not in sql:
            Interposed.written += 1
            interposer.dies(f"after an {word}")
            rest[-1]["cursor"].hear_rowcount()
            scheduler.pause()
        return result

    def _commit(self) -> None:
        # every backend inherits one
        commit: Callable[[], None] = super()._commit  # type: ignore[misc]
        between = self._between
        if between is None:
            return commit()
        interposer, _ = between
        fault = interposer.strikes("commit_lost", "commit_unheard")
        try:
            interposer.dies("before COMMIT")
        except Crash:
            self._rollback()  # type: ignore[attr-defined]  # every backend inherits one
            raise
        if fault == "commit_lost":
            self._rollback()  # type: ignore[attr-defined]
        else:
            commit()
            Interposed.written += 1
        if fault:
            self.run_on_commit = []
            raise OperationalError(DATABASE_FAULTS[fault])
        try:
            interposer.dies("after COMMIT")
        except Crash:
            self.run_on_commit = []
            raise
        return None

    def close(self) -> None:
        """Stay open while the simulation runs: every actor uses this one connection."""
        if Interposed.scheduler is None:
            super().close()


@contextmanager
def switching(scheduler: Scheduler, interposer: Interposer) -> Iterator[None]:
    """Let actors switch after each commit, and the interposer stand between them and the
    database.
    """
    given = connections[DEFAULT_DB_ALIAS]
    if not isinstance(given, Interposed):
        engine = type(given).__module__
        raise TypeError(
            "the simulation needs a database backend of its own, proving.simulation.backends.*, "
            f"and has {engine}",
        )
    leave = transaction.Atomic.__exit__

    def leaving(atomic: transaction.Atomic, kind: Any, error: Any, traceback: Any) -> None:
        leave(atomic, kind, error, traceback)
        if kind is None and not connection.in_atomic_block:
            scheduler.pause()

    Interposed.interposer, Interposed.scheduler = interposer, scheduler
    # No actor acts while another holds a lock, so there is none to skip: where the database can
    # skip, a world would only have more commits.
    no_skipping = mock.patch.object(given.features, "has_select_for_update_skip_locked", new=False)
    try:
        with mock.patch.object(transaction.Atomic, "__exit__", leaving), no_skipping:
            yield
    finally:
        Interposed.interposer = Interposed.scheduler = None
