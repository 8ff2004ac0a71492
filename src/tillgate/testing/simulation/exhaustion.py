"""Small-scope exhaustion: everything that can happen to one order, in every order in which it can happen.

A shopper begins two payments, both are paid at the cashier, notices and a return come in, a sweeper sweeps, a clerk gives the money back;
one process may die and one fault may strike. Wherever actors switch, every choice is tried: who goes on next, who dies there, and at calls
and commits which fault strikes. What is left when nobody acts any more is swept until it is quiet, and judged as in any simulated world.

**States.** A state is a world and, of each actor, all that it has heard so far. A world comprises the rows, the gateway's book, what was
sent to it, what the judge remembers, and the time. What an actor does next follows from what it has heard, and from nothing else: clock,
chance, database and network are the scheduler's. So an actor can be brought to where it stood without forking anything: it begins anew,
and is told again what it heard. Nothing that it then sends or writes goes anywhere.

**Steps.** A step is what an actor does until it pauses. It depends on what the actor had heard and on the *parts* of the world that it
touches: the tables that its statements name, the gateway's book, the time. A step is played once for each content of those parts; in every
other world that has the same content in them it comes to the same, and only the parts that it changed are put in their places.

**Steps that change nothing.** A step that changes no part of the world, begins nobody and uses up no crash and no fault is seen by nobody
but the actor that takes it: it listens, and goes on knowing more. Between two changes of the world every actor takes such steps, or does
not, whatever the others do. So what is stored is no state alone but all those that one history of changes leaves possible: the world, and
of each actor the *set* of places where it may stand by then. A change is made from each of those places; those that change the same from
several of them are one, and lead to the set of places where the actor may stand after it. Each world that can come about, each change in
it, and each end, in which all may stand where they have nothing more to do, is found all the same; only the order of steps that nobody
could have seen is not told apart.

**What makes no difference.** Two worlds that differ in nothing but what follows here have the same future, and are taken for one:

- *The process that is over.* All that a process of the shop leaves to its actor is its answer. What it heard before is forgotten.
- *Instants.* All that happens between two jumps of the clock happens within a fraction of a second, while whatever is compared with an
  offset (a throttle, a lease, a look that is due) is whole seconds away. Of two instants of that time only the order can matter, and only
  where one is the moment of a change: *status_since* and *raised_at* are compared with the moment at which the gateway was asked, and what
  a change makes due is looked for later. So the clock advances with each such change (of a payment's or refund's status, an attention, a
  delivery), and not otherwise. Within a transaction it is half a tick later than outside: whoever asked before a change asked earlier.
- *The timeline.* No operation reads it. The judge and the audit read which events told a status, in which order per payment and refund.
- *Notices that were kept.* Nobody refers to one, and which slot it has plays no part before there are twenty.
- *What is only shown*: the columns of `_ONLY_SHOWN`.
- *Random numbers.* They are each process's own; how long anything takes is not drawn from them. The event ids of deliveries count on.
"""

from __future__ import annotations

import gc
import importlib
import pickle
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from hashlib import blake2b
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from django.apps import apps
from django.db import connection
from django.http import HttpResponseBase
from greenlet import GreenletExit

from tillgate.django import operations
from tillgate.django.models import Attention, Delivery, Heartbeat, Notice, Order, Payment, Refund, TimelineEntry
from tillgate.django.operations.books import STATUS_EVENTS
from tillgate.testing.crashes import Crash
from tillgate.testing.driver import ShopDriver
from tillgate.testing.simulation.faults import KINDS, Faults
from tillgate.testing.simulation.network import Violated
from tillgate.testing.simulation.people import People
from tillgate.testing.simulation.scheduler import Actor, Scheduler
from tillgate.testing.simulation.world import SimulatedWorld, empty_tables

__all__ = ["Counts", "Scope", "explore"]

_T = TypeVar("_T")
_STORY: Final = "0"
_LONGEST_QUIET: Final = 40 * 86_400.0
_TICK: Final = 10e-6
_SHORTEST_REST: Final = 60.0
_UNTIL_DUE: Final = 15 * 60.0
"""Seconds after which every payment is due to be looked at."""
_EVENT_ID_BITS: Final = 128
_MOST_STANDING: Final = 500
_PROGRESS_EVERY: Final = 100


@dataclass(frozen=True)
class Scope:
    """How much can happen; at most two payments."""

    payments: int = 2
    refunds: int = 1
    sweeps: int = 1
    returns: int = 1
    crashes: int = 1
    faults: int = 1

    @property
    def vendors(self) -> tuple[str, ...]:
        """With what the shopper pays, one after the other."""
        return ("paypal", "alipay")[: self.payments]


@dataclass
class Counts:
    """What was explored, and what that took."""

    states: int = 0
    steps: int = 0
    """Between states."""
    ends: int = 0
    """States in which nobody may have anything more to do."""
    worlds: int = 0
    places: int = 0
    """Where actors may stand."""
    played: int = 0
    """Steps that were played; all others came to the same as one of these."""
    judged: int = 0
    ended: int = 0
    """Worlds that were let come to rest."""
    branches: str = ""
    """How far it is, while it goes on: of the first states in which there was a choice, how many steps were followed."""


