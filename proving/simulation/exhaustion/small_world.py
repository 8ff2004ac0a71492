"""The world of an exhaustion: one order and the actors around it, in parts that can be replaced one
by one.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final, Generic, TypeVar
from zlib import crc32

from django.db import connection
from django.http import HttpResponseBase

from proving.simulation.exhaustion.rows import (
    canonical,
    columns_of,
    insert,
    models_by_table,
    select,
)
from proving.simulation.exhaustion.stepping import STORY, Known, Scope, Stepping, World
from proving.simulation.faults import KINDS, Faults
from proving.simulation.gateway import NamingOutbox
from proving.simulation.people import People
from proving.simulation.world import SimulatedWorld
from tillgate.django.models import Payment
from tillgate.django.refunds import queueing
from tillgate.django.worker.run import run_worker
from tillgate.sandbox.notifications import Notification, NotificationKind
from tillgate.sandbox.transactions import Transaction
from tillgate.testing.driver import ShopDriver

__all__ = ["GATEWAY", "REMEMBERED", "TIME", "Numbered", "SmallWorld", "always"]

_T = TypeVar("_T")
_Content = TypeVar("_Content")
_LONGEST_QUIET: Final = 40 * 86_400.0
_SHORTEST_REST: Final = 60.0
GATEWAY: Final = "the gateway"
REMEMBERED: Final = "the judge"
TIME: Final = "the time"
_BOOK: Final = (
    "faults",
    "outbox",
    "_transactions",
    "_by_reference",
    "_by_token",
    "_events",
    "_event_count",
)
_FRACTION: Final = re.compile(r"(20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d)\.\d+")
_MOMENTOUS: Final = ("id", "status")
"""The columns of a payment at whose changes the clock advances."""


class Numbered(Generic[_Content]):
    """The contents that a part of the world has had, by their numbers."""

    def __init__(self) -> None:
        self._contents: list[_Content] = []
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._contents)

    def __getitem__(self, number: int) -> _Content:
        return self._contents[number]

    def number(self, key: Hashable, content: Callable[[], _Content]) -> int:
        """Return the number of a content, which may be more than its key."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._contents)
            self._contents.append(content())
        return number


def always(_: World) -> bool:
    """Let an actor begin in any world."""
    return True


class _OneFault(Faults):
    """Strikes wherever the scheduler chooses to."""

    def strikes(self, *faults: str) -> str:
        """Return one of the faults that differ in the shop's knowledge and in the gateway's
        deeds.
        """
        assert isinstance(self.scheduler, Stepping)
        distinct = [
            name
            for name in faults
            if name.endswith(("unreachable", ".lost_request", ".lost_response"))
            or "commit_" in name
        ]
        return self.scheduler.fault(*distinct) if distinct else ""

    def dies(self, where: str) -> None:
        """Die between a commit and the code that waits for it; every other death is chosen where
        actors switch.
        """
        scheduler = self.scheduler
        assert isinstance(scheduler, Stepping)
        if where == "after COMMIT" and connection.run_on_commit and scheduler.may_die():
            assert scheduler.actor
            raise scheduler.actor.die(where)


class _People(People):
    """Forget the things that a process has heard once it is over."""

    def process(
        self,
        what: str,
        action: Callable[[], _T],
        *,
        is_drivers: bool = False,
    ) -> _T | None:
        result = super().process(what, action, is_drivers=is_drivers)
        scheduler = self._world.scheduler
        assert isinstance(scheduler, Stepping)
        # No caller here uses the result of an operation; the gateway hears a notification's answer.
        answer = (
            (result.status_code, getattr(result, "content", b""))
            if isinstance(result, HttpResponseBase)
            else ""
        )
        scheduler.forget(answer)
        return result


class _Outbox(NamingOutbox):
    """Numbers a notification by its content, and not by a count: no actor can tell which came
    first.
    """

    def put(
        self,
        kind: NotificationKind,
        transaction: Transaction,
        url: str,
        payload: Mapping[str, str],
        **more: Any,
    ) -> Notification:
        self.count = (
            crc32(f"{kind} {transaction.reference} {payload.get('refundTransactionNo')}".encode())
            - 1
        )
        notification = super().put(kind, transaction, url, payload, **more)
        self.count = 0
        return notification


