"""The exploration: every state that can come about."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from django.db import connection

from proving.simulation.exhaustion.found import Found, Stand
from proving.simulation.exhaustion.scripts import hearing_the_end_of_transactions
from proving.simulation.exhaustion.small_world import Numbered, SmallWorld
from proving.simulation.exhaustion.stepping import Scope, Stepping
from proving.simulation.exhaustion.steps import GONE, Counts, Steps, keep_all
from proving.simulation.exhaustion.unread import keeping
from proving.simulation.network import Violated
from proving.simulation.stand_ins import in_place
from proving.simulation.world import empty_tables
from tillgate.testing.driver import ShopDriver

__all__ = ["Counts", "Exploration", "explore"]

_PROGRESS_EVERY: Final = 100


class _State(NamedTuple):
    """A world, the places where each actor may stand, and the crashes and faults left."""

    world: int
    crashes: int
    faults: int
    actors: tuple[int, ...]


class _Node(NamedTuple):
    """A state, and how it came about."""

    state: _State
    lines: tuple[str, ...]
    before: _Node | None


class Exploration:
    """Finds every state."""

    def __init__(
        self,
        small: SmallWorld,
        scope: Scope,
        progress: Callable[[Counts], object],
    ) -> None:
        self.small, self.scope, self.progress, self.counts = small, scope, progress, Counts()
        self._steps = Steps(small, scope)
        self._first: tuple[int, list[int]] | None = None
        """The world in which everything begins, and the actors that begin."""
        self._ended: set[tuple[int, ...]] = set()
        self._begin_part()

    def _begin_part(self) -> None:
        """Forget all but the outcomes of steps and the ends of worlds: the rest belongs to one
        part, and fills the memory.
        """
        self._sets = Numbered[frozenset[int]]()
        self._gone = self._set(frozenset([GONE]))
        self._closures: dict[tuple[int, int], int] = {}
        self._changing: dict[tuple[int, int, int, int], list[tuple[_State, tuple[str, ...]]]] = {}
        self._found: dict[int, Found] = {}

    def _set(self, actors: frozenset[int]) -> int:
        return self._sets.number(actors, lambda: actors)

    # Sets of where an actor may stand -------------------------------------------------------------

    def _closure(self, world: int, number: int) -> int:
        """Return where an actor may stand after any steps that change nothing."""
        closure = self._closures.get((world, number))
        if closure is None:
            found, new = set(self._sets[number]), list(self._sets[number])
            while new:
                for move in self._steps.moves_of(world, new.pop(), 0, 0):
                    if move.world == world and not move.begun and move.actor not in found:
                        found.add(move.actor)
                        new.append(move.actor)
            closure = self._closures[world, number] = self._set(frozenset(found))
        return closure

    def _changes(
        self,
        world: int,
        number: int,
        crashes: int,
        faults: int,
    ) -> list[tuple[_State, tuple[str, ...]]]:
        """Return the steps of an actor that change something; those that change the same are
        one.
        """
        key = (world, number, crashes, faults)
        changes = self._changing.get(key)
        if changes is None:
            grouped: dict[tuple[Any, ...], set[int]] = {}
            lines: dict[tuple[Any, ...], tuple[str, ...]] = {}
            for actor in self._sets[number]:
                for move in self._steps.moves_of(world, actor, crashes, faults):
                    if move[:4] != (world, (), crashes, faults):
                        grouped.setdefault(move[:4], set()).add(move.actor)
                        lines.setdefault(move[:4], move.lines)
            changes = self._changing[key] = []
            for (reached, begun, crashes_left, faults_left), actors in grouped.items():
                sets = [
                    self._set(frozenset(actors)),
                    *(self._set(frozenset([one])) for one in begun),
                ]
                closed = tuple(self._closure(reached, one) for one in sets)
                changes.append(
                    (
                        _State(reached, crashes_left, faults_left, closed),
                        lines[reached, begun, crashes_left, faults_left],
                    ),
                )
        return changes

    # States ---------------------------------------------------------------------------------------

    def part(self, scope: Scope) -> Counts:
        """Explore a part of the scope, and return its counts; outcomes of steps from earlier parts
        stay known.
        """
        self.scope, self.counts = scope, self._steps.begin(scope)
        self._begin_part()
        self._run()
        return self.counts

    def _begin(self) -> _State:
        """Return the state in which everything begins."""
        if self._first is None:
            small = self.small
            small.judge.begin()
            known = small.actors()
            small.stepping.is_exploring = True
            world = self._steps.world(tuple(small.number(name) for name in small.places))
            self._first = world, [self._steps.actor(one) for one in known]
        world, actors = self._first
        closures = [self._closure(world, self._set(frozenset([one]))) for one in actors]
        return _State(world, self.scope.crashes, self.scope.faults, tuple(sorted(closures)))

    def _run(self) -> None:
        """Find every state: those first in which most may still happen, and of these those that
        fewest changes have led to.
        """
        begin = _Node(self._begin(), (), None)
        most = self.scope.crashes + self.scope.faults
        waiting: list[dict[int, list[_Node]]] = [{} for _ in range(most + 1)]
        waiting[most][0] = [begin]
        for left in range(most, -1, -1):
            while waiting[left]:
                changes = min(waiting[left])
                for node in self._new(waiting[left].pop(changes)):
                    self.counts.states += 1
                    if self.counts.states % _PROGRESS_EVERY == 0:
                        self.progress(self.counts)
                    try:
                        for state, lines in self._after(node.state):
                            self.counts.steps += 1
                            waiting[state.crashes + state.faults].setdefault(
                                changes + 1,
                                [],
                            ).append(_Node(state, lines, node))
                    except Exception:
                        self._print(node)
                        raise

    def _new(self, nodes: list[_Node]) -> Iterator[_Node]:
        """Return the nodes that are in no state found so far; join those that differ only in where
        one actor may stand.
        """
        alike: dict[_State, list[_Node]] = {}
        for node in nodes:
            alike.setdefault(node.state._replace(actors=()), []).append(node)
        for state, of_world in alike.items():
            found = self._found.setdefault(state.world, Found(self._sets, self._gone))
            stands = {self._stand(node.state): node for node in of_world}
            for stand, node in self._joined(stands).items():
                if found.is_new(state.crashes, state.faults, stand):
                    yield node._replace(
                        state=state._replace(actors=tuple(number for _, number in stand)),
                    )

    def _joined(self, stands: dict[Stand, _Node]) -> dict[Stand, _Node]:
        """Join nodes that differ in where one actor may stand: everything that follows from either
        follows from both together, and nothing else does.
        """
        before = 0
        while len(stands) != before:
            before = len(stands)
            for name in sorted({name for stand in stands for name, _ in stand}):
                others: dict[Stand, tuple[set[int], _Node]] = {}
                for stand, node in stands.items():
                    rest = tuple(one for one in stand if one[0] != name)
                    where = self._sets[dict(stand).get(name, self._gone)]
                    others.setdefault(rest, (set(), node))[0].update(where)
                stands = {
                    tuple(sorted((*rest, (name, self._set(frozenset(where))))))
                    if where != {GONE}
                    else rest: node
                    for rest, (where, node) in others.items()
                }
        return stands

    def _stand(self, state: _State) -> Stand:
        """Return where each actor may stand; an absent actor has nothing more to do."""
        return tuple(sorted((self._name(one), one) for one in state.actors))

    def _name(self, number: int) -> str:
        """Return the name of the actor to which a set of places belongs."""
        return next(self._steps.actors[one].name for one in self._sets[number] if one != GONE)

    def _after(self, state: _State) -> Iterator[tuple[_State, tuple[str, ...]]]:
        world, crashes, faults, actors = state
        for place, actor in enumerate(actors):
            for change, lines in self._changes(world, actor, crashes, faults):
                others = actors[:place] + actors[place + 1 :]
                if change.world != world:
                    others = tuple([self._closure(change.world, one) for one in others])
                both = sorted([one for one in (*others, *change.actors) if one != self._gone])
                yield _State(change.world, change.crashes, change.faults, tuple(both)), lines
        if all(self._may_rest(world, actor) for actor in actors):
            self._end(world)

    def _may_rest(self, world: int, number: int) -> bool:
        """Tell whether an actor may have nothing to do."""
        return any(
            one == GONE or not self._steps.actors[one].is_ready(self._steps.worlds[world])
            for one in self._sets[number]
        )

    def _end(self, number: int) -> None:
        self.counts.ends += 1
        key = self.small.in_seconds(self._steps.worlds[number])
        if key not in self._ended:
            self._ended.add(key)
            self.counts.ended += 1
            self.small.end(self._steps.worlds[number])

    def _print(self, node: _Node | None) -> None:
        told = [f"{line}\n" for _, line in self.small.stepping.lines]
        while node:
            told[:0] = [f"{line}\n" for line in node.lines]
            node = node.before
        sys.stdout.write("".join(told))
        sys.stdout.flush()


def explore(
    shop: ShopDriver,
    parts: Sequence[Scope],
    progress: Callable[[Counts], object] = lambda _: None,
) -> Iterator[Counts]:
    """Explore parts of one scope in an emptied database, one after the other, and yield the counts
    of each.

    Raises `Violated` when an invariant did not hold somewhere.
    """
    if connection.vendor != "sqlite":
        raise TypeError("only SQLite's rows are put back as quickly as it takes here")
    empty_tables()
    stepping = Stepping(parts[0])
    small = SmallWorld(shop, stepping, parts[0])
    exploration = Exploration(small, parts[0], progress)
    keep_all()
    gc.disable()
    with in_place(small), keeping(), hearing_the_end_of_transactions(stepping.hear_end):
        connection.execute_wrappers.append(stepping.executing)
        try:
            for part in parts:
                yield exploration.part(part)
        except Violated as violated:
            sys.stdout.write(f"{violated}\n")
            raise
        finally:
            stepping.abandon_all()
            connection.execute_wrappers.remove(stepping.executing)
            gc.unfreeze()
            gc.enable()
