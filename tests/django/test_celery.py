"""The worker as Celery tasks: two worker processes together, on RabbitMQ and on Redis."""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.utils import timezone
from redis import Redis

from tests.django import project
from tests.django.celery_broker import application
from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate.django import tasks
from tillgate.django.models import Heartbeat, Payment, Review
from tillgate.django.worker.chores import STAFF

ROOT = Path(__file__).parents[2]
BROKERS = {
    "rabbitmq": os.environ.get("TILLGATE_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//"),
    "redis": os.environ.get("TILLGATE_TEST_REDIS", "redis://127.0.0.1:6379/0"),
}
MANY = 60


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


class Workers:
    """Worker processes on one broker, and the means to send them tasks."""

    def __init__(self, broker: str, gateway: str, folder: Path) -> None:
        self.broker = broker
        self.queue = f"tillgate-test-{uuid.uuid4().hex[:12]}"
        self.app = application(broker, self.queue)
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "TILLGATE_WORKER_BROKER": broker,
            "TILLGATE_WORKER_QUEUE": self.queue,
            "TILLGATE_WORKER_GATEWAY": gateway,
            "TILLGATE_WORKER_DATABASE": str(connection.settings_dict["NAME"]),
        }

    def start(self, count: int) -> None:
        for _ in range(count):
            name = f"worker{len(self.processes)}"
            options = [
                "--concurrency=1",
                "--loglevel=INFO",
                "--without-gossip",
                "--without-mingle",
                f"--hostname={name}@{self.queue}",
            ]
            with (self.folder / name).open("wb") as log:
                command = [
                    sys.executable,
                    "-m",
                    "celery",
                    "-A",
                    "tests.django.celery_worker",
                    "worker",
                    *options,
                ]
                # A session of its own lets a test kill a worker with its children.
                self.processes.append(
                    subprocess.Popen(
                        command,
                        stdout=log,
                        stderr=log,
                        cwd=ROOT,
                        env=self.environment,
                        start_new_session=True,
                    ),
                )
        wait_for(lambda: all("ready." in self.log(place) for place in range(len(self.processes))))

    def log(self, place: int) -> str:
        return (self.folder / f"worker{place}").read_text("utf-8", "replace")

    def send(self, name: str, *arguments: object) -> None:
        self.app.send_task(name, args=arguments)

    def polled(self, place: int) -> int:
        """Return how many payments a worker has polled, by its log."""
        told = re.findall(r"Task tillgate\.run_lane\[.*succeeded in .*?: (\{.*\})", self.log(place))
        return sum(ast.literal_eval(one).get("payments", 0) for one in told)

    def kill(self, place: int) -> None:
        os.killpg(self.processes[place].pid, signal.SIGKILL)
        self.processes[place].wait(30)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
        self._forget()
        self.app.close()

    def _forget(self) -> None:
        """Leave nothing of ours at the broker."""
        if self.broker.startswith("redis:"):
            with Redis.from_url(self.broker) as client:
                for key in client.scan_iter(f"{self.queue}:*"):
                    client.delete(key)
            return
        with self.app.connection_for_write() as broker:
            broker.default_channel.queue_delete(self.queue)
            broker.default_channel.exchange_delete(self.queue)


