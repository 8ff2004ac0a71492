"""`python -m tillgate.testing.simulation`: simulate seed after seed, and replay the one in which something went wrong."""

from __future__ import annotations

import argparse
import atexit
import importlib
import json
import os
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tillgate.testing.simulation.network import Violated

_MOST_LINES: Final = 60


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tillgate.testing.simulation", description=__doc__)
    parser.add_argument("--driver", required=True, metavar="MODULE:CLASS", help="the shop's driver")
    parser.add_argument("--seed", type=_range, default=range(1, 2), metavar="N or N-M", help="the seeds to simulate, by default 1")
    parser.add_argument("--payments", type=int, default=1000, metavar="N", help="how many shoppers come to each world, by default 1000")
    parser.add_argument("--only", type=int, metavar="N", help="leave out the stories of all orders but this")
    parser.add_argument("--without", default="", metavar="KIND,...", help="leave out kinds of faults")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument(
        "--exhaust",
        nargs="?",
        const="",
        metavar="SCOPE",
        help="instead, try everything that can happen to one order; SCOPE changes how much that is: payments=1,refunds=0,crashes=0 ...",
    )
    parser.add_argument(
        "--outage", type=float, metavar="DAYS", help="instead, let the gateway be away so long, and see what one sweep makes good"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="append a line of JSON for each seed, and leave out those that it has")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Simulate what the command line asks for; 1 when an invariant was violated."""
    given = _parser().parse_args(arguments)
    shop = _prepare(given.driver)
    if given.exhaust is not None:
        return _exhaust(shop, given.exhaust, given.results)
    if given.outage is not None:
        return _outage(shop, given)
    from tillgate.testing.simulation.world import simulate

    without = frozenset(filter(None, given.without.split(",")))
    origin = _origin(given.payments)
    done = _done(given.results, origin) if given.results else set()
    total, began = 0, time.perf_counter()
    for seed in given.seed:
        if seed in done:
            continue
        worlds: list[Any] = []
        seed_began = time.perf_counter()
        try:
            outcome = simulate(shop, seed, given.payments, only=given.only, without=without, watch=worlds.append)
        except Violated as violated:
            _report(violated, worlds[0], given, shop)
            return 1
        if given.trace:
            _say("\n".join(line for _, line in worlds[0].scheduler.lines))
        total += outcome.payments
        rate = total / (time.perf_counter() - began)
        _say(
            f"seed {seed}: {outcome.payments} payments, {outcome.paid} paid, {outcome.refunds} refunds,"
            f" {sum(outcome.struck.values())} faults"
            f" in {outcome.days:.0f} days; {outcome.judged} judgements, no violation ({rate:.0f} payments/s)",
        )
        if given.results:
            _append(given.results, origin | asdict(outcome) | {"seconds": round(time.perf_counter() - seed_began, 1)})
        _say(outcome.digest)
    return 0


def _exhaust(shop: Any, text: str, results: Path | None) -> int:
    """Explore everything within a scope, by who dies and who meets a fault; 1 when an invariant was violated."""
    from tillgate.testing.simulation.exhaustion import Counts, Scope, explore

    given = dict(part.split("=") for part in text.split(",") if part)
    of_whom = {name: given.pop(name) for name in ("dying", "failing") if name in given}
    numbers: dict[str, Any] = {name: int(number) for name, number in given.items()}
    scope = Scope(**numbers)
    parts = [part for part in scope.parts if all(getattr(part, name) == whom for name, whom in of_whom.items())]
    if not parts:
        sys.exit(f"{text}: nobody of that name; whose processes there are: {', '.join(scope.mortals)}")
    origin = _origin(1) | {"scope": ",".join(f"{name}={number}" for name, number in given.items()) or "whole"}
    done = _done(results, origin, "part") if results else set()
    left = [part for part in parts if part.name not in done]
    total, names, began = Counts(), iter([part.name for part in left]), time.perf_counter()

    def show(counts: Counts) -> None:
        rate = counts.states / (time.perf_counter() - began)
        sys.stderr.write(f"\r{name}: {counts.states:,} states, {counts.ends:,} ends ({rate:.0f} states/s) ")
        sys.stderr.flush()

    name = next(names, "")
    try:
        for counts in explore(shop, left, show) if left else ():
            sys.stderr.write("\n")
            if results:
                seconds = round(time.perf_counter() - began, 1)
                _append(results, origin | {"part": name, "parts": len(scope.parts), **asdict(counts), "seconds": seconds})
            total = Counts(**{field: count + getattr(counts, field) for field, count in asdict(total).items()})
            name, began = next(names, ""), time.perf_counter()
    except Violated:
        return 1
    on_file = f" ({len(parts) - len(left)} of {len(parts)} parts were on file)" if len(left) < len(parts) else ""
    _say(f"{total.states} states, {total.steps} steps between them, {total.ends} ends: all explored, no violation{on_file}")
    return 0


def _outage(shop: Any, given: argparse.Namespace) -> int:
    """Play an outage for each seed; 1 when an invariant was violated."""
    from tillgate.testing.simulation.outage import endure

    for seed in given.seed:
        worlds: list[Any] = []
        began = time.perf_counter()
        try:
            endured = endure(shop, seed, given.payments, given.outage, watch=worlds.append)
        except Violated as violated:
            _say("\n".join([line for _, line in worlds[0].scheduler.lines][-_MOST_LINES:]))
            _say(f"seed {seed}: {violated}")
            return 1
        _say(
            f"seed {seed}: in {endured.days:g} days without a gateway {endured.paid} of {endured.payments} payments were paid,"
            f" {endured.lost_notices} notices lost, and {endured.vain_sweeps} sweeps heard nothing;"
            f" then one sweep asked about {endured.looked} payments and made {endured.made_good} good"
        )
        if given.results:
            _append(given.results, _origin(given.payments) | asdict(endured) | {"seconds": round(time.perf_counter() - began, 1)})
        _say(endured.digest)
    return 0


def _append(results: Path, line: dict[str, Any]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _prepare(driver: str) -> Any:
    """Load Django and make the tables, in a database for tests unless it is in memory; return the shop's driver."""
    import django
    from django.core.management import call_command
    from django.db import connection

    if not os.environ.get("DJANGO_SETTINGS_MODULE"):
        sys.exit("set DJANGO_SETTINGS_MODULE to settings whose database ENGINE is one of tillgate.testing.simulation.backends")
    django.setup()
    if connection.vendor == "sqlite" and connection.is_in_memory_db():  # type: ignore[attr-defined]  # SQLite's own
        call_command("migrate", run_syncdb=True, verbosity=0)
    else:  # every seed empties the tables: never those of a database in use
        used = connection.settings_dict["NAME"]
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        atexit.register(connection.creation.destroy_test_db, used, verbosity=0)
    module, _, name = driver.partition(":")
    return getattr(importlib.import_module(module), name)()


