"""`python -m proving.simulation`: simulate seed after seed, and replay the one in which something
went wrong.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import json
import platform
import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from proving.arguments import (
    count,
    driver,
    ended_by_ctrl_c,
    ranges,
    read_late,
    results_file,
    seeds,
    size,
)
from proving.progress import Progress
from proving.simulation import together
from proving.simulation.faults import KINDS
from proving.simulation.network import Violated
from tillgate.testing.driver import ShopDriver

_MOST_LINES: Final = 60
_MOST_PAYMENTS_OF_AN_ORDER: Final = 2
_WHO: Final = ("dying", "failing")
"""The parts of a scope that name an actor."""
_BACKENDS: Final = ", ".join(
    f"proving.simulation.backends.{name}" for name in ("sqlite3", "postgresql", "mysql")
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m proving.simulation", description=__doc__)
    parser.add_argument("--driver", required=True, metavar="MODULE:CLASS", help="the shop's driver")
    parser.add_argument(
        "--seed",
        type=seeds,
        default=range(1, 2),
        metavar="N or N-M",
        help="the seeds to simulate, by default 1",
    )
    parser.add_argument(
        "--payments",
        type=count,
        default=1000,
        metavar="N",
        help="how many orders each world has, by default 1000; some have several payments",
    )
    parser.add_argument(
        "--only",
        type=_order,
        metavar="N",
        help="leave out the stories of all orders but this; the first is 0",
    )
    parser.add_argument(
        "--without",
        type=_kinds,
        default=frozenset(),
        metavar="KIND,...",
        help=f"leave out kinds of faults: {', '.join(KINDS)}",
    )
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--exhaust",
        nargs="?",
        const="",
        metavar="SCOPE",
        help="instead, try everything that can happen to one order. SCOPE, such as "
        "payments=1,crashes=0, changes how much that is: how "
        "many payments, refunds, returns, crashes and faults there are, and who dies "
        "and who fails, if not each in turn",
    )
    instead.add_argument(
        "--outage",
        type=size,
        metavar="DAYS",
        help="instead, let the gateway be away so long, and see what one worker run makes good",
    )
    parser.add_argument(
        "--results",
        type=results_file,
        metavar="FILE",
        help="append a line of JSON for each seed, and leave out those that it has",
    )
    return parser


def _order(text: str) -> int:
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} is no order of a world: give its number; the first is 0",
    )


def _kinds(text: str) -> frozenset[str]:
    kinds = frozenset(filter(None, map(str.strip, text.split(","))))
    if not kinds:
        raise argparse.ArgumentTypeError(
            f"{text!r} names no kind of fault; the kinds are {', '.join(KINDS)}",
        )
    if unknown := kinds - set(KINDS):
        raise argparse.ArgumentTypeError(
            f"no kind of fault is named {', '.join(sorted(unknown))}; the kinds are "
            f"{', '.join(KINDS)}",
        )
    return kinds


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Refuse arguments that do not go together."""
    if given.only is not None and not 0 <= given.only < given.payments:
        parser.error(
            f"argument --only: there is no order {given.only}: with --payments {given.payments} "
            f"give 0 to {given.payments - 1}",
        )
    if given.results and (given.only is not None or given.without):
        parser.error(
            "argument --results: a run that was made easier is not noted: leave out --results, or "
            "--only and --without",
        )


@ended_by_ctrl_c()
def main(arguments: list[str] | None = None) -> int:
    """Simulate the worlds that the command line names; 1 when an invariant was violated."""
    parser = _parser()
    given = parser.parse_args(arguments)
    _check(parser, given)
    shop = read_late(parser, "--driver", driver, given.driver)
    _prepare_database(parser)
    if given.exhaust is not None:
        return _exhaust(shop, parser, given)
    return _play(shop, given)


class _Watch:
    """Keeps the world that is played, and shows how far it is."""

    def __init__(self, orders: int) -> None:
        self.world: Any = None
        self.progress = Progress()
        self._orders = orders

    def __call__(self, world: Any) -> None:
        """Watch a world that is about to begin."""
        self.world = world
        world.progress = self._show

    def _show(self) -> None:
        world = self.world
        days = world.scheduler.elapsed / 86_400
        orders = f"{len(world.orders):,} of {self._orders:,} orders"
        self.progress(
            f"seed {world.scheduler.seed}: {orders}, {world.steps:,} steps, day {days:,.1f}",
        )

    @property
    def lines(self) -> list[str]:
        """The events in it."""
        return [line for _, line in self.world.scheduler.lines]


