"""The scheduler: actors that take turns in one thread, a virtual clock, and chance that a seed
decides.

An actor is a greenlet. It goes on until it pauses, which it does only at calls of the network and
after commits: no lock is held there, by I12. The actor that wakes first goes on next; the length of
each pause comes from the stream of the actor's own story, so leaving other stories out changes
nothing in it. Nothing here reads a wall clock.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, TypeVar

from greenlet import getcurrent, greenlet

from tillgate.testing.crashes import Crash

__all__ = ["Actor", "Scheduler"]

_BEGINNING: Final = 1_767_225_600.0
"""The start of 2026, in seconds since 1970."""
_SWITCH_SECONDS: Final = 0.02
_T = TypeVar("_T")


class Actor:
    """One process of the world: a request of a shopper, a notification on its way, a worker, a
    member of the staff.
    """

    def __init__(self, name: str, story: str, chance: Random) -> None:
        self.name, self.story, self.chance = name, story, chance
        self.is_mortal = False
        """It acts as a process of the shop, which may be killed; shoppers and staff are not."""
        self.is_dead = False
        """The process has crashed: the clean-up at its end reaches neither the database nor the
        network.
        """
        self.path = ""
        """The path of the request from outside that it answers as a process of the shop: a
        notification, a return, the press of a button; or empty.
        """
        self.is_held = False
        """It acts without a pause: no other actor gets a turn, and the time that it waits passes
        immediately.
        """
        self.struck = 0
        """How many faults have struck it."""
        self.proof: tuple[str, int] | None = None
        """The refund, held to be refused, that it now knows was made, and how many faults had
        struck it before.
        """
        self.thread: greenlet

    def die(self, where: str) -> Crash:
        """Return the exception to raise at the instant of a crash."""
        self.is_dead = True
        return Crash(f"{self.name} died {where}")


class Scheduler:
    """The present actor, the time, and the events so far."""

    def __init__(self, seed: int) -> None:
        self.seconds = _BEGINNING
        self.seed = seed
        self.actor: Actor | None = None
        """The actor that acts now; None while the code inspects the world itself."""
        self._hub = getcurrent()
        self._waiting: list[tuple[float, int, Actor]] = []
        self._count = 0
        self._actors: dict[str, int] = {}
        self.lines: list[tuple[str, str]] = []
        """The events so far, a line each, and the story that each belongs to."""
        self._hash = hashlib.sha256()
        self.failure: BaseException | None = None

    # Time -----------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """Return the time, as the shop reads it."""
        return datetime.fromtimestamp(self.time(), UTC)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.seconds - _BEGINNING

    def time(self) -> float:
        """Return the time, as the shop reads it; replaces `time.time`."""
        return self.seconds

    def monotonic(self) -> float:
        """Return the time; replaces `time.monotonic`."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Replaces `time.sleep`."""
        self.pause(max(seconds, 0.0))

    # Actors ---------------------------------------------------------------------------------------

    def spawn(
        self,
        name: str,
        action: Callable[[], object],
        *,
        story: str,
        after: float = 0.0,
    ) -> Actor:
        """Begin an actor. An error that escapes it ends the world: acts handle the errors that they
        expect.
        """
        self._actors[name] = number = self._actors.get(name, 0) + 1
        # repeatable on purpose
        actor = Actor(
            name if number == 1 else f"{name}/{number}",
            story,
            Random(f"{self.seed}:{story}:{name}:{number}"),
        )

        def living() -> None:
            try:
                action()
            except Crash as crash:
                self.tell(str(crash))
            except BaseException as error:  # noqa: BLE001  # handed to the world's runner
                self.failure = self.failure or error

        actor.thread = greenlet(living, self._hub)
        self._wake(actor, after)
        return actor

    def _wake(self, actor: Actor, after: float) -> None:
        self._count += 1
        heapq.heappush(self._waiting, (self.seconds + after, self._count, actor))

    def pause(self, seconds: float | None = None) -> None:
        """Let others act, for so long or for a moment."""
        actor = self.actor
        if actor is None:
            return
        if actor.is_dead:
            raise Crash(f"{actor.name} is dead")
        if actor.is_held:
            self.seconds += seconds or 0.0
            return
        self._wake(actor, actor.chance.uniform(0, _SWITCH_SECONDS) if seconds is None else seconds)
        self._hub.switch()

    @contextmanager
    def in_one_go(self) -> Iterator[None]:
        """Let no other actor act during it: a request of Django's test client keeps its state in
        its thread, which all actors share.
        """
        actor = self.actor
        before = actor.is_held if actor else False
        if actor:
            actor.is_held = True
        try:
            yield
        finally:
            if actor:
                actor.is_held = before

    def next_at(self) -> float | None:
        """Return when the next actor wakes."""
        return self._waiting[0][0] if self._waiting else None

    def step(self) -> Actor | None:
        """Let the next actor act until it pauses, and return it; None when none waits."""
        if not self._waiting:
            return None
        at, _, actor = heapq.heappop(self._waiting)
        self.seconds = max(self.seconds, at)
        self.let_act(actor)
        return actor

    def let_act(self, actor: Actor) -> None:
        """Let an actor act until it pauses."""
        self.actor = actor
        try:
            actor.thread.switch()
        finally:
            self.actor = None
        if self.failure:
            raise self.failure

    def hear(self, read: Callable[[], _T]) -> _T:
        """Return the value that the actor reads; a subclass that must know all of an actor's
        knowledge listens.
        """
        return read()

    def hear_rows(self, cursor: Any, read: Callable[[Any], _T]) -> _T:
        """Return the rows that the actor reads of a statement."""
        return read(cursor)

    # The trace ------------------------------------------------------------------------------------

    def tell(self, what: str, story: str = "") -> None:
        """Write a line of the trace."""
        actor = self.actor
        line = f"{self.elapsed:14.3f}  {actor.name if actor else '-':<28}  {what}"
        self.lines.append((story or (actor.story if actor else ""), line))
        self._hash.update(line.encode())

    @property
    def digest(self) -> str:
        """The hash of everything that has happened."""
        return self._hash.hexdigest()
