"""A failover for real: the primary is killed, and its asynchronous replica, which lacks the last
changes, is promoted.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from example_shop.browser import Browser
from proving.chaos.cluster import Cluster, Replica, why_not
from proving.processes import Supervised, free_port
from tillgate.sandbox import Options, Sandbox
from tools.benchmarks.processes import ROOT, Actor, acting, serving, surroundings

PATIENCE_SECONDS = 30.0


def until(holds: Callable[[], Any], what: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, f"after {PATIENCE_SECONDS:g} s: not yet: {what}"
        time.sleep(0.1)


def sql(cluster: Cluster, statement: LiteralString) -> Any:
    """Run a statement on a server, and return the first value of its answer, if it has one."""
    with psycopg.connect(
        host="127.0.0.1",
        port=cluster.port,
        user="shop",
        dbname="shop",
        autocommit=True,
    ) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


@dataclass
class Failover:
    """A shop on a primary and a replica, its gateway, and the payments on which the two servers
    will differ.
    """

    primary: Cluster
    replica: Replica
    server: Supervised
    environment: dict[str, str]
    actor: Actor
    gateway: Sandbox
    refunded: str = ""
    """A paid payment. Its refund is queued before the replica is cut off, and sent after."""
    paid_late: str = ""
    """A payment that is begun before the replica is cut off, and paid after."""
    lost: str = ""
    """A payment that is begun and paid after the replica is cut off."""
    since: str = ""
    """When the replica was cut off, to the minute."""

    def books(self) -> Any:
        """Return the shop's books."""
        return self.actor.do("books")

    def reviews(self) -> list[str]:
        """Return the reasons of the open reviews."""
        return sorted(review["reason"] for review in self.books()["reviews"])

    def manage(self, *arguments: str) -> str:
        """Run a subcommand of `manage.py tillgate`, and return its output."""
        command = [sys.executable, "-m", "django", "tillgate", *arguments]
        ran = subprocess.run(
            command,
            cwd=ROOT,
            env=surroundings(self.environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def begin(self, total: str) -> str:
        """Let a shopper order and come to the payment page; return the payment's reference."""
        key = self.actor.do("order", total=total)
        before = {one.reference for one in self.gateway.service.transactions()}
        with Browser(self.environment["FAILOVER_SHOP"]) as shopper:
            page = shopper.open(shopper.open(f"/orders/{key}/").link("Pay"))
            shopper.submit(page, page.form("method", "alipay"), method="alipay")
        [reference] = {one.reference for one in self.gateway.service.transactions()} - before
        return reference

    def pay(self, reference: str) -> None:
        """Let the shopper pay; the gateway's signed notification tells the shop."""
        self.gateway.control.pay(reference)
        until(lambda: self.books()["payments"][reference] == "paid", f"payment {reference} is paid")

    def refunds(self) -> list[str]:
        """Return the refunds that the gateway has made of the payment with the queued refund."""
        return [one.amount for one in self.gateway.service.find(self.refunded).refunds]

    def cut_off(self) -> None:
        """Wait until the replica has everything, and cut it off."""
        position = str(sql(self.primary, "SELECT pg_current_wal_lsn()"))
        until(lambda: self._has_replayed(position), "the replica has everything")
        sql(self.replica, "ALTER SYSTEM SET primary_conninfo = ''")
        sql(self.replica, "SELECT pg_reload_conf()")
        until(
            lambda: sql(self.replica, "SELECT count(*) FROM pg_stat_wal_receiver") == 0,
            "the replica receives nothing more",
        )
        self.since = f"{datetime.now(UTC):%Y-%m-%dT%H:%M+00:00}"

    def _has_replayed(self, position: str) -> bool:
        with psycopg.connect(
            host="127.0.0.1",
            port=self.replica.port,
            user="shop",
            dbname="postgres",
        ) as connection:
            row = connection.execute(
                "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn",
                [position],
            ).fetchone()
        return bool(row and row[0])

    def trade(self) -> None:
        """Do business before and after the replica is cut off."""
        self.refunded, self.paid_late = self.begin("12.50"), self.begin("20.00")
        self.pay(self.refunded)
        self.manage("worker", "--once")
        self.actor.do("queue_refund", reference=self.refunded, amount="2.50")
        self.cut_off()
        self.manage("worker", "--once")
        self.pay(self.paid_late)
        self.lost = self.begin("30.00")
        self.pay(self.lost)
        books = self.books()
        assert (books["refunds"], self.refunds(), books["reviews"]) == (
            {self.refunded: "succeeded"},
            ["2.50"],
            [],
        )

    def fail_over(self) -> None:
        """Kill the primary, and promote the replica."""
        self.server.kill()
        self.replica.promote()
        books = self.books()
        assert books["refunds"] == {self.refunded: "queued"}, (
            "the replica does not know that the refund was sent"
        )
        assert books["payments"].keys() == {self.refunded, self.paid_late}, (
            "the replica does not know the last payment"
        )

    def assert_nothing_is_sent_twice_and_nothing_is_overlooked(self) -> None:
        """The refund stays as it is, the payment that was begun is paid, and the lost one has a
        review when its notification comes.
        """
        until(
            lambda: self.books()["payments"][self.paid_late] == "paid",
            "the worker asks about the payment that was begun",
        )
        self.gateway.control.notify(self.lost)
        self.manage("worker", "--once")  # the notification waits for the worker, which asks
        until(
            lambda: self.reviews().count("rows-lost") == 2,
            "the notification of the lost payment opens a review",
        )
        books = self.books()
        assert (self.refunds(), books["refunds"]) == (["2.50"], {self.refunded: "unknown"})
        assert sorted(books["orders"].values()) == [["paid", 1], ["paid", 1]]
        assert self.reviews() == ["refund-unknown", "rows-lost", "rows-lost"]
        [about] = [
            review for review in books["reviews"] if review["facts"].get("case") == "payment"
        ]
        assert (about["account"], about["facts"]["reference"], about["facts"]["amount"]) == (
            "default",
            self.lost,
            "30.00",
        )
        assert self.lost in about["message"]
        assert "30.00" in about["message"]


@pytest.fixture
def failover(tmp_path: Path) -> Iterator[Failover]:
    """A shop that sells on a primary with a replica. Skip where this machine cannot run PostgreSQL,
    or fail if CI=true.
    """
    if detail := why_not():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(detail)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tillgate-replica-")))
        folder.chmod(0o755)  # the servers run as another user
        primary = Cluster(folder, "primary")
        server = primary.supervised(tmp_path / "primary.log", "fsync=off")
        stack.callback(server.kill)
        primary.create_database("shop")
        replica = Replica(folder, "replica", primary)
        stack.callback(replica.supervised(tmp_path / "replica.log", "fsync=off").kill)
        gateway = stack.enter_context(
            Sandbox(Options(magic_amounts=False, notification_on_refund=False, seed=1)),
        )
        port = free_port()
        environment = {
            "DJANGO_SETTINGS_MODULE": "proving.failover.settings",
            "PGHOST": "127.0.0.1,127.0.0.1",
            "PGPORT": f"{primary.port},{replica.port}",
            "PGUSER": "shop",
            "FAILOVER_GATEWAY": gateway.base_url,
            "FAILOVER_SHOP": f"http://127.0.0.1:{port}",
        }
        actor = stack.enter_context(acting("proving.failover.actions", environment))
        actor.do("create")
        stack.enter_context(
            serving("django.core.wsgi:get_wsgi_application()", environment, port=port),
        )
        yield Failover(primary, replica, server, environment, actor, gateway)


def test_i2_i6_worker_notices_failover_it_survives(
    failover: Failover,
    tmp_path: Path,
) -> None:
    """It sends no refund twice and reports the lost payment."""
    failover.trade()
    command = [sys.executable, "-m", "django", "tillgate", "worker", "--interval", "0.5"]
    worker = Supervised(
        "worker",
        command,
        surroundings(failover.environment),
        tmp_path / "worker.log",
    )
    try:
        until(lambda: "The worker runs" in (tmp_path / "worker.log").read_text(), "the worker runs")
        failover.fail_over()
        until(
            lambda: failover.reviews() == ["refund-unknown", "rows-lost"],
            "the worker notices the failover",
        )
        failover.assert_nothing_is_sent_twice_and_nothing_is_overlooked()
    finally:
        worker.stop()
    assert worker.restarts == 0
    said = failover.manage("restored", "--since", failover.since)
    assert "0 queued refunds unknown now" in said, "the command is safe to repeat after the worker"
    assert failover.reviews() == ["refund-unknown", "rows-lost", "rows-lost"]


def test_i2_i6_command_makes_queued_refund_unknown(
    failover: Failover,
) -> None:
    """It runs after a failover and before any worker."""
    failover.trade()
    failover.fail_over()
    said = failover.manage("restored", "--since", failover.since)
    assert (
        "1 queued refund unknown now, each with a review; the worker asks about 2 payments." in said
    )
    assert failover.reviews() == ["refund-unknown", "rows-lost"]
    failover.manage("worker", "--once")
    failover.assert_nothing_is_sent_twice_and_nothing_is_overlooked()