def _play(shop: ShopDriver, given: argparse.Namespace) -> int:
    """Play each seed that is not on file, and say the hash of all together; 1 when an invariant was
    violated.
    """
    origin, play = _origin(given.payments), _simulate
    if given.outage is not None:
        origin, play = origin | {"days": given.outage}, _endure
    on_file = _on_file(given.results, origin, "seed")
    digests = {seed: str(on_file[seed]["digest"]) for seed in given.seed if seed in on_file}
    if digests:
        _say(f"{_named(digests)} on file")
    _collect_seldom()
    for seed in [seed for seed in given.seed if seed not in digests]:
        watch, began = _Watch(given.payments), time.perf_counter()
        try:
            outcome, message = play(shop, seed, given, watch)
        except Violated as violated:
            watch.progress.clear()
            _report(violated, watch, given, shop)
            return 1
        watch.progress.clear()
        if given.trace:
            _say("\n".join(watch.lines))
        _say(f"seed {seed}: {message}")
        if given.results:
            _append(
                given.results,
                origin | asdict(outcome) | {"seconds": round(time.perf_counter() - began, 1)},
            )
        digests[seed] = outcome.digest
        if len(given.seed) > 1:
            _say(outcome.digest)
    if len(given.seed) > 1:
        _say(f"seeds {ranges(digests)} together:")
    _say(together(digests.values()))
    return 0