def _origin(orders: int) -> dict[str, Any]:
    """Say what is simulated, and on what."""
    import django
    from django.db import connection

    from tillgate.testing.report import source_commit

    versions = {"python": platform.python_version(), "django": django.get_version()}
    return {"commit": source_commit(Path.cwd()), "database": connection.display_name.lower(), "orders_each": orders, **versions}


def _done(results: Path, origin: dict[str, Any], what: str = "seed") -> set[Any]:
    """Return the seeds that were simulated just so, or the parts that were explored."""
    if not results.exists():
        return set()
    lines = (json.loads(line) for line in results.read_text("utf-8").splitlines())
    return {line[what] for line in lines if all(line.get(name) == value for name, value in origin.items())}


def _report(violated: Violated, world: Any, given: argparse.Namespace, shop: Any) -> None:
    """Say what was violated, and find the smallest world in which it still is."""
    from tillgate.testing.simulation.faults import KINDS
    from tillgate.testing.simulation.world import simulate

    _say(f"seed {world.scheduler.seed}: {violated} (after {world.steps} steps)")
    smallest, only, without = world, given.only, frozenset(filter(None, given.without.split(",")))

    def still(only: int | None, without: frozenset[str]) -> Any:
        worlds: list[Any] = []
        try:
            simulate(shop, world.scheduler.seed, given.payments, only=only, without=without, watch=worlds.append)
        except Violated as again:
            worlds[0].violated = again
            return worlds[0]
        return None

    story = world.orders.get(violated.order_key, "")
    if only is None and story and (found := still(int(story), without)):
        smallest, only = found, int(story)
    for kind in KINDS:
        if kind not in without and (found := still(only, without | {kind})):
            smallest, without = found, without | {kind}
    lines = [line for _, line in smallest.scheduler.lines]
    _say(f"the last {min(_MOST_LINES, len(lines))} of {len(lines)} lines of the smallest trace that was found:")
    _say("\n".join(lines[-_MOST_LINES:]))
    options = f" ONLY={only}" if only is not None else ""
    _say(f"replay it: make simulate SEED={world.scheduler.seed} PAYMENTS={given.payments}{options} WITHOUT={','.join(sorted(without))}")
    _say(smallest.scheduler.digest)


if __name__ == "__main__":
    sys.exit(main())