# One actor, again and again ---------------------------------------------------------------------------------------------------------------

_Heard = tuple[str, Any]
_PAUSED: Final = ("paused", None)
_DIED: Final = ("died", None)


class _Chance(Random):
    """A stream of chance from which nothing is drawn that tells how long something takes."""

    def __init__(self, seed: str, event_id: Callable[[], int]) -> None:
        super().__init__(seed)
        self._event_id = event_id

    def uniform(self, a: float, b: float) -> float:
        return a

    def getrandbits(self, k: int, /) -> int:
        return self._event_id() if k == _EVENT_ID_BITS else super().getrandbits(k)


class Stepping(Scheduler):
    """Lets one actor act from one pause to the next, after it was told again what it had heard before."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(1)
        self.seconds += 30.5
        self.ticks = 0
        self.is_exploring = False
        self.told: list[_Heard] = []
        """What the actor has heard in this step."""
        self.touched: set[str] = set()
        """The parts of the world that this step depends on."""
        self.choices: list[tuple[str, int]] = []
        """Where it might have gone otherwise in this step: what that would have used up, and how many ways there were."""
        self._scope = scope
        self._past: tuple[_Heard, ...] = ()
        self._place = 0
        self._plan: tuple[int, ...] = ()
        self._is_doomed = False
        self._standing: dict[bytes, Actor] = {}
        """Actors at the pauses at which their steps ended, by where they stand: who goes on from there need not begin anew."""
        self.is_mortal = False

    # What an actor hears ------------------------------------------------------------------------------------------------------------------

    @property
    def _is_again(self) -> bool:
        return self._place < len(self._past)

    def _again(self, kind: str) -> Any:
        was, what = self._past[self._place]
        if was != kind:
            raise RuntimeError(f"an actor that was told the same did not do the same: it wanted {kind}, and had {was}")
        self._place += 1
        return what

    def hear(self, read: Callable[[], _T]) -> _T:
        """Return what the actor reads, or read it to it again."""
        if not self.is_exploring or self.actor is None:
            return read()
        if self._is_again:
            return self._again("heard")  # type: ignore[no-any-return]
        heard = read()
        self.told.append(("heard", heard))
        return heard

    def executing(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        """Stand between the actor and the database."""
        if not self.is_exploring or self.actor is None:
            return execute(sql, *rest)
        if self._is_again:
            if self._past[self._place][0] == "failed":
                raise self._again("failed")
            return None
        self.touched.update(_tables_in(sql))
        try:
            return execute(sql, *rest)
        except Exception as error:
            self.told.append(("failed", error))
            raise

    def now(self) -> datetime:
        """Return the time, as the shop reads it."""
        ticks = self.ticks + (0.5 if connection.in_atomic_block else 0.0)
        return self.hear(lambda: datetime.fromtimestamp(self.seconds + ticks * _TICK, UTC))

    def monotonic(self) -> float:
        """Return the time; stands in for `time.monotonic`."""
        return self.hear(lambda: self.seconds)

    def forget(self, answer: object) -> None:
        """Note that a process is over: its answer is all that is left of it."""
        actor = self.actor
        if self.is_exploring and actor:
            if self._is_again:
                self._again("over")
            else:
                self.told.append(("over", answer))
            actor.chance.seed(f"{actor.name} after {answer}")

    def _event_id(self) -> int:
        def count() -> int:
            self.touched.add(_DELIVERIES)
            return int(connection.connection.execute(f"SELECT COUNT(*) FROM {_DELIVERIES}").fetchone()[0]) + 1  # noqa: S608  # our own name

        return self.hear(count)

    # Choices ------------------------------------------------------------------------------------------------------------------------------

    def choose(self, kind: str, ways: int) -> int:
        """Return which way to go; the last is the ordinary one, and every other uses up one of what may happen of a kind."""
        if self._is_again:
            return int(self._again("chose"))
        planned = len(self.choices) < len(self._plan)
        choice = self._plan[len(self.choices)] if planned else ways - 1
        self.choices.append((kind, ways))
        self.told.append(("chose", choice))
        return choice

    def fault(self, *faults: str) -> str:
        """Return the fault that strikes here, or nothing."""
        if not (self.is_exploring and self._scope.faults and self.actor and self.actor.is_mortal):
            return ""
        return (*faults, "")[self.choose("fault", len(faults) + 1)]

    def may_die(self) -> bool:
        """Tell whether the actor may die here, and does."""
        if not (self.is_exploring and self._scope.crashes and self.actor and self.actor.is_mortal):
            return False
        return self.choose("crash", 2) == 0

    def pause(self, seconds: float | None = None) -> None:
        """End the step."""
        actor = self.actor
        if not self.is_exploring or actor is None:
            return super().pause(seconds)
        if actor.is_dead:
            raise Crash(f"{actor.name} is dead")
        if self._is_again:
            self._again("paused")
            if self._is_again:
                if self._past[self._place] == _DIED:
                    self._place += 1
                    raise actor.die("here")
                return None
        else:
            self.told.append(_PAUSED)
        self._hub.switch()
        if self._is_doomed:
            self._is_doomed = False
            self.told.append(_DIED)
            raise actor.die("here")
        return None

    def play(self, known: _Known, put: Callable[[], object], *, plan: tuple[int, ...] = (), dies: bool = False) -> bool:
        """Bring an actor to where it stood, put the world in place, and let it act; return whether it has more to do."""
        self._plan, self.choices, self.told, self.touched = plan, [], [], set()
        actor = self._standing.pop(known.identity, None) or self._begin_anew(known)
        self._past = ()
        self._place = 0
        put()
        self.lines.clear()
        self._is_doomed = dies
        self.let_act(actor)
        if actor.thread.dead:
            return False
        self.is_mortal = actor.is_mortal
        identity = known._replace(heard=(*known.heard, *self.told)).identity
        if identity in self._standing:
            self._abandon(actor)
        else:
            self._standing[identity] = actor
            if len(self._standing) > _MOST_STANDING:
                self._abandon(self._standing.pop(next(iter(self._standing))))
        return True

    def _begin_anew(self, known: _Known) -> Actor:
        """Return an actor that was told again what it had heard, and stands where it stood."""
        self._past, self._place, self._is_doomed = known.heard, 0, False
        self._actors.clear()
        actor = self.spawn(known.name, known.act, story=_STORY)
        self._waiting.clear()
        actor.chance = _Chance(known.name, self._event_id)
        if known.heard:
            self.let_act(actor)
        return actor

    def abandon_all(self) -> None:
        """Let go of every actor."""
        self.abandon_waiting()
        while self._standing:
            self._abandon(self._standing.popitem()[1])

    def abandon_waiting(self) -> None:
        """Let go of whoever waits for a later time."""
        for _, _, actor in self._waiting:
            self._abandon(actor)
        self._waiting.clear()

    def _abandon(self, actor: Actor) -> None:
        """Let go of an actor at its pause: nothing that its end sets off reaches anything."""
        actor.is_dead, self.actor = True, actor
        try:
            actor.thread.throw(GreenletExit)
        finally:
            self.actor = self.failure = None


class _Known(NamedTuple):
    """Where an actor stands: what it does, when it can, and what it has heard since it began."""

    name: str
    act: Callable[[], object]
    is_ready: Callable[[_World], bool]
    heard: tuple[_Heard, ...] = ()
    is_mortal: bool = False

    @property
    def identity(self) -> bytes:
        """What tells it from where it could stand else: what it heard since its last process was over, and how many were."""
        overs = [place for place, (kind, _) in enumerate(self.heard) if kind == "over"]
        since = self.heard[overs[-1] :] if overs else self.heard
        return blake2b(repr((self.name, len(overs), since)).encode(), digest_size=16).digest()


class _OneFault(Faults):
    """Strikes wherever the scheduler chooses to."""

    def strikes(self, *faults: str) -> str:
        """Return a fault of those that differ in what the shop knows and in what the gateway does."""
        assert isinstance(self.scheduler, Stepping)
        distinct = [name for name in faults if name.endswith(("unreachable", ".lost_request", ".lost_response")) or "commit_" in name]
        return self.scheduler.fault(*distinct) if distinct else ""

    def dies(self, where: str) -> None:
        """Die between a commit and what waits for it; every other death is chosen where actors switch."""
        scheduler = self.scheduler
        assert isinstance(scheduler, Stepping)
        if where == "after COMMIT" and connection.run_on_commit and scheduler.may_die():
            assert scheduler.actor
            raise scheduler.actor.die(where)


class _People(People):
    """Forget what a process has heard once it is over."""

    def process(self, what: str, act: Callable[[], _T]) -> _T | None:
        result = super().process(what, act)
        scheduler = self._world.scheduler
        assert isinstance(scheduler, Stepping)
        # Nobody here uses what an operation returns; a notice's answer is what the gateway hears.
        answer = (result.status_code, getattr(result, "content", b"")) if isinstance(result, HttpResponseBase) else ""
        scheduler.forget(answer)
        return result


# The world's parts ------------------------------------------------------------------------------------------------------------------------

_World = tuple[int, ...]
"""The numbers of the contents of its parts."""
_Rows = tuple[tuple[Any, ...], ...]
_DELIVERIES: Final = Delivery._meta.db_table
_GATEWAY: Final = "the gateway"
_REMEMBERED: Final = "the judge"
_TIME: Final = "the time"
_SHOWN: Final = "2026-01-01 00:00:00"
_BOOK: Final = ("_numbers", "faults", "outbox", "_transactions", "_by_reference", "_by_token", "_events", "_event_count")
_ONLY_SHOWN: Final[dict[Any, dict[str, Any]]] = {
    Order: {"created_at": _SHOWN},
    Payment: {"repeated_notices": 0},
    Delivery: {"created_at": _SHOWN, "done_at": _SHOWN},  # whether it is done counts, and not when
    Notice: {"received_at": _SHOWN},
    TimelineEntry: {"at": _SHOWN, "cause": "", "sentence": "", "evidence": "{}"},
}
_FRACTION: Final = re.compile(r"(20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d)\.\d+")
_MOMENTOUS: Final = {Payment: ("id", "status"), Refund: ("id", "status"), Attention: ("id",), Delivery: ("id",)}
"""What a change is at which the clock advances."""


@cache
def _models() -> dict[str, Any]:
    models = [model for model in apps.get_models(include_auto_created=True) if not model.__module__.startswith("django.")]
    return {model._meta.db_table: model for model in models if model._meta.managed}


@cache
def _columns(table: str) -> tuple[str, ...]:
    return tuple(one.column for one in _models()[table]._meta.concrete_fields)


@cache
def _tables_in(sql: str) -> tuple[str, ...]:
    return tuple(name for name in _models() if re.search(rf"\b{name}\b", sql))


def _canonical(table: str, rows: list[tuple[Any, ...]]) -> _Rows:
    """Return a table's rows without what makes no difference."""
    model, columns = _models()[table], _columns(table)
    if not rows:
        return ()
    for column, shown in _ONLY_SHOWN.get(model, {}).items():
        at = columns.index(column)
        rows = [row if row[at] is None else (*row[:at], shown, *row[at + 1 :]) for row in rows]
    if model is Heartbeat:
        sweeper = importlib.import_module("tillgate.django.operations.sweep").SWEEPER
        rows = [row if row[0] != sweeper else (sweeper, _SHOWN, "{}") for row in rows]
    if model is TimelineEntry:
        event, subject = columns.index("event"), [columns.index(name) for name in ("order_id", "payment_id", "refund_id")]
        rows = [row for row in rows if row[event] in STATUS_EVENTS]
        rows.sort(key=lambda row: [row[at] or 0 for at in subject])  # stable: in the order in which they came, per payment and refund
        rows = [(number, *row[1:]) for number, row in enumerate(rows, 1)]
    if model is Notice:
        slot, subject = columns.index("slot"), [columns.index(name) for name in ("payment_id", "refund_id")]
        rows = [(*row[:slot], 0, *row[slot + 1 :]) for row in rows]
        rows.sort(key=lambda row: [str(cell) for cell in row[1:]])
        counts: Counter[tuple[Any, ...]] = Counter()
        sorted_rows, rows = rows, []
        for number, row in enumerate(sorted_rows, 1):
            of = tuple(row[at] for at in subject)
            rows.append((number, *row[1:slot], counts[of], *row[slot + 1 :]))
            counts[of] += 1
    return tuple(rows)


