"""A process of the shop's: it waits for orders on its standard input, carries each out in a forked
child, and reports the outcome.

`python -m tests.django.proofs.worker` reads a line of JSON with the addresses of the database and
the gateway, and then a line for each act. An act may order a child to die by SIGKILL at its n-th
point. The points are: before the first act and after each, where an act is a commit, or a call of
the gateway or the shop over the network.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from tillgate.testing.crashes import Points

ROOT = Path(__file__).parents[3]


class Killing(Points):
    """Ends this process as an outsider would: nothing is rolled back, closed or said."""

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


# Acts ---------------------------------------------------------------------------------------------


def start(order_key: str, plugin: str = "smallest-shop", method: str = "alipay") -> str:
    """Start a payment."""
    from tillgate.django.payments import starting

    return starting.start_payment(plugin, order_key, method=method).outcome.value


def notification(key: str) -> int:
    """Take the gateway's notification."""
    from django.test import Client

    return Client().post(f"/payments/notification/{key}/").status_code


def refund(payment_id: int, amount: str) -> str:
    """Give money back."""
    from tillgate.django.refunds import queueing

    return queueing.refund(payment_id, amount).status


def deliver(order_id: int) -> int:
    """Deliver the waiting events to the shop, in its database and over the network."""
    from tillgate.django.outbox.delivering import deliver as deliver_local
    from tillgate.django.outbox.remote import deliver_remote

    return deliver_local(order_id) + deliver_remote(order_id)


def run_worker() -> list[str]:
    """Do everything that is due."""
    from tillgate.django.worker import run

    return run.run_worker().faults


def storm(
    notification_keys: list[str],
    return_keys: list[str],
    threads: int,
    at: float,
    worker_runs: bool = True,
) -> dict[str, list[Any]]:
    """Deliver notifications, returns and worker runs by many threads at the same moment; return the
    HTTP statuses and the errors raised.
    """
    from django.db import connections
    from django.test import Client

    from tillgate.django.worker import run

    statuses, faults = list[int](), list[str]()

    def action(number: int) -> None:
        client = Client(raise_request_exception=False)
        time.sleep(max(0.0, at - time.time()))
        try:
            if worker_runs and number % 4 == 3:
                faults.extend(run.run_worker().faults)
            elif number % 4 == 2:
                statuses.append(
                    client.get(
                        f"/payments/return/{return_keys[number % len(return_keys)]}/",
                    ).status_code,
                )
            else:
                statuses.append(
                    client.post(
                        f"/payments/notification/{notification_keys[number % len(notification_keys)]}/",
                    ).status_code,
                )
        except Exception as error:  # noqa: BLE001  # any error of the project's code
            faults.append(f"{type(error).__name__}: {error}")
        finally:
            connections.close_all()

    acting = [threading.Thread(target=action, args=(number,)) for number in range(threads)]
    for thread in acting:
        thread.start()
    for thread in acting:
        thread.join()
    return {"statuses": statuses, "faults": faults}


ACTIONS: dict[str, Callable[..., Any]] = {
    action.__name__: action for action in (start, notification, refund, deliver, run_worker, storm)
}


# The process --------------------------------------------------------------------------------------


def _set_up(told: dict[str, Any]) -> None:
    from tests.django import project

    project.DATABASES["default"]["NAME"] = told["database"]
    project.TILLGATE.update(told["tillgate"])
    import django

    django.setup()


def _child(told: dict[str, Any]) -> dict[str, Any]:
    from django.utils import timezone

    from tests.django.proofs import carrying_shop

    ahead = timedelta(seconds=told["ahead_seconds"])
    machine_now = timezone.now
    timezone.now = lambda: machine_now() + ahead
    points = Killing(told["kill_at"])
    carrying_shop.plug_in(Path(told["carried"]), points.reach)
    with points.installed():
        result = ACTIONS[told["action"]](**told["arguments"])
    return {"result": result, "points": points.names}


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Wait for orders until the input ends."""
    _set_up(json.loads(sys.stdin.readline()))
    _tell("ready")
    for line in iter(sys.stdin.readline, ""):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                said = _child(json.loads(line))
            except BaseException as error:  # noqa: BLE001  # handed to the parent
                said = {"error": f"{type(error).__name__}: {error}"}
            os.write(writing, json.dumps(said).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = json.loads(pipe.read() or '{"died": true}')
        os.waitpid(child, 0)
        _tell(json.dumps(said))


# The tests' side ----------------------------------------------------------------------------------


class Worker:
    """A worker as a test sees it."""

    def __init__(self, told: dict[str, Any], carried: Path) -> None:
        self._carried = carried
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.django.proofs.worker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(told)

    def ready(self) -> None:
        """Wait until it takes orders."""
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def _say(self, told: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()

    def begin(
        self,
        action: str,
        *,
        kill_at: int = 0,
        ahead: timedelta = timedelta(),
        **arguments: Any,
    ) -> None:
        """Tell it to do something."""
        told = {
            "action": action,
            "arguments": arguments,
            "kill_at": kill_at,
            "ahead_seconds": ahead.total_seconds(),
            "carried": str(self._carried),
        }
        self._say(told)

    def wait(self) -> dict[str, Any]:
        """Return the outcome: `result` and `points`, `error`, or `died`."""
        assert self._process.stdout
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said

    def do(self, action: str, **arguments: Any) -> dict[str, Any]:
        """Order an act, and return its outcome."""
        self.begin(action, **arguments)
        return self.wait()

    def end(self) -> None:
        """End it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@contextmanager
def workers(count: int, tillgate: dict[str, Any], carried: Path) -> Iterator[list[Worker]]:
    """Run so many workers on the database of the running test."""
    from django.db import connection

    told = {"database": str(connection.settings_dict["NAME"]), "tillgate": tillgate}
    running = [Worker(told, carried) for _ in range(count)]
    try:
        for worker in running:
            worker.ready()
        yield running
    finally:
        for worker in running:
            worker.end()


if __name__ == "__main__":
    main()
