"""The shop in the storm: a database of its own, gunicorn in front of it, and workers beside it."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from proving.processes import Supervised, free_port
from tools.benchmarks.notifications import environment
from tools.benchmarks.processes import Actor, acting, serving, surroundings

__all__ = ["Shop", "open_shop"]

_WORKERS: Final = 2
_CALM_SECONDS: Final = 60.0
_LINES_KEPT: Final = 40


@dataclass(frozen=True, slots=True)
class Shop:
    """A shop under way."""

    port: int
    actor: Actor
    workers: list[Supervised]
    folder: Path

    def settle(self, paid: Iterable[str]) -> dict[str, Any]:
        """Let the workers finish and stop them; compare the gateway's paid payments, by reference,
        with the shop.
        """
        references = list(paid)
        until = time.monotonic() + _CALM_SECONDS
        while time.monotonic() < until:
            compared = self.actor.do("compare", paid=references)
            if not compared["lost"] and not compared["wrong"]:
                break
            time.sleep(0.2)
        for worker in self.workers:
            worker.stop()
        settled: dict[str, Any] = self.actor.do("compare", paid=references)
        return settled

    def errors(self) -> Counter[str]:
        """Return the errors that the shop itself logged. Django's lines about an answer are left to
        the client that got the answer.
        """
        logged = [
            line.split(" ", 2)[1]
            for line in _lines(self.folder / "errors.log")
            if line.startswith(("ERROR ", "CRITICAL "))
        ]
        errors = Counter(
            f"logged by {logger.rstrip(':')}" for logger in logged if logger != "django.request:"
        )
        errors["a worker died"] = sum(worker.restarts for worker in self.workers)
        return +errors

    def log(self) -> str:
        """Return the end of the shop's error log."""
        return "\n".join(_lines(self.folder / "errors.log")[-_LINES_KEPT:])

    def served(self, path: str) -> list[tuple[str, float]]:
        """Return the status of each request below a path, and the seconds that it took the web
        server.
        """
        answers = [json.loads(line) for line in _lines(self.folder / "access.log")]
        return [
            (answer["status"], int(answer["microseconds"]) / 1e6)
            for answer in answers
            if answer["path"].startswith(path)
        ]


def _lines(file: Path) -> list[str]:
    return file.read_text("utf-8", "replace").splitlines() if file.exists() else []


@contextlib.contextmanager
def open_shop(
    database: str,
    gateway: str,
    folder: Path,
    *,
    throttle_seconds: float,
    worker_seconds: float,
) -> Iterator[Shop]:
    """Open a shop on a database and a gateway; its logs go to a folder.

    A payment is asked about by notifications and returns once in `throttle_seconds`; workers pause
    for `worker_seconds`.
    """
    folder.mkdir()
    port = free_port()
    access = '{"path": "%(U)s", "status": "%(s)s", "microseconds": "%(D)s"}'
    chosen = {
        **environment("shop", database, gateway, "storm"),
        "DJANGO_SETTINGS_MODULE": "proving.storm.settings",
        "GUNICORN_CMD_ARGS": f"--access-logfile {folder / 'access.log'} --access-logformat "
        f"'{access}'",
        "STORM_LOG": str(folder / "errors.log"),
        "STORM_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "STORM_THROTTLE_SECONDS": str(throttle_seconds),
    }
    run_worker = [
        sys.executable,
        "-m",
        "django",
        "tillgate",
        "worker",
        "--interval",
        str(worker_seconds),
        "--verbosity",
        "0",
    ]
    with contextlib.ExitStack() as stack:
        actor = stack.enter_context(acting("proving.storm.actions", chosen))
        actor.do("create")
        stack.callback(actor.do, "destroy")
        workers = []
        for number in range(_WORKERS):
            workers.append(
                Supervised(
                    f"worker {number}",
                    run_worker,
                    surroundings(chosen),
                    folder / f"worker-{number}.log",
                ),
            )
            stack.callback(workers[-1].stop)
        stack.enter_context(serving("django.core.wsgi:get_wsgi_application()", chosen, port=port))
        while not actor.do("is_worked"):
            if workers[0].restarts:
                raise RuntimeError(
                    "the worker does not start: "
                    f"{(folder / 'worker-0.log').read_text('utf-8', 'replace')[-1000:]}",
                )
            time.sleep(0.1)
        yield Shop(port, actor, workers, folder)
