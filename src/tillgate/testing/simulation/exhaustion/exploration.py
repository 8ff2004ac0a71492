"""The exploration: every state that can come about, each step played once for all that it touches."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.db import connection

from tillgate.django.models import Attention, Heartbeat, Notice
from tillgate.testing.driver import ShopDriver
from tillgate.testing.simulation.exhaustion.scripts import Scripts, hearing_the_end_of_transactions
from tillgate.testing.simulation.exhaustion.small_world import GATEWAY, REMEMBERED, TIME, Numbered, SmallWorld, always
from tillgate.testing.simulation.exhaustion.stepping import Known, Scope, Stepping, World
from tillgate.testing.simulation.exhaustion.unread import keeping
from tillgate.testing.simulation.network import Violated
from tillgate.testing.simulation.stand_ins import in_place
from tillgate.testing.simulation.world import empty_tables

__all__ = ["Counts", "Exploration", "explore"]

_PROGRESS_EVERY: Final = 100
_COLLECTED_EVERY: Final = 200
"""Of the steps that are played; nothing else leaves garbage."""


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
    followed: int = 0
    """Steps that came to the same as one that was played by another way, since the actor heard the same."""
    judged: int = 0
    ended: int = 0
    """Worlds that were let come to rest."""


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


class _Node(NamedTuple):
    """A state, and how it came about."""

    state: _State
    lines: tuple[str, ...]
    before: _Node | None


_Stand = tuple[tuple[str, int], ...]
"""The set of where each actor may stand."""
_GONE: Final = -1
"""Where an actor stands that has nothing more to do."""


class _Found(NamedTuple):
    """What tells whether a state is in this one of the same world."""

    crashes: int
    faults: int
    places: int
    """Where actors may stand, a bit for each place."""
    stayers: int
    """Who has more to do for sure, a bit for each."""

    def includes(self, other: _Found) -> bool:
        """Tell whether as much may still happen, and everybody may stand where the others may; who is not there has nothing more to do."""
        return (
            self.crashes >= other.crashes
            and self.faults >= other.faults
            and not other.places & ~self.places
            and not self.stayers & ~other.stayers
        )


class Exploration:
    """Finds every state."""

    def __init__(self, small: SmallWorld, scope: Scope, progress: Callable[[Counts], object]) -> None:
        self.small, self.scope, self.progress, self.counts = small, scope, progress, Counts()
        self._first: _State | None = None
        self._worlds, self._actors, self._sets = Numbered[World](), Numbered[Known](), Numbered[frozenset[int]]()
        self._played: dict[tuple[int, bool, tuple[int, ...]], dict[tuple[int, ...], dict[tuple[int, ...], _Outcome]]] = {}
        self._scripts: dict[tuple[Any, ...], Scripts[tuple[_Outcome, Collection[str]]]] = {}
        self._time = small.places[TIME]
        self._moves: dict[tuple[int, int, int, int], list[_Move]] = {}
        self._reached: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._closures: dict[tuple[int, int], int] = {}
        self._changing: dict[tuple[int, int, int, int], list[tuple[_State, tuple[str, ...]]]] = {}
        self._judged: dict[World, int] = {}
        self._gone = self._set(frozenset([_GONE]))
        self._found: dict[int, list[_Found]] = {}
        self._bits: dict[int, dict[int | str, int]] = {}
        self._ended: set[tuple[int, ...]] = set()
        unjudged = [model._meta.db_table for model in (Notice, Attention, Heartbeat)] + [TIME]
        self._judged_places = [at for name, at in small.places.items() if name not in unjudged]

    def _world(self, world: World) -> int:
        number = self._worlds.number(world, lambda: world)
        self.counts.worlds = len(self._worlds)
        return number

    def _actor(self, known: Known) -> int:
        number = self._actors.number(known.identity, lambda: known)
        self.counts.places = len(self._actors)
        return number

    def _set(self, actors: frozenset[int]) -> int:
        return self._sets.number(actors, lambda: actors)

    # Steps --------------------------------------------------------------------------------------------------------------------------------

    def _step(self, world: World, actor: int, plan: tuple[int, ...], *, dies: bool) -> _Outcome:
        known = self._played.setdefault((actor, dies, plan), {})
        for places, outcomes in known.items():
            if outcome := outcomes.get(tuple(world[at] for at in places)):
                return outcome
        key = (actor, dies, plan, world[self._time])
        outcome, places = self._follow(world, key) or self._play(world, actor, plan, dies=dies)
        known.setdefault(places, {})[tuple(world[at] for at in places)] = outcome
        return outcome

    def _play(self, world: World, actor: int, plan: tuple[int, ...], *, dies: bool) -> tuple[_Outcome, tuple[int, ...]]:
        self.counts.played += 1
        if self.counts.played % _COLLECTED_EVERY == 0:
            _keep_all()
        small, stepping, known = self.small, self.small.stepping, self._actors[actor]
        stepping.is_exploring = True
        has_more = stepping.play(known, lambda: small.put(world), plan=plan, dies=dies)
        changes, begun, places = self._came_of(world, stepping.touched)
        stands = (
            self._actor(known._replace(heard=(*known.heard, *stepping.told), is_mortal=stepping.is_mortal, is_ready=always))
            if has_more
            else None
        )
        lines = tuple(line for _, line in stepping.lines)
        outcome = _Outcome(changes, stands, begun, tuple(stepping.choices), lines)
        if stepping.script.is_whole:
            key = (actor, dies, plan, world[self._time])
            self._scripts.setdefault(key, Scripts()).add(stepping.script, (outcome, stepping.touched), stepping.touched)
        return outcome, places

    def _follow(self, world: World, key: tuple[Any, ...]) -> tuple[_Outcome, tuple[int, ...]] | None:
        """Return what comes of a step by its script, if the actor would hear what it has heard in such a step before."""
        scripts = self._scripts.get(key)
        if scripts is None:
            return None
        self.small.put(world)
        played = scripts.follow()
        if played is None:
            self.small.take_out(scripts.touched)
            return None
        self.counts.followed += 1
        outcome, touched = played
        changes, begun, places = self._came_of(world, touched)
        return outcome._replace(changes=changes, begun=begun), places

    def _came_of(self, world: World, touched: Collection[str]) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...], tuple[int, ...]]:
        """Return which parts of a world a step has changed that touched some, who has begun, and the places of what it depends on."""
        small, after = self.small, list(world)
        begun = tuple(map(self._actor, small.begun())) if GATEWAY in touched else ()
        for name in touched:
            if name != TIME:
                after[small.places[name]] = small.number(name)
        if small.is_momentous(world, tuple(after)):
            small.stepping.ticks += 1
        after[self._time] = small.number(TIME)
        places = tuple(sorted({small.places[name] for name in (*touched, TIME)}))
        return tuple((at, after[at]) for at in places if after[at] != world[at]), begun, places

    def _after_changes(self, number: int, changes: tuple[tuple[int, int], ...]) -> int:
        """Return the world that changes make of a world, judged."""
        reached = self._reached.get((number, changes))
        if reached is None:
            after = list(self._worlds[number])
            for at, content in changes:
                after[at] = content
            reached = self._reached[number, changes] = self._world(self._judge(tuple(after)))
        return reached

    def _judge(self, world: World) -> World:
        key = tuple(world[at] for at in self._judged_places)
        remembered = self._judged.get(key)
        if remembered is None:
            self.counts.judged += 1
            remembered = self._judged[key] = self.small.judge_all(world)
        at = self.small.places[REMEMBERED]
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
        name = self._actors[actor].name
        crashes_here = crashes if name.startswith(self.scope.dying) else 0
        faults_here = faults if name.startswith(self.scope.failing) else 0
        for move in self._ways(number, actor, crashes_here, faults_here):
            yield move._replace(crashes=crashes - crashes_here + move.crashes, faults=faults - faults_here + move.faults)

    def _ways(self, number: int, actor: int, crashes: int, faults: int) -> Iterator[_Move]:
        """Return where an actor can go, with what may still happen to it."""
        world = self._worlds[number]
        deaths = (False, True) if crashes and self._actors[actor].is_mortal else (False,)
        plans: list[tuple[bool, tuple[int, ...], int, int]] = [(dies, (), crashes - dies, faults) for dies in deaths]
        while plans:
            dies, plan, crashes_left, faults_left = plans.pop()
            outcome = self._step(world, actor, plan, dies=dies)
            try:
                reached = self._after_changes(number, outcome.changes)
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

    def part(self, scope: Scope) -> Counts:
        """Explore a part of the scope, and return its counts; what a step comes to is known from the parts before."""
        self.scope, self.counts = scope, Counts(worlds=len(self._worlds), places=len(self._actors))
        self._moves.clear()
        self._changing.clear()
        self._found.clear()
        self._bits.clear()
        self._run()
        return self.counts

    def _begin(self) -> _State:
        """Return the state in which everything begins."""
        small = self.small
        small.judge.begin()
        first = small.actors()
        small.stepping.is_exploring = True
        world = self._world(tuple(small.number(name) for name in small.places))
        actors = [self._closure(world, self._set(frozenset([self._actor(known)]))) for known in first]
        return _State(world, self.scope.crashes, self.scope.faults, tuple(sorted(actors)))

    def _run(self) -> None:
        """Find every state: those first in which most may still happen, and of these those that fewest changes have led to."""
        self._first = self._first or self._begin()
        begin = _Node(self._first, (), None)
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
                            waiting[state.crashes + state.faults].setdefault(changes + 1, []).append(_Node(state, lines, node))
                    except BaseException:
                        self._print(node)
                        raise

    def _new(self, nodes: list[_Node]) -> Iterator[_Node]:
        """Return what is not in states that were found, with those joined that differ in where one actor may stand, and in nothing else."""
        alike: dict[_State, list[_Node]] = {}
        for node in nodes:
            alike.setdefault(node.state._replace(actors=()), []).append(node)
        for state, of_world in alike.items():
            found = self._found.setdefault(state.world, [])
            stands = {self._stand(node.state): node for node in of_world}
            for stand, node in self._joined(stands).items():
                new = self._as_found(state, stand)
                if any(one.includes(new) for one in found):
                    continue
                found[:] = [one for one in found if not new.includes(one)]
                found.append(new)
                yield node._replace(state=state._replace(actors=tuple(number for _, number in stand)))

    def _joined(self, stands: dict[_Stand, _Node]) -> dict[_Stand, _Node]:
        """Join what differs in where one actor may stand: what follows from either follows from both together, and nothing else."""
        before = 0
        while len(stands) != before:
            before = len(stands)
            for name in sorted({name for stand in stands for name, _ in stand}):
                others: dict[_Stand, tuple[set[int], _Node]] = {}
                for stand, node in stands.items():
                    rest = tuple(one for one in stand if one[0] != name)
                    where = self._sets[dict(stand).get(name, self._gone)]
                    others.setdefault(rest, (set(), node))[0].update(where)
                stands = {
                    tuple(sorted((*rest, (name, self._set(frozenset(where)))))) if where != {_GONE} else rest: node
                    for rest, (where, node) in others.items()
                }
        return stands

    def _stand(self, state: _State) -> _Stand:
        """Return where who may stand; who is not there has nothing more to do."""
        return tuple(sorted((self._name(one), one) for one in state.actors))

    def _name(self, number: int) -> str:
        """Return of whom a set tells where it may stand."""
        return next(self._actors[one].name for one in self._sets[number] if one != _GONE)

    def _as_found(self, state: _State, stand: _Stand) -> _Found:
        bits = self._bits.setdefault(state.world, {})  # few places are of one world
        places = stayers = 0
        for name, number in stand:
            for place in self._sets[number]:
                if place != _GONE:
                    places |= 1 << bits.setdefault(place, len(bits))
            if _GONE not in self._sets[number]:
                stayers |= 1 << bits.setdefault(name, len(bits))
        return _Found(state.crashes, state.faults, places, stayers)

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
        return any(one == _GONE or not self._actors[one].is_ready(self._worlds[world]) for one in self._sets[number])

    def _end(self, number: int) -> None:
        self.counts.ends += 1
        key = self.small.in_seconds(self._worlds[number])
        if key not in self._ended:
            self._ended.add(key)
            self.counts.ended += 1
            self.small.end(self._worlds[number])

    def _print(self, node: _Node | None) -> None:
        told = [f"{line}\n" for _, line in self.small.stepping.lines]
        while node:
            told[:0] = [f"{line}\n" for line in node.lines]
            node = node.before
        sys.stdout.write("".join(told))
        sys.stdout.flush()


def _keep_all() -> None:
    """Collect the garbage, and take what else there is out of the collector's sight: it would be looked through again and again."""
    gc.collect()
    gc.freeze()


def explore(shop: ShopDriver, parts: Sequence[Scope], progress: Callable[[Counts], object] = lambda _: None) -> Iterator[Counts]:
    """Explore parts of one scope in an emptied database, one after the other, and yield the counts of each.

    Raises `Violated` when an invariant did not hold somewhere.
    """
    if connection.vendor != "sqlite":
        raise TypeError("only SQLite's rows are put back as quickly as it takes here")
    empty_tables()
    stepping = Stepping(parts[0])
    small = SmallWorld(shop, stepping, parts[0])
    exploration = Exploration(small, parts[0], progress)
    _keep_all()
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