@dataclass
class _Part:
    """The contents that a part of the world has had, and their numbers."""

    contents: list[Any] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)

    def number(self, key: Any, content: Callable[[], Any]) -> int:
        """Return the number of a content, which may be another thing than what tells it from others."""
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.contents)
            self.contents.append(content())
        return number


class _SmallWorld(SimulatedWorld):
    """One order, and whoever has to do with it."""

    def __init__(self, shop: ShopDriver, scheduler: Stepping, scope: Scope) -> None:
        super().__init__(shop, scheduler, _OneFault(scheduler, dict.fromkeys(KINDS, 0.0)))
        self.people = _People(self)
        self.stepping, self._scope = scheduler, scope
        self.places = {name: place for place, name in enumerate((*_models(), _GATEWAY, _REMEMBERED, _TIME))}
        self.parts = [_Part() for _ in self.places]
        self._loaded: list[int | None] = [None] * len(self.places)
        self._marks: dict[tuple[int, int], Any] = {}
        self._in_seconds: dict[tuple[int, int], int] = {}
        self._second_texts: dict[str, int] = {}
        handle = self.service.handle

        def handling(*request: Any) -> Any:
            scheduler.touched.add(_GATEWAY)
            return handle(*request)

        self.service.handle = handling  # type: ignore[method-assign, assignment]  # the same, and noted

    # Actors -------------------------------------------------------------------------------------------------------------------------------

    def actors(self) -> list[_Known]:
        """Place the order, and return who will have to do with it."""
        key = self.place_order(Decimal("12.50"), _STORY)
        scope = self._scope
        actors = [_Known("shopper", lambda: self._shop_for(key), _always)]
        for number, vendor in enumerate(scope.vendors):
            act = partial(self._pay, vendor, comes_back=number < scope.returns)
            actors.append(_Known(f"payer by {vendor}", act, partial(self._is_pending, vendor)))
        actors += [_Known(f"sweeper {number}", self._sweep, _always) for number in range(scope.sweeps)]
        actors += [_Known(f"clerk {number}", self._refund, self._is_paid) for number in range(scope.refunds)]
        return actors

    def _is_pending(self, vendor: str, world: _World) -> bool:
        place = self.places[_GATEWAY]
        return vendor in self.parts[place].contents[world[place]][1]

    def _is_paid(self, world: _World) -> bool:
        place, at = self.places[Payment._meta.db_table], _columns(Payment._meta.db_table).index("status")
        return any(row[at] == "paid" for row in self.parts[place].contents[world[place]])

    def _shop_for(self, key: str) -> None:
        for vendor in self._scope.vendors:
            self.people.start(key, vendor, "default")

    def _pay(self, vendor: str, *, comes_back: bool) -> None:
        def pay() -> str | None:
            self.stepping.touched.add(_GATEWAY)
            there = next(one for one in self.service.transactions() if one.vendor == vendor and one.status == "pending")
            return self.service.decide(there.transaction_no, "pay")

        way_back = self.stepping.hear(pay)
        self.scheduler.tell(f"paid by {vendor}")
        self.scheduler.pause()
        if comes_back and way_back:
            self.people.visit("GET", way_back)

    def _sweep(self) -> None:
        self.scheduler.seconds += _UNTIL_DUE
        self.stepping.touched.add(_GATEWAY)  # a notice may be due by now
        self.people.process("sweep", lambda: operations.sweep())  # noqa: PLW0108  # looked up anew, since a mutant may replace it

    def _refund(self) -> None:
        payment = Payment.objects.filter(status="paid").order_by("pk")[0]
        self.people.process("refund", lambda: operations.refund(payment.pk, payment.amount, person="clerk"))

    def _carry(self, attempt: Any) -> None:
        self.people.carry(attempt)
        self.stepping.touched.add(_GATEWAY)

    def begun(self) -> list[_Known]:
        """Return who begins, since the gateway sends a notice."""
        begun = []
        for attempt in self.service.due_notices(self.scheduler.seconds):
            vendor = self.service.find(attempt.transaction_no).vendor
            name = f"{attempt.notice_no} {attempt.kind} notice of {vendor}, {attempt.attempt_no}"
            begun.append(_Known(name, partial(self._carry, attempt), _always))
        return begun

    # The world --------------------------------------------------------------------------------------------------------------------------

    def number(self, name: str) -> int:
        """Return the number of what a part of the world holds now."""
        place = self.places[name]
        part = self.parts[place]
        if name == _GATEWAY:
            number = part.number(self._told_of_gateway(), self._gateway)
        elif name == _REMEMBERED:
            remembered = self.judge.remembered
            number = part.number(remembered, lambda: remembered)
        elif name == _TIME:
            instant = self.scheduler.seconds, self.stepping.ticks
            number = part.number(instant, lambda: instant)
        else:
            rows = connection.connection.execute(_select(name)).fetchall()
            canonical = _canonical(name, rows)
            number = part.number(canonical, lambda: canonical)
            self._loaded[place] = number if tuple(rows) == canonical else None
            return number
        self._loaded[place] = number
        return number

    def _told_of_gateway(self) -> str:
        service, network = self.service, self.network
        events = [(at, what, one.transaction_no) for at, _, what, one in sorted(service._events, key=lambda event: event[:2])]
        sent = sorted(network.creations.items()), sorted(network.refunds.items())
        return repr((list(service._transactions.values()), service.outbox, events, sent))

    def _gateway(self) -> tuple[bytes, frozenset[str]]:
        service, network = self.service, self.network
        pending = frozenset(one.vendor for one in service._transactions.values() if one.status == "pending")
        kept = {name: getattr(service, name) for name in _BOOK}
        return pickle.dumps((kept, network.creations, network.refunds)), pending

    def put(self, world: _World) -> None:
        """Put a world in place."""
        database, is_open = connection.connection, False
        self._loaded[self.places[_GATEWAY]] = None  # an actor that is told again what it heard counts again what it sends
        for (name, place), number in zip(self.places.items(), world, strict=True):
            if self._loaded[place] == number:
                continue
            content = self.parts[place].contents[number]
            self._loaded[place] = number
            if name == _GATEWAY:
                kept, self.network.creations, self.network.refunds = pickle.loads(content[0])  # noqa: S301  # our own
                vars(self.service).update(kept)
            elif name == _REMEMBERED:
                self.judge.remembered = content
            elif name == _TIME:
                self.scheduler.seconds, self.stepping.ticks = content
            else:
                if not is_open:
                    database.execute("BEGIN")
                    is_open = True
                database.execute(f"DELETE FROM {name}")  # noqa: S608  # the apps' own names
                if content:
                    database.executemany(_insert(name), content)
                last = content[-1][0] if content and isinstance(content[-1][0], int) else 0
                database.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (last, name))
        if is_open:
            database.execute("COMMIT")

    def is_momentous(self, before: _World, after: _World) -> bool:
        """Tell whether a step has changed what lets the clock advance."""
        places = [self.places[model._meta.db_table] for model in _MOMENTOUS]
        return any(before[at] != after[at] and self._mark(at, before[at]) != self._mark(at, after[at]) for at in places)

    def _mark(self, place: int, number: int) -> Any:
        mark = self._marks.get((place, number))
        if mark is None:
            table = next(name for name, at in self.places.items() if at == place)
            columns = [_columns(table).index(name) for name in _MOMENTOUS[_models()[table]]]
            mark = self._marks[place, number] = [[row[at] for at in columns] for row in self.parts[place].contents[number]]
        return mark

    def in_seconds(self, world: _World) -> tuple[int, ...]:
        """Return what tells one world from another in which nobody acts any more: of all instants the whole seconds.

        Whoever asks from then on asks later than any change was.
        """
        key = []
        for name, place in self.places.items():
            content = self.parts[place].contents[world[place]]
            if name == _TIME:
                key.append(int(content[0]))
            elif name in (_GATEWAY, _REMEMBERED):
                key.append(world[place])
            else:
                number = self._in_seconds.get((place, world[place]))
                if number is None:
                    text = _FRACTION.sub(r"\1", repr(content))
                    number = self._in_seconds[place, world[place]] = self._second_texts.setdefault(text, len(self._second_texts))
                key.append(number)
        return tuple(key)

    def judge_all(self, world: _World) -> int:
        """Judge a world, and return the number of what the judge remembers from then on."""
        self.put(world)
        self.judge.everything()
        return self.number(_REMEMBERED)

    def _sweep_until_quiet(self) -> None:
        """Sweep whenever something is due, less and less often what comes to nothing."""
        end, vain = self.scheduler.seconds + _LONGEST_QUIET, 0
        while self.scheduler.seconds < end:
            swept = self.people.process("sweep", lambda: operations.sweep())  # noqa: PLW0108  # as above
            due = self.people._next_due()
            if due is None:
                return
            vain = 0 if swept and swept.work else vain + 1
            self.scheduler.pause(max((due - self.scheduler.now()).total_seconds(), _SHORTEST_REST * 2**vain))

    def end(self, world: _World) -> None:
        """Let everything come to rest, and judge it. Actors that never could act do not."""
        self.put(world)
        stepping = self.stepping
        stepping.is_exploring = False
        stepping.lines.clear()
        stepping._actors.clear()
        self.judge.begin()
        stepping.spawn("sweeper", self._sweep_until_quiet, story="sweeper")
        self.finish(_LONGEST_QUIET)
        stepping.abandon_waiting()
        stepping.is_exploring, self.is_quiet, self.faults.is_calm = True, False, False
        self._loaded = [None] * len(self.places)


