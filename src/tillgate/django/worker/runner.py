"""The runner claims due rows of chores, does them, and puts back those that it did not reach.

The database is the queue. A claim is one short transaction: it takes due rows that no process
holds, with their orders, and moves their due column forward by a lease. A worker that dies lets its
lease run out. Any number of workers may run at the same time.

Every chore has a turn of bounded length in its lane, so nothing waits long behind something slow.
An error of one row is logged and counted; its lease stands until it is tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from django.db import Error as DatabaseFault
from django.db import connections
from django.db.models import Count, Min, QuerySet
from django.utils import timezone

from tillgate.django.models import database
from tillgate.django.orders.locking import durable, reconnect_if_cut
from tillgate.django.orders.times import Stop
from tillgate.django.worker.lanes import in_turn, note_failures
from tillgate.wire.personal import without_personal_data
from tillgate.wire.texts import storable

_log = logging.getLogger("tillgate")

AT_ONCE: Final = 100
"""The rows of a claim, which costs a few statements: polls of so many last five seconds at the
usual rate, before shop events are delivered.
"""
LEASE: Final = timedelta(minutes=5)
TURN_SECONDS: Final = 60.0
"""After so long the others get their turn; a call that is under way is awaited."""
_LANES_AT_ONCE: Final = 8
"""So many accounts have their turn at a time; each has its own connection to the database."""
_FAULTS_KEPT: Final = 20

_Kept = TypeVar("_Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """One kind of due work: its rows, the column that says when each is due, and its function.

    A chore belongs to a lane of the shop's own (`lane`), or to each account's (`account` is the
    lookup from a row to it).
    """

    name: str
    label: Any
    """The name for people, translated."""
    rows: Callable[[], QuerySet[Any]]
    due: str
    do: Callable[[Batch], None]
    """Does claimed rows, and sets their due column again: `partial(each, function)` for row by row.
    """
    lane: str = ""
    account: str = ""
    order: str = "order"
    """The lookup of the order, which a claim locks too; empty where the rows are or have none."""
    lease: timedelta = LEASE
    at_once: int = 0
    """The rows of a claim, where `AT_ONCE` are too many to be done before the lease ends."""
    mark: str = ""
    """A column that gets the time of the claim."""
    then: Chore | None = None
    """The chore that has a turn after each batch with news, since a shopper may wait for it."""

    def due_rows(self, until: datetime, account: str = "") -> QuerySet[Any]:
        """Return the rows that are due, of one account where the chore has accounts."""
        due = self.rows().filter(**{f"{self.due}__lte": until})
        return due.filter(**{self.account: account}) if account else due

    def oldest_by_account(self, until: datetime) -> dict[str, datetime]:
        """Return since when each account has a due row."""
        due = self.due_rows(until).order_by()
        return dict(due.values_list(self.account).annotate(Min(self.due)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One chore in the queue: how many rows are due, since when, and how many failed last."""

    chore: Chore
    waiting: int
    oldest: datetime | None
    failures: int


def queue(chores: Iterable[Chore], failures: Counter[str]) -> tuple[Waiting, ...]:
    """Return the queue as it is now, chore by chore."""
    now, found = timezone.now(), []
    for chore in chores:
        due = chore.due_rows(now).order_by().aggregate(waiting=Count("pk"), oldest=Min(chore.due))
        found.append(Waiting(chore=chore, failures=failures[chore.name], **due))
    return tuple(found)


@dataclass
class WorkDone:
    """The work of a worker run: how many rows of each chore were done, and the failures."""

    counts: Counter[str] = field(default_factory=Counter)
    news: Counter[str] = field(default_factory=Counter)
    """More counts, such as how many payments changed."""
    faults: list[str] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def work(self) -> int:
        """How much was done in all."""
        return sum(self.counts.values())

    def count(self, name: str, number: int = 1) -> None:
        """Count rows that were done."""
        with self._lock:
            self.counts[name] += number

    def note(self, name: str, number: int = 1) -> None:
        """Count something else about them."""
        with self._lock:
            self.news[name] += number

    def fail(self, error: Exception, about: str) -> None:
        """Keep a failure, within a bound: a broken database must not fill the memory."""
        text = without_personal_data(storable(f"{about}: {type(error).__name__}: {error}"))[:300]
        with self._lock:
            if len(self.faults) < _FAULTS_KEPT:
                self.faults.append(text)

    def summary(self) -> dict[str, Any]:
        """Return the work as JSON knows it, with the first few failures."""
        counts = {
            name: number for name, number in (*self.counts.items(), *self.news.items()) if number
        }
        return counts | ({"faults": self.faults[:5]} if self.faults else {})


