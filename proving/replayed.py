"""Explore small scopes, and play every step again in each world in which it was taken for
granted.
"""

from __future__ import annotations

import django
from django.core.management import call_command


def main() -> None:
    """Raise when a step comes to something else where it was not played before."""
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    from proving.simulation.exhaustion import Scope, explore
    from proving.simulation.exhaustion.steps import Steps
    from tests.smallest_shop.driver import SmallestShopDriver

    taken, step = 0, Steps._step

    def again(
        self: Steps,
        world: tuple[int, ...],
        actor: int,
        plan: tuple[int, ...],
        *,
        dies: bool,
    ) -> object:
        nonlocal taken
        played = self.counts.played
        outcome = step(self, world, actor, plan, dies=dies)
        if self.counts.played == played:
            taken += 1
            other, _ = self._play(world, actor, plan, dies=dies)
            # all but the lines, which show the time
            assert other[:-1] == outcome[:-1], (
                outcome,
                other,
            )
        return outcome

    Steps._step = again  # type: ignore[assignment, method-assign]
    for refunds, returns in ((0, 1), (1, 0)):
        taken = 0
        for _ in explore(
            SmallestShopDriver(),
            [
                Scope(
                    payments=1,
                    refunds=refunds,
                    returns=returns,
                    crashes=0,
                    faults=0,
                ),
            ],
        ):
            pass
        assert taken > 100, taken


if __name__ == "__main__":
    main()
