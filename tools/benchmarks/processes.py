"""The processes that a benchmark starts: actors that carry out orders, a web server, and its load.

All of them listen on loopback only and end with the process that started them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

__all__ = [
    "PEER",
    "ROOT",
    "Actor",
    "Load",
    "WebServer",
    "acting",
    "load",
    "serving",
    "surroundings",
]

ROOT: Final = Path(__file__).parents[2]
PEER: Final = ROOT / ".nox" / "bench" / "bin"
"""Where dj-stripe is installed, which needs another version of stripe than our own benchmarks. `nox
-s bench` builds it.
"""
WORKERS: Final = 2
THREADS: Final = 4


class Actor:
    """A process that carries out acts by name."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, action: str, **arguments: object) -> Any:
        """Have an action done, and return its result."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([action, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process failed at {action}: what it said stands above")
        return json.loads(answer)


@contextlib.contextmanager
def acting(
    module: str,
    environment: Mapping[str, str],
    python: Path | str = sys.executable,
) -> Iterator[Actor]:
    """Start a process that carries out the acts of a module."""
    command = [str(python), "-m", "tools.benchmarks.actions", module]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=surroundings(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        try:
            yield Actor(process)
        finally:
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                process.stdin.close()


def surroundings(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that finds this project's modules, with the chosen
    variables.
    """
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        **chosen,
    }


@dataclass(frozen=True, slots=True)
class WebServer:
    """A gunicorn under way."""

    port: int
    process_id: int

    def cpu_seconds(self) -> float:
        """Return the CPU time that its workers have used."""
        workers = (
            Path(f"/proc/{self.process_id}/task/{self.process_id}/children").read_text().split()
        )
        ticks = 0
        for worker in workers:
            fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(
    application: str,
    environment: Mapping[str, str],
    binaries: Path | None = None,
    *,
    port: int = 0,
    workers: int = WORKERS,
    threads: int = THREADS,
) -> Iterator[WebServer]:
    """Start gunicorn, on a free port unless one is given."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", port))
        port = chosen.getsockname()[1]
    command = [
        str((binaries or Path(sys.executable).parent) / "gunicorn"),
        "--bind",
        f"127.0.0.1:{port}",
        "--workers",
        str(workers),
    ]
    command += [
        "--worker-class",
        "gthread",
        "--threads",
        str(threads),
        "--keep-alive",
        "60",
        "--log-level",
        "warning",
        application,
    ]
    with subprocess.Popen(command, cwd=ROOT, env=surroundings(environment)) as process:
        try:
            _await(port, process)
            yield WebServer(port, process.pid)
        finally:
            process.terminate()


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/nothing", trust_env=False)
            return
        time.sleep(0.1)
    raise RuntimeError(f"gunicorn did not start: {process.returncode}")


class Load:
    """The generator of load: it sends requests over kept-alive connections, each as soon as the one
    before is answered.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def send(self, port: int, requests: Sequence[bytes], connections: int) -> float:
        """Send all of them, in their order, and return the seconds that it took; anything but a
        success ends the run.
        """
        texts = [request.decode("latin-1") for request in requests]
        answer = self._actor.do("send", port=port, requests=texts, connections=connections)
        if answer["statuses"] != {"200": len(requests)}:
            raise RuntimeError(f"{len(requests)} requests were answered {answer['statuses']}")
        return float(answer["seconds"])

    def shop(
        self,
        port: int,
        paths: Sequence[str],
        *,
        within_seconds: float,
        for_seconds: float,
    ) -> dict[str, Any]:
        """Let a shopper open each path, each in a moment of their own; return the statuses, and the
        seconds that pages took.
        """
        answer: dict[str, Any] = self._actor.do(
            "shop",
            port=port,
            paths=list(paths),
            within_seconds=within_seconds,
            for_seconds=for_seconds,
        )
        return answer


@contextlib.contextmanager
def load() -> Iterator[Load]:
    """Start the generator of load."""
    with acting("tools.benchmarks.load", {}) as actor:
        yield Load(actor)