Progress = Callable[[WorkDone], object]


def quiet(_: WorkDone) -> None:
    """Show nothing."""


class Batch:
    """The rows of a claim, as they were before it, and the means to do them."""

    def __init__(self, turn: Turn, rows: list[Any], leased_until: datetime) -> None:
        self.turn, self.rows, self.leased_until = turn, rows, leased_until
        self.left = list(rows)
        """The rows that the turn has not reached: they are due again as they were."""
        self.has_news = False

    def reach(self) -> Iterator[Any]:
        """Yield each row while the turn lasts."""
        while self.left and self.turn.goes_on:
            yield self.left.pop(0)

    def put_back(
        self,
        rows: Iterable[Any],
        due: datetime | None,
        mark: datetime | None = None,
    ) -> None:
        """Make rows due at another time, except those that another process has
        changed.
        """
        chore, pks = self.turn.chore, [row.pk for row in rows]
        claimed = chore.rows().model._default_manager.filter(
            **{"pk__in": pks, chore.due: self.leased_until},
        )
        claimed.update(**{chore.due: due} | ({chore.mark: mark} if chore.mark else {}))

    def put_back_left(self) -> None:
        """Make the rows that were not reached due as before."""
        chore, by_time = self.turn.chore, defaultdict[tuple[Any, ...], list[Any]](list)
        for row in self.left:
            by_time[
                getattr(row, chore.due),
                getattr(row, chore.mark) if chore.mark else None,
            ].append(row)
        for (due, mark), rows in by_time.items():
            self.put_back(rows, due, mark)


def each(do: Callable[[Any, datetime], int | None], batch: Batch) -> None:
    """Do row after row. `do` gets the row and the end of its lease, and may return a number for the
    count.
    """
    turn = batch.turn
    for row in batch.reach():
        with turn.guarded(f"{turn.chore.name} {row.pk}"):
            done = do(row, batch.leased_until)
            turn.work.count(turn.chore.name, 1 if done is None else done)


class Turn:
    """The turn of one chore in one lane: batch after batch, for a bounded time."""

    def __init__(self, run: Run, chore: Chore, account: str = "") -> None:
        self.run, self.chore, self.account, self.work = run, chore, account, run.work
        self.ends = time.monotonic() + TURN_SECONDS
        self.failures = 0
        self.is_over = False
        """Set by a chore that must do no more in this turn."""
        self._stack = ExitStack()
        self._kept: Any = None

    @property
    def goes_on(self) -> bool:
        """Whether something new may begin."""
        return not self.is_over and not self.run.stop() and time.monotonic() < self.ends

    def keep(self, kind: Callable[[Turn], AbstractContextManager[_Kept]]) -> _Kept:
        """Return the thing that a chore keeps from batch to batch; the turn closes it at its
        end.
        """
        if self._kept is None:
            self._kept = self._stack.enter_context(kind(self))
        kept: _Kept = self._kept
        return kept

    def take(self) -> bool:
        """Do the rows that are due, and return whether time has left some."""
        with self._stack:
            return self._take()

    def _take(self) -> bool:
        # Rows that fall due later are the next run's, else a run need not end. But events follow
        # from the work of this one.
        until = self.run.began if self.chore.account else timezone.now()
        while self.goes_on:
            batch = self._claim(until)
            if not batch.rows:
                # A claim may come short though some are due: MariaDB locks all that a claim of
                # another account reads, and this one passes over it.
                return self.chore.due_rows(until, self.account).exists()
            self.chore.do(batch)
            reconnect_if_cut()
            with self.guarded(f"{self.chore.name} left"):
                batch.put_back_left()
            self.run.progress(self.work)
            if batch.has_news and self.chore.then:
                Turn(self.run, self.chore.then).take()
        return not self.is_over

    def _claim(self, until: datetime) -> Batch:
        """Take due rows with their orders, the longest due first; pass over locked ones."""
        chore, now = self.chore, timezone.now()
        leased_until = now + chore.lease
        features = connections[database()].features
        of = ("self", chore.order) if chore.order else ("self",)
        # Not by key too: after a restore all are due at the same moment, and PostgreSQL would
        # sort all of them for each claim.
        due = chore.due_rows(until, self.account).order_by(chore.due)
        locking = due.select_related(chore.order) if chore.order else due
        locking = locking.select_for_update(
            skip_locked=features.has_select_for_update_skip_locked,
            of=of if features.has_select_for_update_of else (),
        )
        with durable():
            rows = list(locking[: chore.at_once or AT_ONCE])
            if rows:
                claimed = due.model._default_manager.filter(pk__in=[row.pk for row in rows])
                claimed.update(
                    **{chore.due: leased_until} | ({chore.mark: now} if chore.mark else {}),
                )
        return Batch(self, rows, leased_until)

    @contextmanager
    def guarded(self, about: str) -> Iterator[None]:
        """Log and count an error: it stops nothing else, unless the database itself is away."""
        try:
            yield
        except Exception as error:
            self.failures += 1
            self.run.fail(error, about)


