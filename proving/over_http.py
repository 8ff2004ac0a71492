"""Play a driver over HTTP, with sessions and content types, where it ended a world before. Print a
line for each thing that was seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import django
from django.core.management import call_command

_MOST_WRITES: Final = 9
"""More than the driver needs to close an order."""


def main() -> None:
    """Raise where a world ends that should go on."""
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    from proving.simulation.faults import KINDS, Faults
    from proving.simulation.scheduler import Scheduler
    from proving.simulation.stand_ins import in_place
    from proving.simulation.world import SimulatedWorld, empty_tables, simulate
    from proving.through_admin import AdminDriver, DollarDriver
    from tests.smallest_shop.models import ShopOrder

    class OneWriteFails(Faults):
        """Let one write of a process of the shop fail, the first or a later one: some are those of
        sessions.
        """

        which, writes = 1, 0

        def strikes(self, *faults: str) -> str:
            if (
                "deadlock" not in faults
                or not self.scheduler.actor
                or not self.scheduler.actor.is_mortal
            ):
                return ""
            self.writes += 1
            return self.note("deadlock") if self.writes == self.which else ""

    class LateDriver(AdminDriver):
        """Finds the order payable once more than it is: it is paid in that moment."""

        is_late = True

        def is_payable(self, order_key: str) -> bool:
            was, self.is_late = self.is_late, False
            return was or super().is_payable(order_key)

    def closing(
        driver: AdminDriver,
        faults: type[Faults],
        *,
        is_paid: bool,
        times: int = 1,
    ) -> tuple[str, str]:
        """Let staff close an order so often; return the trace's lines about it, and the status of
        the order then.
        """
        empty_tables()
        scheduler = Scheduler(1)
        world = SimulatedWorld(driver, scheduler, faults(scheduler, dict.fromkeys(KINDS, 0.0)))

        def staff() -> None:
            key = world.place_order(Decimal("12.50"), "0")
            if is_paid:
                ShopOrder.objects.update(status="paid")
            for _ in range(times):
                world.people.closer(key)

        with in_place(world):
            actor = scheduler.spawn("staff", staff, story="0")
            while not actor.thread.dead:
                scheduler.step()
        lines = [
            line.partition("close 1: ")[2] for _, line in scheduler.lines if "close 1: " in line
        ]
        return ", ".join(lines), ShopOrder.objects.get().status

    def say(what: str, seen: Callable[[], object]) -> None:
        sys.stdout.write(f"{what}: {seen()}\n")

    say("worlds", lambda: [simulate(DollarDriver(), seed, 2).orders for seed in (1, 2)])
    for which in range(1, _MOST_WRITES):
        OneWriteFails.which = which
        say(
            "write that fails",
            lambda: closing(AdminDriver(), OneWriteFails, is_paid=False, times=2),
        )
    say("paid", lambda: closing(AdminDriver(), Faults, is_paid=True))
    say("paid meanwhile", lambda: closing(LateDriver(), Faults, is_paid=True))


if __name__ == "__main__":
    main()
