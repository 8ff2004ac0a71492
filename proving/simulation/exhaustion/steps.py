"""The outcome of a step: each is played once for all that it touches; elsewhere its script or its
known outcome replaces it.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from proving.simulation.exhaustion.scripts import Scripts
from proving.simulation.exhaustion.small_world import (
    GATEWAY,
    REMEMBERED,
    TIME,
    Numbered,
    SmallWorld,
    always,
)
from proving.simulation.exhaustion.stepping import Known, Scope, World
from proving.simulation.network import Violated
from tillgate.django.models import Heartbeat, Lane, Notification, Review

__all__ = ["GONE", "Counts", "Move", "Outcome", "Steps", "keep_all"]

_COLLECTED_EVERY: Final = 200
"""Of the steps that are played; nothing else leaves garbage."""
GONE: Final = -1
"""Where an actor stands that has nothing more to do."""


@dataclass
class Counts:
    """The size and the cost of an exploration."""

    states: int = 0
    steps: int = 0
    """Between states."""
    ends: int = 0
    """States in which no actor may have anything more to do."""
    worlds: int = 0
    places: int = 0
    """Where actors may stand."""
    played: int = 0
    """Steps that were played; all others came to the same as one of these."""
    followed: int = 0
    """Steps that came to the same as one that was played by another way, since the actor heard the
    same.
    """
    judged: int = 0
    ended: int = 0
    """Worlds that were let come to rest."""


class Outcome(NamedTuple):
    """The outcome of a step: the parts of the world with another content, where the actor stands,
    and the actors that begin.
    """

    changes: tuple[tuple[int, int], ...]
    actor: int | None
    begun: tuple[int, ...]
    choices: tuple[tuple[str, int], ...]
    lines: tuple[str, ...]


class Move(NamedTuple):
    """Where a step leads in one world: where each actor stands then, the actors that begin, and the
    crashes and faults left.
    """

    world: int
    begun: tuple[int, ...]
    crashes: int
    faults: int
    actor: int
    lines: tuple[str, ...]


class Steps:
    """Says where steps lead. Worlds and the places where actors stand have numbers."""

    def __init__(self, small: SmallWorld, scope: Scope) -> None:
        self._small, self._scope, self.counts = small, scope, Counts()
        self.worlds, self.actors = Numbered[World](), Numbered[Known]()
        self._played: dict[
            tuple[int, bool, tuple[int, ...]],
            dict[tuple[int, ...], dict[tuple[int, ...], Outcome]],
        ] = {}
        self._scripts: dict[tuple[Any, ...], Scripts[tuple[Outcome, Collection[str]]]] = {}
        self._time = small.places[TIME]
        self._moves: dict[tuple[int, int, int, int], list[Move]] = {}
        self._reached: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._judged: dict[World, int] = {}
        unjudged = [model._meta.db_table for model in (Notification, Review, Heartbeat, Lane)] + [
            TIME
        ]
        self._judged_places = [at for name, at in small.places.items() if name not in unjudged]

    def begin(self, scope: Scope) -> Counts:
        """Begin a part of the scope, and return its counts; outcomes of steps from earlier parts
        stay known.
        """
        self._scope, self.counts = scope, Counts(worlds=len(self.worlds), places=len(self.actors))
        self._moves.clear()
        return self.counts

    def world(self, world: World) -> int:
        """Return the number of a world."""
        number = self.worlds.number(world, lambda: world)
        self.counts.worlds = len(self.worlds)
        return number

    def actor(self, known: Known) -> int:
        """Return the number of where an actor stands."""
        number = self.actors.number(known.identity, lambda: known)
        self.counts.places = len(self.actors)
        return number

    def _step(self, world: World, actor: int, plan: tuple[int, ...], *, dies: bool) -> Outcome:
        known = self._played.setdefault((actor, dies, plan), {})
        for places, outcomes in known.items():
            if outcome := outcomes.get(tuple(world[at] for at in places)):
                return outcome
        key = (actor, dies, plan, world[self._time])
        outcome, places = self._follow(world, key) or self._play(world, actor, plan, dies=dies)
        known.setdefault(places, {})[tuple(world[at] for at in places)] = outcome
        return outcome

    def _play(
        self,
        world: World,
        actor: int,
        plan: tuple[int, ...],
        *,
        dies: bool,
    ) -> tuple[Outcome, tuple[int, ...]]:
        self.counts.played += 1
        if self.counts.played % _COLLECTED_EVERY == 0:
            keep_all()
        small, stepping, known = self._small, self._small.stepping, self.actors[actor]
        stepping.is_exploring = True
        has_more = stepping.play(known, lambda: small.put(world), plan=plan, dies=dies)
        changes, begun, places = self._came_of(world, stepping.touched)
        stands = (
            self.actor(
                known._replace(
                    heard=(*known.heard, *stepping.told),
                    is_mortal=stepping.is_mortal,
                    is_ready=always,
                ),
            )
            if has_more
            else None
        )
        lines = tuple(line for _, line in stepping.lines)
        outcome = Outcome(changes, stands, begun, tuple(stepping.choices), lines)
        if stepping.script.is_whole:
            key = (actor, dies, plan, world[self._time])
            self._scripts.setdefault(key, Scripts()).add(
                stepping.script,
                (outcome, stepping.touched),
                stepping.touched,
            )
        return outcome, places

    def _follow(self, world: World, key: tuple[Any, ...]) -> tuple[Outcome, tuple[int, ...]] | None:
        """Return the outcome of a step by its script, if the actor would hear the same as in an
        earlier step.
        """
        scripts = self._scripts.get(key)
        if scripts is None:
            return None
        self._small.put(world)
        played = scripts.follow()
        if played is None:
            self._small.take_out(scripts.touched)
            return None
        self.counts.followed += 1
        outcome, touched = played
        changes, begun, places = self._came_of(world, touched)
        return outcome._replace(changes=changes, begun=begun), places

    def _came_of(
        self,
        world: World,
        touched: Collection[str],
    ) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...], tuple[int, ...]]:
        """Return the parts of a world that a step has changed, the actors that begin, and the
        places that it depends on.
        """
        small, after = self._small, list(world)
        begun = tuple(map(self.actor, small.begun())) if GATEWAY in touched else ()
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
            after = list(self.worlds[number])
            for at, content in changes:
                after[at] = content
            reached = self._reached[number, changes] = self.world(self._judge(tuple(after)))
        return reached

    def _judge(self, world: World) -> World:
        key = tuple(world[at] for at in self._judged_places)
        remembered = self._judged.get(key)
        if remembered is None:
            self.counts.judged += 1
            remembered = self._judged[key] = self._small.judge_all(world)
        at = self._small.places[REMEMBERED]
        return (*world[:at], remembered, *world[at + 1 :])

    def moves_of(self, number: int, actor: int, crashes: int, faults: int) -> list[Move]:
        """Return where an actor can go from where it stands."""
        key = (number, actor, crashes, faults)
        moves = self._moves.get(key)
        if moves is None:
            moves = self._moves[key] = list(self._all_moves(number, actor, crashes, faults))
        return moves

    def _all_moves(self, number: int, actor: int, crashes: int, faults: int) -> Iterator[Move]:
        world = self.worlds[number]
        if actor == GONE or not self.actors[actor].is_ready(world):
            return
        name = self.actors[actor].name
        crashes_here = crashes if name.startswith(self._scope.dying) else 0
        faults_here = faults if name.startswith(self._scope.failing) else 0
        for move in self._ways(number, actor, crashes_here, faults_here):
            yield move._replace(
                crashes=crashes - crashes_here + move.crashes,
                faults=faults - faults_here + move.faults,
            )

    def _ways(self, number: int, actor: int, crashes: int, faults: int) -> Iterator[Move]:
        """Return where an actor can go, with the crashes and faults left to it."""
        world = self.worlds[number]
        deaths = (False, True) if crashes and self.actors[actor].is_mortal else (False,)
        plans: list[tuple[bool, tuple[int, ...], int, int]] = [
            (dies, (), crashes - dies, faults) for dies in deaths
        ]
        while plans:
            dies, plan, crashes_left, faults_left = plans.pop()
            outcome = self._step(world, actor, plan, dies=dies)
            try:
                reached = self._after_changes(number, outcome.changes)
            except Violated:
                self._small.stepping.lines = [("", line) for line in outcome.lines]
                raise
            stands = GONE if outcome.actor is None else outcome.actor
            yield Move(reached, outcome.begun, crashes_left, faults_left, stands, outcome.lines)
            for place in range(len(plan), len(outcome.choices)):
                kind, ways = outcome.choices[place]
                if crashes_left if kind == "crash" else faults_left:
                    ordinary = tuple(count - 1 for _, count in outcome.choices[len(plan) : place])
                    left = (crashes_left - (kind == "crash"), faults_left - (kind == "fault"))
                    plans += [(dies, (*plan, *ordinary, way), *left) for way in range(ways - 1)]


def keep_all() -> None:
    """Collect the garbage, and hide all other objects from the collector: it would go through them
    again and again.
    """
    gc.collect()
    gc.freeze()
