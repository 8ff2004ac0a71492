"""Small-scope exhaustion: everything that can happen to one order, in every order in which it can happen.

A shopper begins two payments, both are paid at the cashier, notices and a return come in, a sweeper sweeps, a clerk gives the money back;
one process may die and one fault may strike. Wherever actors switch, every choice is tried: who goes on next, who dies there, and at calls
and commits which fault strikes. What is left when nobody acts any more is swept until it is quiet, and judged as in any simulated world.

The world forks at each choice and explores one alternative in each process, one after the other. A state that was explored before is not
explored again. It comprises the rows, the gateway's book, what the judge remembers, and of each actor all that it has read so far: what
an actor does next follows from nothing else. Of instants less than a minute apart only their order counts.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import re
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from hashlib import blake2b
from typing import Any, Final, NoReturn

from django.apps import apps
from django.db import connection

from tillgate.django import operations
from tillgate.django.models import Payment, TimelineEntry
from tillgate.sandbox.transactions import Transaction
from tillgate.testing.driver import ShopDriver
from tillgate.testing.simulation.faults import KINDS, Faults
from tillgate.testing.simulation.network import Violated
from tillgate.testing.simulation.scheduler import Actor, Scheduler
from tillgate.testing.simulation.world import SimulatedWorld, empty_tables

__all__ = ["Counts", "Scope", "explore"]

_SIZE: Final = 16
_FIRST: Final = 64
"""Where the table of states begins; before it stand the counters."""
_VIOLATED: Final = 3
_STORY: Final = "0"
_LONGEST_QUIET: Final = 8 * 86_400.0
_TICK: Final = 10e-6
"""Seconds that pass with each step, so that no two happen at the same instant."""
_INSTANT: Final = re.compile(r"20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d+|\b17\d{8}\.\d+")
_UNTIL_DUE: Final = 15 * 60.0
"""Seconds after which every payment is due to be looked at."""


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


@dataclass(frozen=True)
class Counts:
    """What was explored: states, steps from one to the next, and states in which nobody acts any more."""

    states: int
    steps: int
    ends: int


class _Shared:
    """What all the processes of one exploration know: which states were seen, and how many of what."""

    def __init__(self, capacity: int) -> None:
        self._slots = capacity
        self._memory = mmap.mmap(-1, _FIRST + capacity * _SIZE)  # shared with the processes that are forked

    def count(self, place: int, more: int = 1) -> int:
        """Raise a counter, and return what it is now."""
        (value,) = struct.unpack_from("q", self._memory, 8 * place)
        struct.pack_into("q", self._memory, 8 * place, value + more)
        return int(value) + more

    def is_new(self, state: bytes) -> bool:
        """Tell whether a state was never seen, and remember it."""
        slot = int.from_bytes(state[:8], "big") % self._slots
        for _ in range(self._slots):
            place = _FIRST + slot * _SIZE
            known = self._memory[place : place + _SIZE]
            if known == state:
                return False
            if not any(known):
                self._memory[place : place + _SIZE] = state
                return True
            slot = (slot + 1) % self._slots
        raise MemoryError("there are more states than the table has room for")

    @property
    def counts(self) -> Counts:
        return Counts(self.count(0, 0), self.count(1, 0), self.count(2, 0))


class Branching(Scheduler):
    """Lets every actor that can go on do so next, each in a process of its own."""

    def __init__(self, seed: int, scope: Scope, shared: _Shared, progress: Callable[[Counts], object]) -> None:
        super().__init__(seed)
        self.seconds += 30.5  # far from where a minute begins, whatever is added
        self.is_exploring = False
        self.crashes_left, self.faults_left = scope.crashes, scope.faults
        self.state_of_world: Callable[[], object]
        self._shared, self._progress = shared, progress
        self._ready: dict[Actor, Callable[[], object]] = {}
        self._read: dict[Actor, list[str]] = {}
        self._doomed: Actor | None = None

    # What actors read, since what they do next follows from it ----------------------------------------------------------------------------

    def observe(self, what: object) -> None:
        """Note what the actor has read."""
        if self.is_exploring and self.actor:
            self._read.setdefault(self.actor, []).append(_text(what))

    def now(self) -> Any:
        """Return the time, as the shop reads it."""
        self.observe(self.seconds)
        return super().now()

    # Choices ------------------------------------------------------------------------------------------------------------------------------

    def begin(self, name: str, act: Callable[[], object], *, ready: Callable[[], object] = lambda: True) -> None:
        """Begin an actor that acts once it can."""
        self._ready[self.spawn(name, act, story=_STORY)] = ready

    def pause(self, seconds: float | None = None) -> None:
        """Let others act; how long anything takes plays no part while everything is tried."""
        self.observe("a pause")
        super().pause(0.0 if self.is_exploring else seconds)
        if self.actor and self.actor is self._doomed:
            self._doomed = None
            raise self.actor.die("here")

    def choose(self, count: int) -> int:
        """Return each number below `count`, in a process of its own."""
        for choice in range(count - 1):
            child = os.fork()
            if child == 0:
                return choice
            _, status = os.waitpid(child, 0)
            if status:
                os._exit(os.waitstatus_to_exitcode(status))
        return count - 1

    def step(self) -> Actor | None:
        """Let an actor act until it pauses: here, each that can."""
        if not self.is_exploring:
            return super().step()
        able = sorted((entry for entry in self._waiting if self._is_able(entry[2])), key=lambda entry: entry[2].name)
        if not self._shared.is_new(self._state()):
            os._exit(0)
        states = self._shared.count(0)
        if states % 1000 == 0:
            self._progress(self._shared.counts)
        if not able:
            return None
        dying = [entry for entry in able if entry[2].is_mortal] if self.crashes_left else []
        choice = self.choose(len(able) + len(dying))
        entry = (able + dying)[choice]
        self._waiting.remove(entry)
        self._ready.pop(entry[2], None)
        if choice >= len(able):
            self._doomed = entry[2]
            self.crashes_left -= 1
        self._shared.count(1)
        self.seconds += _TICK
        self.let_act(entry[2])
        return entry[2]

    def _is_able(self, actor: Actor) -> bool:
        ready = self._ready.get(actor)
        return ready is None or bool(ready())

    def fault(self, *faults: str) -> str:
        """Return each of the faults that may strike here, and none."""
        if not (self.is_exploring and self.faults_left and self.actor and self.actor.is_mortal):
            return ""
        choice = self.choose(len(faults) + 1)
        if choice == len(faults):
            return ""
        self.faults_left -= 1
        return faults[choice]

    def _state(self) -> bytes:
        waiting = sorted((entry[2] for entry in self._waiting), key=lambda actor: actor.name)
        actors = [(actor.name, actor.is_mortal, self._read.get(actor)) for actor in waiting]
        state = _text((self.state_of_world(), actors, self.seconds, self.crashes_left, self.faults_left))
        return _hash(_ranked(state).encode())

    def settle(self) -> None:
        """Stop exploring: from here on everything takes its time, and actors that never could act do not."""
        if not self._shared.is_new(_hash(b"the end", self._state())):
            os._exit(0)
        self._shared.count(2)
        self.is_exploring = False
        self._waiting.clear()


class _OneFault(Faults):
    """Strikes wherever the scheduler chooses to."""

    def strikes(self, *faults: str) -> str:
        """Return a fault of those that differ in what the shop knows and in what the gateway does."""
        assert isinstance(self.scheduler, Branching)
        distinct = [name for name in faults if name.endswith(("unreachable", ".lost_request", ".lost_response")) or "commit_" in name]
        return self.scheduler.fault(*distinct) if distinct else ""

    def dies(self, where: str) -> None:
        """Die between a commit and what waits for it; every other death is chosen where actors switch."""
        scheduler = self.scheduler
        assert isinstance(scheduler, Branching)
        actor = scheduler.actor
        if not (actor and actor.is_mortal and scheduler.is_exploring and scheduler.crashes_left):
            return
        if where == "after COMMIT" and connection.run_on_commit and scheduler.choose(2) == 0:
            scheduler.crashes_left -= 1
            raise actor.die(where)


class _SmallWorld(SimulatedWorld):
    """One order, and whoever has to do with it."""

    def __init__(self, shop: ShopDriver, scheduler: Branching, scope: Scope) -> None:
        super().__init__(shop, scheduler, _OneFault(scheduler, dict.fromkeys(KINDS, 0.0)))
        self._branching, self._scope = scheduler, scope
        scheduler.state_of_world = self._state

    def play(self) -> None:
        """Let everything happen."""
        scheduler, scope = self._branching, self._scope
        self.judge.begin()
        key = self.place_order(Decimal("12.50"), _STORY)
        scheduler.begin("shopper", lambda: self._shop_for(key))
        for number, vendor in enumerate(scope.vendors):
            scheduler.begin(
                f"payer by {vendor}", partial(self._pay, vendor, comes_back=number < scope.returns), ready=partial(self._pending, vendor)
            )
        for number in range(scope.sweeps):
            scheduler.begin(f"sweeper {number}", self._sweep)
        for number in range(scope.refunds):
            scheduler.begin(f"clerk {number}", self._refund, ready=Payment.objects.filter(status="paid").exists)
        scheduler.is_exploring = True
        while scheduler.step():
            self.judge.after_a_step()
            self._post()
        scheduler.settle()
        self.scheduler.spawn("sweeper", self.people.sweeper, story="sweeper")
        self.finish(_LONGEST_QUIET)

    def _post(self) -> None:
        if not self._branching.is_exploring:
            return super()._post()
        for attempt in self.service.due_notices(self.scheduler.seconds):
            vendor = self.service.find(attempt.transaction_no).vendor
            self._branching.begin(f"{attempt.notice_no} notice of {vendor}", partial(self.people.carry, attempt))
        return None

    def _shop_for(self, key: str) -> None:
        for vendor in self._scope.vendors:
            self.people.start(key, vendor, "default")

    def _pending(self, vendor: str) -> Transaction | None:
        return next((one for one in self.service.transactions() if one.vendor == vendor and one.status == "pending"), None)

    def _pay(self, vendor: str, *, comes_back: bool) -> None:
        there = self._pending(vendor)
        assert there
        way_back = self.service.decide(there.transaction_no, "pay")
        self.scheduler.tell(f"paid by {vendor}")
        self.scheduler.pause()
        if comes_back and way_back:
            self.people.visit("GET", way_back)

    def _sweep(self) -> None:
        self.scheduler.seconds += _UNTIL_DUE
        self.people.process("sweep", lambda: operations.sweep())  # noqa: PLW0108  # looked up anew, since a mutant may replace it

    def _refund(self) -> None:
        payment = Payment.objects.filter(status="paid").order_by("pk")[0]
        self.people.process("refund", lambda: operations.refund(payment.pk, payment.amount, person="clerk"))

    def _state(self) -> object:
        rows = []
        with connection.cursor() as cursor:
            for name in _tables():
                cursor.execute(f"SELECT * FROM {name}")  # noqa: S608  # the app's own names
                rows.append(cursor.fetchall())
        # No operation reads the timeline: what it holds counts, and not in which order it came.
        told = TimelineEntry.objects.order_by("order_id", "payment_id", "refund_id", "event", "cause")
        rows.append(list(told.values_list("order_id", "payment_id", "refund_id", "event", "cause")))
        return rows, self.service.transactions(), self.service.outbox, self.network.creations, self.network.refunds, self.judge.remembered


def _ranked(state: str) -> str:
    """Replace every instant by its minute and its place among the others."""
    instants = {text: _seconds(text) for text in set(_INSTANT.findall(state))}
    places = {second: f"{second // 60:.0f}#{place}" for place, second in enumerate(sorted(set(instants.values())))}
    return _INSTANT.sub(lambda found: places[instants[found[0]]], state)


def _seconds(text: str) -> float:
    seconds = float(text) if text.startswith("17") else datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    return round(seconds, 5)


@cache
def _tables() -> tuple[str, ...]:
    models = [model for model in apps.get_models() if not model.__module__.startswith("django.") and model is not TimelineEntry]
    return tuple(model._meta.db_table for model in models)


def _text(value: object) -> str:
    return json.dumps(value, default=str)


def _hash(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=_SIZE).digest()


def explore(shop: ShopDriver, scope: Scope, progress: Callable[[Counts], object] = lambda _: None, capacity: int = 1 << 24) -> Counts:
    """Explore everything in an emptied database; `capacity` states at most. Raises `Violated` when an invariant did not hold somewhere."""
    if connection.vendor != "sqlite":
        raise TypeError("only a database in this process's memory can be forked with it: use SQLite in memory")
    empty_tables()
    shared = _Shared(capacity)
    gc.collect()
    gc.freeze()
    gc.disable()  # it would touch, and so copy, the memory that the forked processes share
    try:
        child = os.fork()
        if child == 0:
            _explore_and_exit(shop, Branching(1, scope, shared, progress), scope)
        _, status = os.waitpid(child, 0)
    finally:
        gc.enable()
        gc.unfreeze()
    if status:
        raise Violated("see the trace above")
    return shared.counts


def _explore_and_exit(shop: ShopDriver, scheduler: Branching, scope: Scope) -> NoReturn:
    status = _VIOLATED
    try:
        world = _SmallWorld(shop, scheduler, scope)
        with world.in_place():
            world.play()
        status = 0
    except Violated as violated:
        sys.stdout.write("\n".join([line for _, line in scheduler.lines] + [str(violated), ""]))
    except BaseException:  # noqa: BLE001  # this process must end here, whatever happened
        sys.stdout.write("\n".join([line for _, line in scheduler.lines] + [""]))
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
