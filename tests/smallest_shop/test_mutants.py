"""The kit can fail: each of many shops and cores that are broken on purpose is caught by the
scenario that is named for it.
"""

from __future__ import annotations

import pytest

from tests.smallest_shop.conftest import CAUGHT
from tests.smallest_shop.mutants import (
    MUTANTS,
    MUTANTS_OF_ROW_LOCKS,
    MUTANTS_OF_THE_KIT,
    Mutant,
    misfits,
)
from tillgate.testing.conformance import Conformance
from tillgate.testing.guard import guarded_sockets
from tillgate.testing.world import World

ALL = [*MUTANTS, *MUTANTS_OF_THE_KIT]

WRONG_PLUGINS = {
    "never registers its orders",
    "registers another order",
    "registers under a key that pays nothing",
    "leads to the payment of another order",
    "leads to the payment of an order under another key",
    "books the total instead of the money",
    "takes the refund of a second payment for one of the order",
    "locks no row",
    "swallows errors and says applied",
    "swallows errors of a refund",
    "lets an order be paid that was paid otherwise",
    "releases a released order again",
    "takes partial refunds of the whole for none",
    "registers its orders after the commit",
    "raises at the release of a closed order",
    "leads to the payment of the newest order",
}
"""Plugins that are wrong and that an author could take for right."""

COMMONEST = {
    "trusts the status in the callback",
    "ignores the amount",
    "acknowledges before storing",
    "sends an unknown refund again",
    "runs the handler twice",
    "downgrades a paid payment",
    "reuses a reference",
    "holds a transaction across the query",
    "logs the token",
    "drops a late payment",
    "gives up an order while a payment of it is open",
    "lets refunds exceed the payment",
    "closes orders on a wrong merchant number",
}
"""The most frequent mistakes of payment plugins."""


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_is_caught(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    mutant: Mutant,
) -> None:
    scenario = getattr(Conformance(), f"test_{mutant.scenario}")
    with monkeypatch.context() as patch, guarded_sockets():
        mutant.breaks(patch)
        with pytest.raises(mutant.raises) as caught:
            scenario(world)
    assert not misfits(f"{caught.value}\n{caplog.text}"), (
        "it is called as what it replaces, or it is caught for nothing"
    )
    said = next(iter(str(caught.value).splitlines()), type(caught.value).__name__)
    request.node.user_properties.append(
        (CAUGHT, f"{mutant.name}: caught by {mutant.scenario}: {said[:140]}"),
    )


def test_every_mutant_names_a_scenario_that_exists() -> None:
    every = [*ALL, *MUTANTS_OF_ROW_LOCKS]
    assert {mutant.scenario for mutant in every} <= set(Conformance.scenarios())
    assert len({mutant.name for mutant in every}) == len(every)


def test_the_commonest_faults_are_among_them() -> None:
    assert {mutant.name for mutant in ALL} >= COMMONEST


def test_the_wrong_plugins_are_among_them() -> None:
    assert {mutant.name for mutant in (*ALL, *MUTANTS_OF_ROW_LOCKS)} >= WRONG_PLUGINS
