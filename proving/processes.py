"""The processes of a proof: commands that are started again whenever they end, and the ports that
they listen on.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

import psutil

__all__ = ["Supervised", "free_port", "wait_for_port"]

_START_SECONDS: Final = 60.0


def free_port() -> int:
    """Return a port that nothing listens on, and which the system gives to no server that asks for
    any port.
    """
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", port := 20_000 + secrets.randbelow(12_000))),
        ):
            return port


def wait_for_port(port: int, seconds: float = _START_SECONDS) -> None:
    """Wait until something listens."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if time.monotonic() > until:
            raise TimeoutError(f"nothing listens on port {port} after {seconds:.0f} s")
        time.sleep(0.1)


class Supervised:
    """A command that starts again whenever it ends, until it is stopped; its output goes to a
    file.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        user: str = "",
        pause: float = 0.5,
    ) -> None:
        self.name, self._command, self._environment = name, list(command), dict(environment)
        self._log, self._user, self._pause = log, user, pause
        self.restarts = 0
        self._is_wanted = True
        self._child = self._start()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(  # our own commands
                self._command,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                user=self._user or None,
            )

    def _watch(self) -> None:
        while self._is_wanted:
            self._child.wait()
            if self._is_wanted:
                self.restarts += 1
                time.sleep(self._pause)
            if self._is_wanted:
                self._child = self._start()

    def kill_some(self, chance: Random) -> str:
        """Kill -9 the process, one that it has begun, or all of them; return the ones that died."""
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._child.pid)
            children = parent.children(recursive=True)
            how = chance.choice(("parent", "child", "all")) if children else "parent"
            doomed = {
                "parent": [parent],
                "child": [chance.choice(children)] if children else [],
                "all": [*children, parent],
            }[how]
            for process in doomed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            return f"{self.name} ({how})"
        return ""

    def kill(self) -> None:
        """Kill -9 the process for good: it is not started again."""
        self._is_wanted = False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait(10)

    def stop(self) -> None:
        """Stop it for good, gently and then not."""
        self._is_wanted = False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGTERM)
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
