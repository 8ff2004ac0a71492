"""`python -m proving mutants`: does the simulator bite? Shops and cores that are broken on purpose,
and how many payments the simulator needs to find the fault.

The mutants are those of the conformance kit, which catches each of them, and a few that only the
simulator can catch. Of a mutant that it does not catch it says so.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import sys
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import django

from proving.arguments import count, ended_by_ctrl_c, results_file

if TYPE_CHECKING:
    from tests.smallest_shop.mutants import Mutant

_MOST_DOUBLINGS: Final = 4


@ended_by_ctrl_c()
def main() -> int:
    """Break the shop in each way, and simulate until it is noticed; 1 when a mutant was not."""
    parser = argparse.ArgumentParser(
        "python -m proving mutants",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument(
        "--payments",
        type=count,
        default=5000,
        help="give up after so many, by default 5000",
    )
    parser.add_argument(
        "--orders",
        type=count,
        default=20,
        help="how many shoppers come to the first world, by default 20; then twice as many",
    )
    parser.add_argument("--only", default="", help="only the mutants whose names hold this")
    parser.add_argument("--results", type=results_file, help="append a line of JSON for each")
    given = parser.parse_args()
    django.setup()
    from tillgate.testing.report import source_commit

    mutants = _mutants()
    chosen = [mutant for mutant in mutants if given.only in mutant.name]
    if not chosen:
        parser.error(
            f"argument --only: no mutant has {given.only!r} in its name; they are: "
            f"{', '.join(one.name for one in mutants)}",
        )
    origin, missed = {"commit": source_commit(Path.cwd()), "python": platform.python_version()}, 0
    # Each in a process of its own: leftovers of one, an open transaction for instance, must not
    # reveal the next.
    with get_context("spawn").Pool(1, _prepare, maxtasksperchild=1) as processes:
        looks = processes.imap(
            partial(_noticed, orders=given.orders, most=given.payments),
            [mutant.name for mutant in chosen],
        )
        for mutant, noticed in zip(chosen, looks, strict=True):
            missed += not noticed["noticed"]
            sys.stdout.write(
                f"{mutant.name}: {noticed['noticed'] or 'not noticed'} ({noticed['payments']} "
                "payments)\n",
            )
            sys.stdout.flush()
            if given.results:
                given.results.parent.mkdir(parents=True, exist_ok=True)
                line = {**origin, "mutant": mutant.name, "scenario": mutant.scenario, **noticed}
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    return 1 if missed else 0


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its starter ends it
    django.setup()
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)


def _mutants() -> list[Mutant]:
    # once Django is ready
    from tests.smallest_shop.mutants import (
        MUTANTS,
        MUTANTS_OF_THE_SIMULATOR,
    )

    return [*MUTANTS, *MUTANTS_OF_THE_SIMULATOR]


def _noticed(name: str, orders: int, most: int) -> dict[str, Any]:
    """Simulate world after world with a mutant until one is found wanting: small ones first, since
    much is noticed only when they end.
    """
    import pytest

    from proving.simulation.world import simulate
    from tests.smallest_shop.mutants import misfits
    from tests.smallest_shop.telling import TellingDriver
    from tillgate.django.models import Payment

    mutant = next(mutant for mutant in _mutants() if mutant.name == name)
    payments = seed = 0
    while payments < most:
        seed += 1
        with pytest.MonkeyPatch.context() as patch:
            mutant.breaks(patch)
            try:
                payments += simulate(
                    TellingDriver(),
                    seed,
                    orders * 2 ** min(seed - 1, _MOST_DOUBLINGS),
                ).payments
            except (
                Exception
            ) as fault:  # however it shows: a violated invariant, or a guard that raised
                if misfits(str(fault)):
                    raise  # a changed signature would be caught for nothing
                said = next(iter(str(fault).splitlines()), "")[:120]
                return {
                    "noticed": said or type(fault).__name__,
                    "payments": payments + Payment.objects.count(),
                    "seed": seed,
                }
    return {"noticed": "", "payments": payments, "seed": seed}


if __name__ == "__main__":
    sys.exit(main())
