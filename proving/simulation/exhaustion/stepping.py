"""One actor, again and again: it hears everything again to return to its place, then acts until it
pauses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from django.db import connection
from greenlet import GreenletExit

from proving.simulation.exhaustion.rows import OUTBOX_EVENTS, tables_in
from proving.simulation.exhaustion.scripts import Script
from proving.simulation.exhaustion.unread import without_unread
from proving.simulation.scheduler import Actor, Scheduler
from tillgate.testing.crashes import Crash

__all__ = ["STORY", "Known", "Scope", "Stepping", "World"]

_T = TypeVar("_T")
STORY: Final = "0"
_TICK: Final = 10e-6
_TO_THE_TICK: Final = "tillgate.django.payments."
"""Begins the names of the modules that note when the gateway was asked, or when a payment came to
its status.
"""
_EVENT_ID_BITS: Final = 128
_MOST_STANDING: Final = 5000
World = tuple[int, ...]
"""The numbers of the contents of its parts."""
_Heard = tuple[str, Any]
_PAUSED: Final = ("paused", None)
_DIED: Final = ("died", None)


@dataclass(frozen=True)
class Scope:
    """How much can happen; at most two payments."""

    payments: int = 2
    refunds: int = 1
    returns: int = 0
    crashes: int = 1
    faults: int = 1
    dying: str = ""
    """The actor whose process may die, if only one may; one of `mortals`."""
    failing: str = ""
    """The actor that may meet a fault, if only one may."""

    @property
    def mortals(self) -> tuple[str, ...]:
        """The actors that have processes."""
        notifications = tuple(f"payment notification of {method}" for method in self.methods)
        refunding = ("clerk", "refund notification") if self.refunds else ()
        return (
            "shopper",
            *notifications,
            *refunding,
            *(("payer",) if self.returns else ()),
        )

    @property
    def parts(self) -> tuple[Scope, ...]:
        """The scopes by the actor that dies and the actor that meets a fault, which make up this
        one together; itself if more than one process or fault may.
        """
        if max(self.crashes, self.faults) > 1:
            return (self,)
        dying = self.mortals if self.crashes else ("",)
        failing = self.mortals if self.faults else ("",)
        return tuple(
            replace(self, dying=dies, failing=fails) for dies in dying for fails in failing
        )

    @property
    def name(self) -> str:
        """The text that names a part."""
        return (
            ", ".join(
                filter(
                    None,
                    (self.dying and f"{self.dying} dies", self.failing and f"{self.failing} fails"),
                ),
            )
            or "all"
        )

    def check(self, name: str) -> None:
        """Raise when an actor has a process and is in no part."""
        if not name.startswith(self.mortals):
            raise ValueError(f"{name} has a process, and is none of {', '.join(self.mortals)}")

    @property
    def methods(self) -> tuple[str, ...]:
        """The payment methods of the shopper, one after the other."""
        return ("paypal", "alipay")[: self.payments]


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
    """Lets one actor act from one pause to the next, after it has heard everything before again."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(1)
        self.seconds += 30.5
        self.ticks = 0
        self.is_exploring = False
        self.told: list[_Heard] = []
        """The things that the actor has heard in this step."""
        self.touched: set[str] = set()
        """The parts of the world that this step depends on."""
        self.choices: list[tuple[str, int]] = []
        """Where it might have gone another way in this step: the kind that each choice would have
        used up, and how many ways there were.
        """
        self._scope = scope
        self._past: tuple[_Heard, ...] = ()
        self._place = 0
        self._plan: tuple[int, ...] = ()
        self._is_doomed = False
        self._standing: dict[bytes, Actor] = {}
        """Actors at the pauses at which their steps ended, by where they stand: one that goes on
        from there need not start again.
        """
        self.is_mortal = False
        self.script = Script()
        """The actor's dialogue with the database in this step."""

    # Hearing --------------------------------------------------------------------------------------

    @property
    def _is_again(self) -> bool:
        return self._place < len(self._past)

    def _again(self, kind: str) -> Any:
        was, what = self._past[self._place]
        if was != kind:
            raise RuntimeError(
                f"an actor that was told the same did not do the same: it wanted {kind}, and had "
                f"{was}",
            )
        self._place += 1
        return what

    def hear(self, read: Callable[[], _T]) -> _T:
        """Return the value that the actor reads, or read it to the actor again."""
        is_new = self._is_acting
        heard = self._hear(read)
        if is_new:
            self.script.ask(lambda _: read(), heard)
        return heard

    def say(self, action: Callable[[], object]) -> None:
        """Let the actor do something without an answer."""
        action()
        if self._is_acting:
            self.script.say(action)

    def hear_rows(self, cursor: Any, read: Callable[[Any], _T]) -> _T:
        """Return the rows that the actor reads of a statement, or read them to it again."""
        if not self._is_acting:
            return self._hear(lambda: read(cursor))
        assert self.actor
        name, (script, statement, sql) = self.actor.name, cursor.noted

        def rows(cursor: Any) -> Any:
            return without_unread(name, sql, read(cursor))

        heard: _T = self._hear(lambda: rows(cursor))
        if script is self.script:
            script.ask(lambda cursors: rows(cursors[statement]), heard)
        else:
            self.script.is_whole = False  # an earlier step's statement, which this one reads on
        return heard

    @property
    def _is_acting(self) -> bool:
        """Whether an actor acts, and is not hearing the past again."""
        return self.is_exploring and self.actor is not None and not self._is_again

    def _hear(self, read: Callable[[], _T]) -> _T:
        if not self.is_exploring or self.actor is None:
            return read()
        if self._is_again:
            return self._again("heard")  # type: ignore[no-any-return]
        heard = read()
        self.told.append(("heard", heard))
        return heard

    def hear_end(self, how: str) -> None:
        """Take note of a commit or a rollback."""
        if self._is_acting:
            self.script.end(how)

    def executing(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        """Stand between the actor and the database."""
        if not self.is_exploring or self.actor is None:
            return execute(sql, *rest)
        if self._is_again:
            if self._past[self._place][0] == "failed":
                raise self._again("failed")
            return None
        self.touched.update(tables_in(sql))
        params, _, context = rest
        context["cursor"].cursor.noted = self.script, self.script.execute(sql, params), sql
        try:
            return execute(sql, *rest)
        except Exception as error:
            self.script.is_whole = False
            self.told.append(("failed", error))
            raise

    def now(self) -> datetime:
        """Return the time, as the shop reads it: to the tick if it is compared so, and to the
        second otherwise.
        """
        asking = sys._getframe(1).f_globals["__name__"]
        is_close = asking.startswith(_TO_THE_TICK)
        ticks = self.ticks + (0.5 if connection.in_atomic_block else 0.0) if is_close else 0.0
        return self._hear(lambda: datetime.fromtimestamp(self.seconds + ticks * _TICK, UTC))

    def monotonic(self) -> float:
        """Return the time; replaces `time.monotonic`."""
        return self._hear(lambda: self.seconds)

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
            self.touched.add(OUTBOX_EVENTS)
            # our own name
            return (
                int(
                    connection.connection.execute(
                        f"SELECT COUNT(*) FROM {OUTBOX_EVENTS}",
                    ).fetchone()[0],
                )
                + 1
            )

        return self.hear(count)

    # Choices --------------------------------------------------------------------------------------

    def choose(self, kind: str, ways: int) -> int:
        """Return which way to go; the last is the ordinary one, and every other uses up one crash
        or fault of a kind.
        """
        if self._is_again:
            return int(self._again("chose"))
        assert self.actor
        self._scope.check(self.actor.name)
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

    def play(
        self,
        known: Known,
        put: Callable[[], object],
        *,
        plan: tuple[int, ...] = (),
        dies: bool = False,
    ) -> bool:
        """Bring an actor to where it stood, put the world in place, and let it act; return whether
        it has more to do.
        """
        self._plan, self.choices, self.told, self.touched = plan, [], [], set()
        self.script = Script()
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
        if self.is_mortal:
            self._scope.check(actor.name)
        identity = known._replace(heard=(*known.heard, *self.told)).identity
        if identity in self._standing:
            self._abandon(actor)
        else:
            self._standing[identity] = actor
            if len(self._standing) > _MOST_STANDING:
                self._abandon(self._standing.pop(next(iter(self._standing))))
        return True

    def _begin_anew(self, known: Known) -> Actor:
        """Return an actor that has heard everything again, and stands where it stood."""
        self._past, self._place, self._is_doomed = known.heard, 0, False
        self._actors.clear()
        actor = self.spawn(known.name, known.action, story=STORY)
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
        """Let go of the actors that wait for a later time."""
        for _, _, actor in self._waiting:
            self._abandon(actor)
        self._waiting.clear()

    def _abandon(self, actor: Actor) -> None:
        """Let go of an actor at its pause: nothing that its end sets off reaches anything."""
        actor.is_dead, self.actor = True, actor
        told, self.told = self.told, []  # it may look at the clock once more
        try:
            actor.thread.throw(GreenletExit)
        finally:
            self.actor, self.failure, self.told = None, None, told


class Known(NamedTuple):
    """Where an actor stands: its act, when it can, and all that it has heard since it began."""

    name: str
    action: Callable[[], object]
    is_ready: Callable[[World], bool]
    heard: tuple[_Heard, ...] = ()
    is_mortal: bool = False

    @property
    def identity(self) -> bytes:
        """Its place as a key: all that it heard since its last process was over, and how many
        were.
        """
        overs = [place for place, (kind, _) in enumerate(self.heard) if kind == "over"]
        since = self.heard[overs[-1] :] if overs else self.heard
        return blake2b(repr((self.name, len(overs), since)).encode(), digest_size=16).digest()