class Run:
    """One run of a worker: all work that is due when it begins, and the events that follow."""

    def __init__(
        self,
        chores: Iterable[Chore],
        stop: Stop,
        progress: Progress,
    ) -> None:
        self.chores, self.stop, self.progress = tuple(chores), stop, progress
        self.began, self.work = timezone.now(), WorkDone()

    def fail(self, error: Exception, about: str) -> None:
        """Log and keep a failure; raise where the database is away: then nothing can be done."""
        _log.error("the worker failed at %s", about, exc_info=error)
        self.work.fail(error, about)
        if isinstance(error, DatabaseFault):
            connection = connections[database()]
            connection.close_if_unusable_or_obsolete()
            connection.ensure_connection()

    def do(self, about: str, action: Callable[[], object]) -> None:
        """Do something that is no chore; its failure keeps nothing else from being done."""
        try:
            action()
        except Exception as error:
            self.fail(error, about)

    def accounts(self) -> list[str]:
        """Return the accounts that have due work and do not rest, the longest waiting first."""
        oldest: dict[str, datetime] = {}
        for chore in self.chores:
            if not chore.account:
                continue
            for account, due in chore.oldest_by_account(self.began).items():
                oldest[account] = min(due, oldest.get(account, due))
        return in_turn(oldest) if oldest else []

    def is_due(self, lane: str) -> bool:
        """Return whether one of the shop's own lanes has due work."""
        now = timezone.now()
        return any(chore.due_rows(now).exists() for chore in self.chores if chore.lane == lane)

    def take_accounts(self) -> bool:
        """Give the accounts their turns, several at the same time, and return whether one has more
        to do.

        After a turn's time no other account begins: with hundreds of them the shop's work would
        wait for the last.
        """
        accounts, ends = self.accounts(), time.monotonic() + TURN_SECONDS
        if len(accounts) <= 1:
            return any(map(self.take_lane, accounts))
        with ThreadPoolExecutor(
            min(_LANES_AT_ONCE, len(accounts)),
            thread_name_prefix="tillgate-lane",
        ) as pool:
            lanes = [pool.submit(self._take_in_thread, account, ends) for account in accounts]
            left = [lane.result() for lane in lanes]
        return any(left)

    def _take_in_thread(self, account: str, ends: float) -> bool:
        if self.stop() or time.monotonic() > ends:
            return True
        try:
            return self.take_lane(account)
        except DatabaseFault as error:  # no connection may be left for this thread
            self.work.fail(error, f"account {account}")
            return True
        finally:
            connections.close_all()  # this thread's own

    def take_lane(self, lane: str) -> bool:
        """Give each chore of a lane its turn, and return whether one has more to do. `lane` is an
        account, or one of the shop's own.
        """
        account = "" if lane.startswith(":") else lane
        failures, left, was_due = Counter[str](), False, False
        for chore in self.chores:
            if (chore.lane != lane) if chore.lane else not account:
                continue
            until = self.began if account else timezone.now()
            turn = Turn(self, chore, account)
            with turn.guarded(chore.name):
                if chore.due_rows(until, account).exists():
                    was_due = True
                    left |= turn.take()
            failures[chore.name] += turn.failures
        if was_due or +failures:
            self.do("failures", partial(note_failures, lane, +failures))
        return left
