"""`python -m proving storm --payments 1000`: everything at the same time, on a shop with gunicorn
and workers; then a count of lost and doubled payments.

One effect: for each payment many copies of its notification come at the same moment, while its
return page is opened and workers poll it. The shop must get one event; nothing in it keeps a second
effect out. As many copies of an event go to dj-stripe, to show the size of the storm.

Mixed: shoppers check out, pay at the gateway's emulator, pay again, come back or do not, and wait,
on many connections for some seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import django

from proving.arguments import count, ended_by_ctrl_c, results_file, size
from proving.storm.mixed import mixed
from proving.storm.one_effect import one_effect, peers_effects
from tillgate.testing.report import source_commit
from tools.benchmarks import databases
from tools.benchmarks.notifications import NO_PEER
from tools.benchmarks.processes import PEER, ROOT, THREADS, WORKERS

_TOLD: Final = 10
"""So many of each kind of trouble are printed; the results have all."""


@ended_by_ctrl_c()
def main() -> int:
    """Run the storm on each database; 0 when nothing was lost, doubled or an error."""
    parser = argparse.ArgumentParser(
        "python -m proving storm",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument(
        "--databases",
        nargs="+",
        choices=databases.NAMES,
        default=["postgresql", "mariadb"],
        help="by default the servers",
    )
    parser.add_argument(
        "--payments",
        type=count,
        default=1000,
        help="whose notifications are copied, by default 1000",
    )
    parser.add_argument(
        "--copies",
        type=count,
        default=64,
        help="of each notification at once, by default 64",
    )
    parser.add_argument(
        "--peer-payments",
        type=_count_or_none,
        help="so many events go to dj-stripe, by default one per payment; 0: none",
    )
    parser.add_argument(
        "--seconds",
        type=size,
        default=60.0,
        help="how long shoppers come, by default 60",
    )
    parser.add_argument(
        "--connections",
        type=count,
        default=32,
        help="how many shoppers at once, by default 32",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of what is chosen by chance; who comes first is not repeatable",
    )
    parser.add_argument(
        "--results",
        type=results_file,
        help="append the result of each database as a line of JSON",
    )
    given = parser.parse_args()
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # everything here is on loopback
    is_right = True
    for database in given.databases:
        if detail := databases.why_not(database):
            _say(f"{database}: not run: {detail}")
            continue
        with tempfile.TemporaryDirectory(prefix="tillgate-storm-") as folder:
            result = _storm(database, Path(folder), given)
        _tell(result)
        if given.results:
            given.results.parent.mkdir(parents=True, exist_ok=True)
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        is_right &= not (result["errors"] or result["lost"] or result["doubled"])
    return 0 if is_right else 1


def _count_or_none(text: str) -> int:
    return 0 if text == "0" else count(text)


def _storm(database: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run both parts on one database, and return all that is to be known."""
    say = partial(_say_of, database)
    noted = {
        "commit": source_commit(ROOT),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "django": django.__version__,
        "database": database,
        "version": databases.versions()[databases.NAMES[database].partition(",")[0]],
        "seed": given.seed,
        "copies": given.copies,
        "connections": given.connections,
    }
    say(
        f"{given.copies} copies of each notification of {given.payments:,} payments, gunicorn "
        f"with {WORKERS} workers of {THREADS} threads",
    )
    told = one_effect(
        database,
        folder / "one-effect",
        given.payments,
        given.copies,
        given.seed,
        say,
    )
    peer = _peer(database, given, say)
    say(f"shoppers on {given.connections} connections for {given.seconds:g} s")
    traffic = mixed(database, folder, given.seconds, given.connections, given.seed, say)
    parts = (told, traffic)
    return {
        **noted,
        "one_effect": told,
        "peer": peer,
        "mixed": traffic,
        "errors": sum(sum(part["errors"].values()) + len(part["wrong"]) for part in parts),
        "lost": sum(len(part["lost"]) for part in parts),
        "doubled": sum(len(part["doubled"]) for part in parts),
    }


def _peer(database: str, given: argparse.Namespace, say: Any) -> dict[str, Any] | None:
    payments = given.payments if given.peer_payments is None else given.peer_payments
    if not payments:
        return None
    if not PEER.exists():
        say(f"dj-stripe: not measured: {NO_PEER}")
        return None
    say(f"{given.copies} copies of the events of {payments:,} payments, to dj-stripe")
    return peers_effects(database, payments, given.copies, say)


def _tell(result: dict[str, Any]) -> None:
    """Print the outcome of the storm on one database."""
    told, peer, traffic = result["one_effect"], result["peer"], result["mixed"]
    say = partial(_say_of, result["database"])
    say(
        f"{told['payments']:,} payments, {result['copies']} copies each: {told['effects']:,} "
        f"effects on {told['orders']:,} orders",
    )
    say(f"  found to be paid by: {_counts(told['doors'])}")
    _tell_times(say, told["kinds"])
    if peer:
        failed = f"; other answers: {_counts(peer['errors'])}" if peer["errors"] else ""
        say(
            f"dj-stripe, {peer['payments']:,} payments: {peer['effects']:,} effects on "
            f"{peer['orders']:,} orders{failed}",
        )
    say(
        f"{result['connections']} shoppers at once: {traffic['payments']:,} payments "
        f"({traffic['payments_per_second']} a second), "
        f"{traffic['requests']:,} requests ({traffic['per_second']} a second) in "
        f"{traffic['seconds']} s",
    )
    say(f"  found to be paid by: {_counts(traffic['doors'])}")
    _tell_times(
        say,
        {
            **traffic["kinds"],
            "all of these": traffic,
            "notification, in the server": traffic["notifications"],
        },
    )
    for part in (told, traffic):
        for name in ("lost", "doubled", "wrong"):
            for what in part[name][:_TOLD]:
                say(f"  {name}: {what}")
        if part["errors"]:
            say(f"  errors: {_counts(part['errors'])}\n{part['log']}")
    say(f"errors {result['errors']}, lost {result['lost']}, doubled {result['doubled']}")


def _tell_times(say: Any, kinds: dict[str, dict[str, Any]]) -> None:
    for kind, figures in kinds.items():
        if figures["requests"]:
            say(
                f"  {kind:22} {figures['requests']:8,} requests  p50 {figures['p50_ms']:9.2f} ms  "
                f"p99 {figures['p99_ms']:9.2f} ms",
            )


def _counts(counted: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counted.items()))


def _say_of(database: str, text: str) -> None:
    _say(f"{database}: {text}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