def _collect_seldom() -> None:
    """Let the collector go through new objects only, and seldom: a world makes little garbage that
    only the collector can find.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 100)


def _named(seeds: Iterable[int]) -> str:
    many = list(seeds)
    return f"seeds {ranges(many)} are" if len(many) > 1 else f"seed {many[0]} is"


def _simulate(
    shop: ShopDriver,
    seed: int,
    given: argparse.Namespace,
    watch: _Watch,
) -> tuple[Any, str]:
    """Play a world, and return the outcome, in a sentence too."""
    from proving.simulation.world import simulate

    began = time.perf_counter()
    outcome = simulate(
        shop,
        seed,
        given.payments,
        only=given.only,
        without=given.without,
        watch=watch,
    )
    return outcome, (
        f"{outcome.payments} payments, {outcome.paid} paid, {outcome.refunds} refunds, "
        f"{sum(outcome.struck.values())} faults"
        f" in {outcome.days:.0f} days; {outcome.judged} judgements, no violation"
        f" ({outcome.payments / (time.perf_counter() - began):.0f} payments/s)"
    )


def _endure(
    shop: ShopDriver,
    seed: int,
    given: argparse.Namespace,
    watch: _Watch,
) -> tuple[Any, str]:
    """Play an outage, and return the outcome, in a sentence too."""
    from proving.simulation.outage import endure

    endured = endure(shop, seed, given.payments, given.outage, watch=watch)
    return endured, (
        f"in {endured.days:g} days without a gateway {endured.paid} of {endured.payments} "
        "payments were paid,"
        f" {endured.lost_notifications} notifications lost, and {endured.vain_worker_runs} worker "
        "runs heard nothing;"
        f" then one worker run asked about {endured.polled} payments and made {endured.made_good} "
        "good"
    )


def _report(violated: Violated, watch: _Watch, given: argparse.Namespace, shop: ShopDriver) -> None:
    """Print the violation, and find the smallest world that still has it."""
    seed = watch.world.scheduler.seed
    if given.outage is not None:
        _say("\n".join(watch.lines[-_MOST_LINES:]))
        _say(f"seed {seed}: {violated}")
        return
    _say(f"seed {seed}: {violated} (after {watch.world.steps} steps)")
    smallest, only, without = _smallest(violated, watch, given, shop)
    _say(
        f"the last {min(_MOST_LINES, len(smallest.lines))} of {len(smallest.lines)} lines of the "
        "smallest trace that was found:",
    )
    _say("\n".join(smallest.lines[-_MOST_LINES:]))
    options = f" --only {only}" if only is not None else ""
    _say(
        f"replay it: python -m proving simulate --seed {seed} --payments "
        f"{given.payments}{options} --without {','.join(sorted(without))}",
    )
    _say(smallest.world.scheduler.digest)


def _smallest(
    violated: Violated,
    watch: _Watch,
    given: argparse.Namespace,
    shop: ShopDriver,
) -> tuple[_Watch, int | None, frozenset[str]]:
    """Leave out all orders but one, and each kind of fault, as long as something is still
    violated.
    """
    from proving.simulation.world import simulate

    smallest, only, without = watch, given.only, given.without

    def still(only: int | None, without: frozenset[str]) -> _Watch | None:
        again = _Watch(given.payments)
        try:
            simulate(
                shop,
                watch.world.scheduler.seed,
                given.payments,
                only=only,
                without=without,
                watch=again,
            )
        except Violated:
            return again
        finally:
            again.progress.clear()
        return None

    story = watch.world.orders.get(violated.order_key, "")
    if only is None and story and (found := still(int(story), without)):
        smallest, only = found, int(story)
    for kind in KINDS:
        if kind not in without and (found := still(only, without | {kind})):
            smallest, without = found, without | {kind}
    return smallest, only, without


# Everything that can happen -----------------------------------------------------------------------


def _exhaust(shop: ShopDriver, parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    """Explore everything within a scope, by the actors that die and meet a fault; 1 when an
    invariant was violated.
    """
    from proving.simulation.exhaustion import Counts, Scope, explore

    asked = read_late(parser, "--exhaust", _asked, given.exhaust)
    numbers = {name: value for name, value in asked.items() if name not in _WHO}
    scope = Scope(**numbers)
    parts = [
        part
        for part in scope.parts
        if all(getattr(part, name) == asked.get(name, getattr(part, name)) for name in _WHO)
    ]
    if not parts:
        parser.error(
            f"argument --exhaust: {given.exhaust}: nobody of that name; whose processes there "
            f"are: {', '.join(scope.mortals)}",
        )
    origin = _origin(1) | {
        "scope": ",".join(f"{name}={number}" for name, number in numbers.items()) or "whole",
    }
    on_file = _on_file(given.results, origin, "part")
    left = [part for part in parts if part.name not in on_file]
    progress, explored, began = Progress(), list[Counts](), time.perf_counter()

    def named() -> str:
        part = left[len(explored)]
        return f"part {parts.index(part) + 1} of {len(parts)}: {part.name}"

    def show(counts: Counts) -> None:
        rate = counts.states / (time.perf_counter() - began)
        progress(f"{named()}: {counts.states:,} states, {counts.ends:,} ends ({rate:.0f} states/s)")

    try:
        for counts in explore(shop, left, show) if left else ():
            progress.clear()
            seconds = round(time.perf_counter() - began, 1)
            _say(
                f"{named()}: {counts.states:,} states, {counts.ends:,} ends, no violation "
                f"({seconds:.0f} s)",
            )
            if given.results:
                part = left[len(explored)].name
                _append(
                    given.results,
                    origin
                    | {
                        "part": part,
                        "parts": len(scope.parts),
                        **asdict(counts),
                        "seconds": seconds,
                    },
                )
            explored.append(counts)
            began = time.perf_counter()
    except Violated:
        return 1
    states, steps, ends = (
        sum(getattr(counts, name) for counts in explored) for name in ("states", "steps", "ends")
    )
    note = (
        f" ({len(parts) - len(left)} of {len(parts)} parts were on file)"
        if len(left) < len(parts)
        else ""
    )
    _say(
        f"{states} states, {steps} steps between them, {ends} ends: all explored, no "
        f"violation{note}",
    )
    return 0


def _asked(text: str) -> dict[str, Any]:
    """Read how much can happen, and to which actor."""
    from proving.simulation.exhaustion import Scope

    names = [field.name for field in fields(Scope)]
    asked: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = map(str.strip, part.partition("="))
        if name not in names:
            raise argparse.ArgumentTypeError(
                f"{part!r} is no part of a scope: give NAME=NUMBER of {', '.join(names)}",
            )
        if name not in _WHO and not value.isdecimal():
            raise argparse.ArgumentTypeError(f"{part!r} says no number: give 0 or more")
        asked[name] = value if name in _WHO else int(value)
    if not 1 <= asked.get("payments", 1) <= _MOST_PAYMENTS_OF_AN_ORDER:
        raise argparse.ArgumentTypeError(
            f"payments={asked['payments']}: give 1 or {_MOST_PAYMENTS_OF_AN_ORDER}",
        )
    return asked


# Notes ----------------------------------------------------------------------------------------


def _append(results: Path, line: Mapping[str, Any]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _on_file(results: Path | None, origin: Mapping[str, Any], what: str) -> dict[Any, Any]:
    """Return the lines of the seeds that were played just so, or of the parts that were
    explored.
    """
    if not results or not results.exists():
        return {}
    # the last may have been cut off
    whole = [line for line in results.read_text("utf-8").splitlines() if line.endswith("}")]
    lines = [json.loads(line) for line in whole]
    return {
        line[what]: line
        for line in lines
        if all(line.get(name) == value for name, value in origin.items())
    }


def _origin(orders: int) -> dict[str, Any]:
    """Print the subject of the simulation, and its database."""
    import django
    from django.db import connection

    from tillgate.testing.report import source_commit

    versions = {"python": platform.python_version(), "django": django.get_version()}
    return {
        "commit": source_commit(Path.cwd()),
        "database": connection.display_name.lower(),
        "orders_each": orders,
        **versions,
    }


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _prepare_database(parser: argparse.ArgumentParser) -> None:
    """Refuse settings that cannot be simulated, and make the tables, in a database for tests unless
    it is in memory.
    """
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection, connections

    from proving.simulation.database import Interposed

    if not isinstance(connections[connection.alias], Interposed):
        used = connection.settings_dict["ENGINE"]
        parser.error(
            f"the simulation needs a database backend of its own: ENGINE is {used!r}, and must be "
            f"one of {_BACKENDS}",
        )
    if not hasattr(settings, "TILLGATE"):
        parser.error(
            "the simulation needs TILLGATE in the settings: an empty one will do, since accounts "
            "and addresses are its own",
        )
    # SQLite's own
    if connection.vendor == "sqlite" and connection.is_in_memory_db():  # type: ignore[attr-defined]
        call_command("migrate", run_syncdb=True, verbosity=0)
    else:  # every seed empties the tables: never those of a database in use
        used = connection.settings_dict["NAME"]
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        atexit.register(connection.creation.destroy_test_db, used, verbosity=0)


if __name__ == "__main__":
    sys.exit(main())