class SmallWorld(SimulatedWorld):
    """One order, and the actors around it."""

    def __init__(self, shop: ShopDriver, scheduler: Stepping, scope: Scope) -> None:
        super().__init__(shop, scheduler, _OneFault(scheduler, dict.fromkeys(KINDS, 0.0)))
        self.people = _People(self)
        self.stepping, self._scope = scheduler, scope
        self.places = {
            name: place
            for place, name in enumerate((*models_by_table(), GATEWAY, REMEMBERED, TIME))
        }
        self.parts = [Numbered[Any]() for _ in self.places]
        self._loaded: list[int | None] = [None] * len(self.places)
        self._marks: dict[int, Any] = {}
        self._in_seconds: dict[tuple[int, int], int] = {}
        self._second_texts: dict[str, int] = {}
        self.service.outbox = _Outbox()
        self.owner = ()  # a mail changes nothing that an actor here reads
        self.network.throttle_seconds = 0.0  # when which query was sent is no part of these worlds
        handle = self.service.handle

        def handling(path: str, content_type: str, body: bytes) -> Any:
            scheduler.touched.add(GATEWAY)
            refunds = sum(len(one.refunds) for one in self.service.transactions())
            # numbers follow from the request, and not from earlier ones
            self.service._numbers.seed(f"{path} {body!r} {refunds}")
            return handle(path, content_type, body)

        answered = self.service.notification_answered

        def answering(*arguments: Any) -> None:
            scheduler.touched.add(GATEWAY)
            scheduler.say(lambda: answered(*arguments))

        self.service.handle = handling  # type: ignore[method-assign]  # the same, and noted
        # as well
        self.service.notification_answered = answering  # type: ignore[assignment, method-assign]

    # Actors ---------------------------------------------------------------------------------------

    def actors(self) -> list[Known]:
        """Place the order, and return the actors around it."""
        key = self.place_order(Decimal("12.50"), STORY)
        scope = self._scope
        actors = [Known("shopper", lambda: self._shop_for(key), always)]
        for number, method in enumerate(scope.methods):
            action = partial(self._pay, method, comes_back=number < scope.returns)
            actors.append(Known(f"payer by {method}", action, partial(self._is_pending, method)))
        actors += [
            Known(f"clerk {number}", self._refund, self._is_paid) for number in range(scope.refunds)
        ]
        return actors

    def _is_pending(self, method: str, world: World) -> bool:
        place = self.places[GATEWAY]
        return method in self.parts[place][world[place]][1]

    def _is_paid(self, world: World) -> bool:
        place, at = (
            self.places[Payment._meta.db_table],
            columns_of(Payment._meta.db_table).index("status"),
        )
        return any(row[at] == "paid" for row in self.parts[place][world[place]])

    def _shop_for(self, key: str) -> None:
        for method in self._scope.methods:
            self.people.start(key, method, "default")

    def _pay(self, method: str, *, comes_back: bool) -> None:
        def pay() -> str | None:
            self.stepping.touched.add(GATEWAY)
            there = next(
                one
                for one in self.service.transactions()
                if one.vendor == method and one.status == "pending"
            )
            return self.service.decide(there.transaction_no, "pay")

        way_back = self.stepping.hear(pay)
        self.scheduler.tell(f"paid by {method}")
        self.scheduler.pause()
        if comes_back and way_back:
            self.people.visit("GET", way_back)

    def _refund(self) -> None:
        payment = Payment.objects.filter(status="paid").order_by("pk")[0]
        self.people.process(
            "refund",
            lambda: queueing.refund(payment.pk, payment.amount, staff="clerk"),
        )

    def _carry(self, attempt: Any) -> None:
        self.people.carry(attempt)
        self.stepping.touched.add(GATEWAY)

    def begun(self) -> list[Known]:
        """Return the actors that begin because the gateway sends a notification."""
        begun = []
        for attempt in self.service.due_notifications(self.scheduler.seconds):
            method = self.service.find(attempt.transaction_no).vendor
            # with its content
            name = (
                f"{attempt.kind} notification of {method}, {attempt.attempt_no} "
                f"({crc32(repr(attempt).encode()):08x})"
            )
            begun.append(Known(name, partial(self._carry, attempt), always))
        return begun

    # The world ------------------------------------------------------------------------------------

    def number(self, name: str) -> int:
        """Return the number of a part's present content."""
        place = self.places[name]
        part = self.parts[place]
        if name == GATEWAY:
            number = part.number(self._told_of_gateway(), self._gateway)
        elif name == REMEMBERED:
            remembered = self.judge.remembered
            number = part.number(remembered, lambda: remembered)
        elif name == TIME:
            instant = self.scheduler.seconds, self.stepping.ticks
            number = part.number(instant, lambda: instant)
        else:
            rows = connection.connection.execute(select(name)).fetchall()
            kept = canonical(name, rows)
            number = part.number(kept, lambda: kept)
            self._loaded[place] = number if tuple(rows) == kept else None
            return number
        self._loaded[place] = number
        return number

    def _told_of_gateway(self) -> str:
        service, network = self.service, self.network
        events = [
            (at, what, one.transaction_no)
            for at, _, what, one in sorted(service._events, key=lambda event: event[:2])
        ]
        transactions = sorted(service._transactions.values(), key=lambda one: one.reference)
        outbox = (
            sorted(service.outbox._waiting, key=lambda waiting: waiting[:2]),
            sorted(service.outbox._sending.items()),
        )
        sent = sorted(network.creations.items()), sorted(network.refunds.items())
        return repr((transactions, outbox, events, sent))

    def _gateway(self) -> tuple[bytes, frozenset[str]]:
        service, network = self.service, self.network
        pending = frozenset(
            one.vendor for one in service._transactions.values() if one.status == "pending"
        )
        kept = {name: getattr(service, name) for name in _BOOK}
        return pickle.dumps((kept, network.creations, network.refunds)), pending

    def take_out(self, names: Iterable[str]) -> None:
        """Take note that parts may hold something else than was put there."""
        for name in names:
            self._loaded[self.places[name]] = None

    def put(self, world: World) -> None:
        """Put a world in place."""
        database, is_open = connection.connection, False
        self._loaded[self.places[TIME]] = None  # an actor that hears everything again waits again
        for (name, place), number in zip(self.places.items(), world, strict=True):
            if self._loaded[place] == number:
                continue
            content = self.parts[place][number]
            self._loaded[place] = number
            if name == GATEWAY:
                # our own
                kept, self.network.creations, self.network.refunds = pickle.loads(content[0])
                vars(self.service).update(kept)
            elif name == REMEMBERED:
                self.judge.remembered = content
            elif name == TIME:
                self.scheduler.seconds, self.stepping.ticks = content
            else:
                if not is_open:
                    database.execute("BEGIN")
                    is_open = True
                database.execute(f"DELETE FROM {name}")  # the apps' own names
                if content:
                    database.executemany(insert(name), content)
                last = content[-1][0] if content and isinstance(content[-1][0], int) else 0
                database.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (last, name))
        if is_open:
            database.execute("COMMIT")

    def is_momentous(self, before: World, after: World) -> bool:
        """Tell whether a step has made a change that lets the clock advance."""
        at = self.places[Payment._meta.db_table]
        return before[at] != after[at] and self._mark(before[at]) != self._mark(after[at])

    def _mark(self, number: int) -> Any:
        mark = self._marks.get(number)
        if mark is None:
            table = Payment._meta.db_table
            columns = [columns_of(table).index(name) for name in _MOMENTOUS]
            rows = self.parts[self.places[table]][number]
            mark = self._marks[number] = [[row[at] for at in columns] for row in rows]
        return mark

    def in_seconds(self, world: World) -> tuple[int, ...]:
        """Return a key that distinguishes worlds in which no actor acts any more: of all instants
        the whole seconds.

        Every later query is later than any change. Two payments that are due in one second may be
        polled in either order; the key does not distinguish these.
        """
        key = []
        for name, place in self.places.items():
            content = self.parts[place][world[place]]
            if name == TIME:
                key.append(int(content[0]))
            elif name in (GATEWAY, REMEMBERED):
                key.append(world[place])
            else:
                number = self._in_seconds.get((place, world[place]))
                if number is None:
                    text = _FRACTION.sub(r"\1", repr(content))
                    number = self._in_seconds[place, world[place]] = self._second_texts.setdefault(
                        text,
                        len(self._second_texts),
                    )
                key.append(number)
        return tuple(key)

    def judge_all(self, world: World) -> int:
        """Judge a world, and return the number of the judge's memory afterwards."""
        self.put(world)
        self.judge.everything()
        return self.number(REMEMBERED)

    def _worker_until_quiet(self) -> None:
        """Run the worker whenever something is due, less and less often for work that has no
        effect.
        """
        end, vain = self.scheduler.seconds + _LONGEST_QUIET, 0
        while self.scheduler.seconds < end:
            work_done = self.people.process("worker", run_worker)
            due = self.people._next_due()
            if due is None:
                return
            vain = 0 if work_done and work_done.work else vain + 1
            self.scheduler.pause(
                max((due - self.scheduler.now()).total_seconds(), _SHORTEST_REST * 2**vain),
            )

    def end(self, world: World) -> None:
        """Let everything come to rest, and judge it. Actors that never could act do not."""
        self.put(world)
        stepping = self.stepping
        stepping.is_exploring = False
        stepping.lines.clear()
        stepping._actors.clear()
        self.judge.begin()
        stepping.spawn("worker", self._worker_until_quiet, story="worker")
        self.finish(_LONGEST_QUIET)
        stepping.abandon_waiting()
        stepping.is_exploring, self.is_quiet, self.faults.is_calm = True, False, False
        self._loaded = [None] * len(self.places)
