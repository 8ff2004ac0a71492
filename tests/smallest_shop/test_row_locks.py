"""The kit catches a handler that locks no row, on a database where another transaction may write in
between.
"""

from __future__ import annotations

import pytest
from django.db import connection

from tests.smallest_shop.mutants import MUTANTS_OF_ROW_LOCKS, Mutant
from tillgate.testing.conformance import Conformance
from tillgate.testing.world import World


@pytest.mark.parametrize(
    "mutant",
    MUTANTS_OF_ROW_LOCKS,
    ids=lambda mutant: mutant.name.replace(" ", "-"),
)
def test_a_handler_without_a_lock_is_caught(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Mutant,
) -> None:
    if not connection.features.has_select_for_update:
        pytest.skip(
            f"{connection.display_name} lets one transaction write at a time, so that no row "
            "needs a lock",
        )
    mutant.breaks(monkeypatch)
    with pytest.raises(AssertionError, match="between the handler's reading and its writing"):
        getattr(Conformance(), f"test_{mutant.scenario}")(world)
