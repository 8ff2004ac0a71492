"""A state of an exhaustion is left out when one that was found contains it, and only then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proving.simulation.exhaustion.found import Found
from proving.simulation.exhaustion.small_world import Numbered

_GONE = -1
_STATES = st.tuples(
    st.integers(0, 1),
    st.integers(0, 1),
    st.dictionaries(
        st.sampled_from(["shopper", "clerk", "notification"]),
        st.frozensets(st.sampled_from([_GONE, 1, 2, 3]), min_size=1),
    ),
)
_State = tuple[int, int, dict[str, frozenset[int]]]


def _contains(most: _State, least: _State) -> bool:
    gone = frozenset([_GONE])
    as_much_may_happen = most[0] >= least[0] and most[1] >= least[1]
    return as_much_may_happen and all(
        least[2].get(name, gone) <= most[2].get(name, gone) for name in {*most[2], *least[2]}
    )


@given(st.lists(_STATES, max_size=30))
def test_state_is_new_unless_contained_earlier(states: list[_State]) -> None:
    """A state is new if no earlier state contains it."""
    sets = Numbered[frozenset[int]]()

    def number(places: frozenset[int]) -> int:
        return sets.number(places, lambda: places)

    found, before = Found(sets, number(frozenset([_GONE]))), list[_State]()
    for state in states:
        crashes, faults, where = state
        stand = tuple(sorted((name, number(places)) for name, places in where.items()))
        assert found.is_new(crashes, faults, stand) is not any(
            _contains(one, state) for one in before
        )
        before.append(state)