@cache
def _select(table: str) -> str:
    columns = ", ".join(f"+{name}" for name in _columns(table))  # a sign keeps the driver from converting what it reads
    return f"SELECT {columns} FROM {table} ORDER BY 1"  # noqa: S608  # the apps' own names


@cache
def _insert(table: str) -> str:
    return f"INSERT INTO {table} ({', '.join(_columns(table))}) VALUES ({', '.join('?' * len(_columns(table)))})"  # noqa: S608


def _always(_: _World) -> bool:
    return True


# The exploration --------------------------------------------------------------------------------------------------------------------------


class _Outcome(NamedTuple):
    """What came of a step: which parts of the world have another content, where the actor stands, and who has begun."""

    changes: tuple[tuple[int, int], ...]
    actor: int | None
    begun: tuple[int, ...]
    choices: tuple[tuple[str, int], ...]
    lines: tuple[str, ...]


class _Move(NamedTuple):
    """Where a step leads in one world: who stands where then, who has begun, and what may still happen."""

    world: int
    begun: tuple[int, ...]
    crashes: int
    faults: int
    actor: int
    lines: tuple[str, ...]


class _State(NamedTuple):
    """A world, where each actor may stand, and what may still happen."""

    world: int
    crashes: int
    faults: int
    actors: tuple[int, ...]