@pytest.fixture(params=BROKERS)
def workers(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[Workers]:
    if project.DATABASE == "sqlite":
        pytest.skip("several workers need PostgreSQL or MariaDB: TILLGATE_TEST_DATABASE")
    address = urlsplit(BROKERS[request.param])
    try:
        socket.create_connection(
            (address.hostname or "127.0.0.1", address.port or 0),
            timeout=2,
        ).close()
    except OSError:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have {request.param}")
        pytest.skip(f"needs {request.param} on this machine")
    started = Workers(BROKERS[request.param], world.sandbox.base_url, tmp_path)
    try:
        yield started
    finally:
        started.end()


def paid_and_due(world: World, count: int) -> list[Payment]:
    """Return payments that shoppers have paid and that the shop does not know as paid."""
    payments = [world.start(world.order()) for _ in range(count)]
    for payment in payments:
        world.shopper_pays(payment)
    Payment.objects.update(next_poll_at=timezone.now())
    return payments


def queries_by_reference(world: World) -> Counter[str]:
    return Counter(
        entry.reference
        for entry in world.sandbox.service.journal.all()
        if (entry.operation, entry.direction) == ("query", "in")
    )


def test_two_workers_share_work_without_repeats(
    world: World,
    workers: Workers,
) -> None:
    """Each due payment is queried once, and the shop gets one event."""
    workers.start(2)
    payments = paid_and_due(world, MANY)
    for _ in range(6):
        workers.send("tillgate.run_worker")
    wait_for(lambda: ShopOrder.objects.filter(status="paid").count() == MANY)
    wait_for(lambda: workers.polled(0) + workers.polled(1) == MANY)
    assert queries_by_reference(world) == {payment.reference: 1 for payment in payments}
    assert set(ShopOrder.objects.values_list("times_paid", flat=True)) == {1}
    assert workers.polled(0) > 0
    assert workers.polled(1) > 0
    assert Heartbeat.objects.filter(name="worker").exists()
    assert not Review.objects.exists()


def test_lease_frees_work_of_killed_worker(
    world: World,
    workers: Workers,
) -> None:
    workers.start(1)
    paid_and_due(world, 10)
    world.sandbox.control.set_options({"delay_seconds": 3.0})
    world.sandbox.control.fault("delay", occasion="query", times=3)
    workers.send("tillgate.run_lane", "default")
    wait_for(lambda: len(queries_by_reference(world)) > 0)
    workers.kill(0)
    held = Payment.objects.filter(status="pending", next_poll_at__gt=timezone.now())
    assert held.count() > 0
    world.sandbox.control.clear_faults()
    workers.processes.clear()
    workers.start(1)
    workers.send("tillgate.run_worker")
    wait_for(lambda: not Payment.objects.filter(next_poll_at__lte=timezone.now()).exists())
    assert held.count() > 0  # the lease still runs
    held.update(next_poll_at=timezone.now())
    workers.send("tillgate.run_worker")
    wait_for(lambda: ShopOrder.objects.filter(status="paid").count() == 10)
    assert set(ShopOrder.objects.values_list("times_paid", flat=True)) == {1}


def test_the_tasks_do_what_the_worker_does(world: World) -> None:
    app = application("memory://", "tillgate-test-eager")
    app.conf.task_always_eager = True
    app.set_current()
    payment = paid_and_due(world, 1)[0]
    assert tasks.run_worker() == {"lanes": ["default", STAFF]}
    assert world.shop.times_paid(payment.order.key) == 1
    assert Heartbeat.objects.get(name="worker").at <= timezone.now()
    assert tasks.run_worker() == {"lanes": [STAFF]}
    assert tasks.run_lane("default") == {}


@pytest.mark.parametrize("name", ["run_worker", "run_lane"])
def test_every_task_is_repeatable_and_short(
    name: str,
) -> None:
    """It ends before a broker would hand it to another worker."""
    task: Any = getattr(tasks, name)
    assert task.name == f"tillgate.{name}"
    assert task.acks_late
    assert task.ignore_result
    assert task.soft_time_limit < task.time_limit < 30 * 60


def test_schedule_lets_late_task_expire() -> None:
    (entry,) = tasks.BEAT_SCHEDULE.values()
    assert entry["task"] == tasks.run_worker.name
    assert entry["schedule"] <= 60
    assert entry["options"]["expires"] >= entry["schedule"]


def test_fast_clock_expires_no_task(
    monkeypatch: pytest.MonkeyPatch,
    world: World,
) -> None:
    """The worker's machine is five minutes ahead."""
    (entry,), expires = tasks.BEAT_SCHEDULE.values(), list[float]()
    world.start(world.order())
    world.time.advance(seconds=30)
    monkeypatch.setattr(
        tasks.run_lane,
        "apply_async",
        lambda *_, **options: expires.append(options["expires"]),
    )
    tasks.run_worker()
    assert len(expires) == 2
    assert min(entry["options"]["expires"], *expires) > 300 + entry["schedule"]
