"""Keep the states that were found of one world, and tell quickly if a new one is in any of them."""

from __future__ import annotations

from proving.simulation.exhaustion.small_world import Numbered

__all__ = ["Found", "Stand"]

Stand = tuple[tuple[str, int], ...]
"""The number of the set of places where each actor may stand; an absent actor has nothing more to
do.
"""
_Bits = int
"""Some of the states that were found: a bit for each."""


class Found:
    """The states of one world.

    A state is in another when as much may still happen there, and every actor may stand there
    wherever it may stand here. To find these states, each actor and each set of its places has one
    number, whose bits name the states in which the actor may stand in all of that set.
    """

    def __init__(self, sets: Numbered[frozenset[int]], gone: int) -> None:
        self._sets, self._gone = sets, gone
        self._all: _Bits = 0
        self._left: dict[tuple[int, int], _Bits] = {}
        """By the crashes and faults that may still happen."""
        self._in: dict[str, dict[int, _Bits]] = {}
        """By the set of where an actor may stand, those with that set."""
        self._in_all_of: dict[str, dict[int, _Bits]] = {}
        """And those in which it may stand wherever the set says, of the sets that were asked
        for.
        """

    def is_new(self, crashes: int, faults: int, stand: Stand) -> bool:
        """Tell whether a state is in none that was found, and take note of it then."""
        where = dict(stand)
        for name in where:
            if name not in self._in:
                self._in[name], self._in_all_of[name] = {self._gone: self._all}, {}
        including = 0
        for (crashes_left, faults_left), states in self._left.items():
            if crashes_left >= crashes and faults_left >= faults:
                including |= states
        for name in self._in:
            if not including:
                break
            including &= self._with_all_of(name, where.get(name, self._gone))
        if not including:
            self._add(crashes, faults, where)
        return not including

    def _with_all_of(self, name: str, number: int) -> _Bits:
        states = self._in_all_of[name].get(number)
        if states is None:
            least, states = self._sets[number], 0
            for other, of_other in self._in[name].items():
                if least <= self._sets[other]:
                    states |= of_other
            self._in_all_of[name][number] = states
        return states

    def _add(self, crashes: int, faults: int, where: dict[str, int]) -> None:
        new = self._all + 1
        self._all |= new
        self._left[crashes, faults] = self._left.get((crashes, faults), 0) | new
        for name, by_set in self._in.items():
            number = where.get(name, self._gone)
            by_set[number] = by_set.get(number, 0) | new
            in_all_of, most = self._in_all_of[name], self._sets[number]
            for asked in in_all_of:
                if self._sets[asked] <= most:
                    in_all_of[asked] |= new