_GONE: Final = -1
"""Where an actor stands that has nothing more to do."""


class _Exploration:
    """Finds every state."""

    def __init__(self, small: _SmallWorld, scope: Scope, progress: Callable[[Counts], object]) -> None:
        self.small, self.scope, self.progress, self.counts = small, scope, progress, Counts()
        self._worlds: list[_World] = []
        self._world_numbers: dict[_World, int] = {}
        self._actors: list[_Known] = []
        self._actor_numbers: dict[bytes, int] = {}
        self._played: dict[tuple[int, bool, tuple[int, ...]], dict[tuple[int, ...], dict[tuple[int, ...], _Outcome]]] = {}
        self._moves: dict[tuple[int, int, int, int], list[_Move]] = {}
        self._sets: list[frozenset[int]] = []
        self._set_numbers: dict[frozenset[int], int] = {}
        self._closures: dict[tuple[int, int], int] = {}
        self._changing: dict[tuple[int, int, int, int], list[tuple[_State, tuple[str, ...]]]] = {}
        self._judged: dict[_World, int] = {}
        self._ended: set[tuple[int, ...]] = set()
        unjudged = [model._meta.db_table for model in (Notice, Attention, Heartbeat)] + [_TIME]
        self._judged_places = [at for name, at in small.places.items() if name not in unjudged]

    def _world(self, world: _World) -> int:
        number = self._world_numbers.get(world)
        if number is None:
            number = self._world_numbers[world] = len(self._worlds)
            self._worlds.append(world)
            self.counts.worlds += 1
        return number

    def _actor(self, known: _Known) -> int:
        identity = known.identity
        number = self._actor_numbers.get(identity)
        if number is None:
            number = self._actor_numbers[identity] = len(self._actors)
            self._actors.append(known)
            self.counts.places += 1
        return number

    # Steps --------------------------------------------------------------------------------------------------------------------------------

    def _step(self, world: _World, actor: int, plan: tuple[int, ...], *, dies: bool) -> _Outcome:
        known = self._played.setdefault((actor, dies, plan), {})
        for places, outcomes in known.items():
            if outcome := outcomes.get(tuple(world[at] for at in places)):
                return outcome
        outcome, places = self._play(world, actor, plan, dies=dies)
        known.setdefault(places, {})[tuple(world[at] for at in places)] = outcome
        return outcome

    def _play(self, world: _World, actor: int, plan: tuple[int, ...], *, dies: bool) -> tuple[_Outcome, tuple[int, ...]]:
        self.counts.played += 1
        small, stepping, known = self.small, self.small.stepping, self._actors[actor]
        stepping.is_exploring = True
        has_more = stepping.play(known, lambda: small.put(world), plan=plan, dies=dies)
        begun = small.begun() if _GATEWAY in stepping.touched else []
        after = list(world)
        for name in stepping.touched - {_TIME}:
            after[small.places[name]] = small.number(name)
        if small.is_momentous(world, tuple(after)):
            stepping.ticks += 1
        after[small.places[_TIME]] = small.number(_TIME)
        places = tuple(sorted({small.places[name] for name in (*stepping.touched, _TIME)}))
        changes = tuple((at, after[at]) for at in places if after[at] != world[at])
        stands = (
            self._actor(known._replace(heard=(*known.heard, *stepping.told), is_mortal=stepping.is_mortal, is_ready=_always))
            if has_more
            else None
        )
        lines = tuple(line for _, line in stepping.lines)
        return _Outcome(changes, stands, tuple(map(self._actor, begun)), tuple(stepping.choices), lines), places

    def _judge(self, world: _World) -> _World:
        key = tuple(world[at] for at in self._judged_places)
        remembered = self._judged.get(key)
        if remembered is None:
            self.counts.judged += 1
            remembered = self._judged[key] = self.small.judge_all(world)
        at = self.small.places[_REMEMBERED]
        return (*world[:at], remembered, *world[at + 1 :])

    def _moves_of(self, number: int, actor: int, crashes: int, faults: int) -> list[_Move]:
        """Return where an actor can go from where it stands."""
        key = (number, actor, crashes, faults)
        moves = self._moves.get(key)
        if moves is None:
            moves = self._moves[key] = list(self._all_moves(number, actor, crashes, faults))
        return moves

    def _all_moves(self, number: int, actor: int, crashes: int, faults: int) -> Iterator[_Move]:
        world = self._worlds[number]
        if actor == _GONE or not self._actors[actor].is_ready(world):
            return
        deaths = (False, True) if crashes and self._actors[actor].is_mortal else (False,)
        plans: list[tuple[bool, tuple[int, ...], int, int]] = [(dies, (), crashes - dies, faults) for dies in deaths]
        while plans:
            dies, plan, crashes_left, faults_left = plans.pop()
            outcome = self._step(world, actor, plan, dies=dies)
            after = list(world)
            for at, content in outcome.changes:
                after[at] = content
            try:
                reached = self._world(self._judge(tuple(after)))
            except Violated:
                self.small.stepping.lines = [("", line) for line in outcome.lines]
                raise
            stands = _GONE if outcome.actor is None else outcome.actor
            yield _Move(reached, outcome.begun, crashes_left, faults_left, stands, outcome.lines)
            for place in range(len(plan), len(outcome.choices)):
                kind, ways = outcome.choices[place]
                if crashes_left if kind == "crash" else faults_left:
                    ordinary = tuple(count - 1 for _, count in outcome.choices[len(plan) : place])
                    left = (crashes_left - (kind == "crash"), faults_left - (kind == "fault"))
                    plans += [(dies, (*plan, *ordinary, way), *left) for way in range(ways - 1)]

    # Sets of where an actor may stand -----------------------------------------------------------------------------------------------------

    def _set(self, actors: frozenset[int]) -> int:
        number = self._set_numbers.get(actors)
        if number is None:
            number = self._set_numbers[actors] = len(self._sets)
            self._sets.append(actors)
        return number

    def _closure(self, world: int, number: int) -> int:
        """Return where an actor may stand once it has taken such steps as change nothing."""
        closure = self._closures.get((world, number))
        if closure is None:
            found, new = set(self._sets[number]), list(self._sets[number])
            while new:
                for move in self._moves_of(world, new.pop(), 0, 0):
                    if move.world == world and not move.begun and move.actor not in found:
                        found.add(move.actor)
                        new.append(move.actor)
            closure = self._closures[world, number] = self._set(frozenset(found))
        return closure

    def _changes(self, world: int, number: int, crashes: int, faults: int) -> list[tuple[_State, tuple[str, ...]]]:
        """Return the steps of an actor that change something; those that change the same are one."""
        key = (world, number, crashes, faults)
        changes = self._changing.get(key)
        if changes is None:
            grouped: dict[tuple[Any, ...], set[int]] = {}
            lines: dict[tuple[Any, ...], tuple[str, ...]] = {}
            for actor in self._sets[number]:
                for move in self._moves_of(world, actor, crashes, faults):
                    if move[:4] != (world, (), crashes, faults):
                        grouped.setdefault(move[:4], set()).add(move.actor)
                        lines.setdefault(move[:4], move.lines)
            changes = self._changing[key] = []
            for (reached, begun, crashes_left, faults_left), actors in grouped.items():
                sets = [self._set(frozenset(actors)), *(self._set(frozenset([one])) for one in begun)]
                closed = tuple(self._closure(reached, one) for one in sets)
                changes.append((_State(reached, crashes_left, faults_left, closed), lines[reached, begun, crashes_left, faults_left]))
        return changes

    # States -------------------------------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Find every state, the deepest first."""
        small = self.small
        small.judge.begin()
        first = small.actors()
        small.stepping.is_exploring = True
        world = self._world(tuple(small.number(name) for name in small.places))
        actors = [self._closure(world, self._set(frozenset([self._actor(known)]))) for known in first]
        begin = _State(world, self.scope.crashes, self.scope.faults, tuple(sorted(actors)))
        seen: set[bytes] = {_digest(begin)}
        self.counts.states = 1
        path: list[list[Any]] = [[self._after(begin), (), 0]]
        try:
            while path:
                following = next(path[-1][0], None)
                if following is None:
                    path.pop()
                    continue
                state, lines = following
                path[-1][2] += 1
                self.counts.steps += 1
                digest = _digest(state)
                if digest in seen:
                    continue
                seen.add(digest)
                self.counts.states += 1
                if self.counts.states % _PROGRESS_EVERY == 0:
                    self.counts.branches = self._branches(path)
                    self.progress(self.counts)
                path.append([self._after(state), lines, 0])
        except BaseException:
            self._print(path)
            raise

    def _after(self, state: _State) -> Iterator[tuple[_State, tuple[str, ...]]]:
        world, crashes, faults, actors = state
        gone = self._set(frozenset([_GONE]))
        for place, actor in enumerate(actors):
            for change, lines in self._changes(world, actor, crashes, faults):
                others = actors[:place] + actors[place + 1 :]
                if change.world != world:
                    others = tuple([self._closure(change.world, one) for one in others])
                both = sorted([one for one in (*others, *change.actors) if one != gone])
                yield _State(change.world, change.crashes, change.faults, tuple(both)), lines
        if all(self._may_rest(world, actor) for actor in actors):
            self._end(world)

    def _may_rest(self, world: int, number: int) -> bool:
        """Tell whether an actor may have nothing to do."""
        return any(one == _GONE or not self._actors[one].is_ready(self._worlds[world]) for one in self._sets[number])

    def _end(self, number: int) -> None:
        self.counts.ends += 1
        key = self.small.in_seconds(self._worlds[number])
        if key not in self._ended:
            self._ended.add(key)
            self.counts.ended += 1
            self.small.end(self._worlds[number])

    @staticmethod
    def _branches(path: list[list[Any]]) -> str:
        return " ".join(str(followed) for _, _, followed in path if followed > 1)[:60]

    def _print(self, path: list[list[Any]]) -> None:
        lines = [line for _, told, _ in path for line in told]
        lines += [line for _, line in self.small.stepping.lines]
        sys.stdout.write("\n".join([*lines, ""]))
        sys.stdout.flush()


def _digest(state: _State) -> bytes:
    return blake2b(repr(tuple(state)).encode(), digest_size=16).digest()


def explore(shop: ShopDriver, scope: Scope, progress: Callable[[Counts], object] = lambda _: None) -> Counts:
    """Explore everything in an emptied database. Raises `Violated` when an invariant did not hold somewhere."""
    if connection.vendor != "sqlite":
        raise TypeError("only SQLite's rows are put back as quickly as it takes here")
    empty_tables()
    stepping = Stepping(scope)
    small = _SmallWorld(shop, stepping, scope)
    exploration = _Exploration(small, scope, progress)
    gc.collect()
    gc.freeze()
    with small.in_place():
        connection.execute_wrappers.append(stepping.executing)
        try:
            exploration.run()
        except Violated as violated:
            sys.stdout.write(f"{violated}\n")
            raise
        finally:
            stepping.abandon_all()
            connection.execute_wrappers.remove(stepping.executing)
            gc.unfreeze()
    return exploration.counts
