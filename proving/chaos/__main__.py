"""`python -m proving chaos --minutes 30`: the shop sells while its processes and database are
killed; then the ledgers are compared.

The shop runs as in production: gunicorn, Celery on RabbitMQ, a worker, and a PostgreSQL cluster of
its own. Every few seconds `kill -9` hits one of them at random; the emulator loses requests and
answers, and its notifications come late, twice or never. The emulator is the gateway, and is not
killed. In the end everything runs undisturbed until nothing is due, and all that the gateway took
must be in the shop's books.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx

from proving.arguments import count, ended_by_ctrl_c, results_file, size
from proving.chaos.cluster import Cluster
from proving.processes import Supervised, free_port, wait_for_port
from tillgate.testing.report import source_commit

_ROOT: Final = Path(__file__).parents[2]
_FAULTS: Final = (
    *(
        "pay.lost_request=0.02",
        "pay.lost_response=0.02",
        "query.lost_response=0.05",
        "query.server_error=0.05",
        "refund.lost_response=0.05",
    ),
    *(
        "query.wrong_amount=0.01",
        "notification_missing=0.15",
        "notification_duplicate=0.2",
        "notification_late=0.1",
    ),
)
_CALM_SECONDS: Final = 900.0
"""Longer than ten minutes: so long may pass between two looks at an open payment, and its
notifications may all be lost.
"""
_STAFF: Final = "staff@example.com"


@ended_by_ctrl_c()
def main() -> int:
    """Run the chaos; 0 when nothing was lost or doubled."""
    parser = argparse.ArgumentParser(
        "python -m proving chaos",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument(
        "--minutes",
        type=size,
        default=1.0,
        help="how long things are killed, by default 1",
    )
    parser.add_argument(
        "--shoppers",
        type=count,
        default=3,
        help="how many shop at once, by default 3",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="of what is chosen by chance; when it happens is not repeatable",
    )
    parser.add_argument("--results", type=results_file, help="append the result as a line of JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tillgate-chaos-") as folder:
        Path(folder).chmod(0o755)  # the database server runs as another user
        return _Chaos(Path(folder), given).run()


class _Chaos:
    """One run."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self._folder, self._given = folder, given
        self._chance = Random(given.seed)  # repeatable on purpose
        self._kills: Counter[str] = Counter()
        self._running: dict[str, Supervised] = {}

    def run(self) -> int:
        cluster = Cluster(self._folder)
        self._running["database"] = cluster.supervised(self._log("database"))
        shop_port, gateway_port = free_port(), free_port()
        self._shop, self._gateway = (
            f"http://127.0.0.1:{shop_port}",
            f"http://127.0.0.1:{gateway_port}",
        )
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "proving.chaos.settings",
            "SHOP_VAR": str(self._folder),
            "SHOP_SECRET_KEY": secrets.token_hex(32),
            "SHOP_PUBLIC_URL": self._shop,
            "SHOP_GATEWAY_URL": self._gateway,
            "SHOP_BROKER_URL": os.environ.get(
                "CHAOS_BROKER_URL",
                "amqp://guest:guest@127.0.0.1:5672//",
            ),
            "CHAOS_QUEUE": f"chaos-{os.getpid()}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(cluster.port),
            "PGDATABASE": "shop",
            "PGUSER": "shop",
            "PYTHONPATH": str(_ROOT),
        }
        try:
            password = self._prepare(cluster)
            self._start(shop_port, gateway_port)
            did = self._trade((_STAFF, password))
            return self._judge(did)
        finally:
            for process in reversed(self._running.values()):
                process.stop()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _prepare(self, cluster: Cluster) -> str:
        cluster.create_database("shop")
        import django

        django.setup()
        from django.contrib.auth import get_user_model
        from django.core.management import call_command
        from django.db import connections
        from oscar.core.loading import get_model

        from example_shop import catalogue

        _say("making the tables and filling the shelves")
        call_command("migrate", verbosity=0)
        call_command("collectstatic", interactive=False, verbosity=0)
        catalogue.load(lambda *_: None)
        get_model("partner", "StockRecord").objects.update(num_in_stock=10_000_000)
        password = secrets.token_hex(8)
        get_user_model().objects.create_superuser("staff", _STAFF, password)
        connections.close_all()
        return password

    def _start(self, shop_port: int, gateway_port: int) -> None:
        programs = Path(sys.executable).parent
        queue = os.environ["CHAOS_QUEUE"]
        settings = [f"--set={fault}" for fault in _FAULTS]
        shop = [
            str(programs / "gunicorn"),
            "example_shop.wsgi",
            "--workers",
            "2",
            "--threads",
            "4",
            "--bind",
            f"127.0.0.1:{shop_port}",
        ]
        celery = [str(programs / "celery"), "-A", "example_shop.celery"]
        commands = {
            "gateway": [
                str(programs / "tillgate"),
                "sandbox",
                "--port",
                str(gateway_port),
                "--seed",
                str(self._given.seed),
                *settings,
            ],
            "web": shop,
            "celery": [
                *celery,
                "worker",
                "-Q",
                queue,
                "--concurrency",
                "2",
                "--loglevel",
                "warning",
            ],
            "beat": [
                *celery,
                "beat",
                "--schedule",
                str(self._folder / "beat"),
                "--loglevel",
                "warning",
            ],
            "worker": [
                sys.executable,
                str(_ROOT / "example_shop" / "manage.py"),
                "tillgate",
                "worker",
            ],
        }
        for name, command in commands.items():
            self._running[name] = Supervised(name, command, os.environ, self._log(name))
        wait_for_port(gateway_port)
        wait_for_port(shop_port)

    def _trade(self, staff: tuple[str, str]) -> Counter[str]:
        """Sell and kill, until the time is up; return the shoppers and clerks."""
        from proving.chaos.people import Clerk, Person, Shopper

        stop = threading.Event()
        people: list[Person] = [
            Shopper(self._shop, f"{self._given.seed}:{number}", stop)
            for number in range(self._given.shoppers)
        ]
        people.append(Clerk(self._shop, f"{self._given.seed}:clerk", stop, staff))
        for person in people:
            person.start()
        until = time.monotonic() + self._given.minutes * 60
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, self._chance.uniform(1.0, 8.0)))
            victim = self._chance.choice([name for name in self._running if name != "gateway"])
            if killed := self._running[victim].kill_some(self._chance):
                self._kills[killed] += 1
            did = sum((person.did for person in people), Counter())
            _say(
                f"{left:5.0f} s left, {self._kills.total()} kills, {did['ordered']} orders; "
                f"killed {killed}",
            )
        stop.set()
        for person in people:
            person.join(90)
            if person.last_failure:
                _say(
                    f"the last failure that {type(person).__name__.lower()} {person.name} saw: "
                    f"{person.last_failure[:300]}",
                )
        return sum((person.did for person in people), Counter())

    def _judge(self, did: Counter[str]) -> int:
        """Let everything run undisturbed until nothing is due, and compare the ledger."""
        httpx.delete(f"{self._gateway}/_control/faults", timeout=10).raise_for_status()
        from django.db import OperationalError, connections

        from proving.chaos.comparing import Compared, compare

        _say("nothing is killed any more; waiting until the ledger agrees")
        until = time.monotonic() + _CALM_SECONDS
        told: Compared | None = None
        while (told is None or not told.is_right) and time.monotonic() < until:
            time.sleep(5)
            connections.close_all()
            with suppress(OperationalError):  # the database may still recover from its last death
                told = compare(self._transactions())
        if told is None:
            raise TimeoutError(f"the database did not recover within {_CALM_SECONDS} seconds")
        audited = subprocess.run(  # our own
            [sys.executable, str(_ROOT / "example_shop" / "manage.py"), "tillgate", "audit"],
            capture_output=True,
            text=True,
            check=False,
        )
        if audited.returncode:
            _say(audited.stdout + audited.stderr)
        result: dict[str, Any] = {
            "commit": source_commit(_ROOT),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "minutes": self._given.minutes,
            "seed": self._given.seed,
            "kills": dict(sorted(self._kills.items())),
            "did": dict(sorted(did.items())),
            "payments": told.payments,
            "paid": str(told.paid),
            "paid_orders": told.paid_orders,
            "refunds": told.refunds,
            "refunded_amount": str(told.refunded_amount),
            "reviews": dict(sorted(told.reviews.items())),
            "lost": told.lost,
            "doubled": told.doubled,
            "wrong": told.wrong,
            "audit": audited.returncode,
        }
        _say(json.dumps(result, indent=1))
        if not told.is_right:
            for name in ("web", "celery", "worker"):
                _say(
                    f"--- the end of {name}'s "
                    f"log\n{self._log(name).read_text(errors='replace')[-3000:]}",
                )
        if self._given.results:
            self._given.results.parent.mkdir(parents=True, exist_ok=True)
            with self._given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        return 0 if told.is_right else 1

    def _transactions(self) -> list[dict[str, Any]]:
        transactions: list[dict[str, Any]] = httpx.get(
            f"{self._gateway}/_control/state",
            timeout=60,
        ).json()["transactions"]
        return transactions


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
