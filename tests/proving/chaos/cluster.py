"""A PostgreSQL server of the chaos' own, which may be killed at any instant."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.proving.processes import Supervised, free_port, wait_for_port

__all__ = ["Cluster"]

_BINARIES: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))


class Cluster:
    """A private PostgreSQL cluster, run by an unprivileged user and with every guard against loss on, as a shop would have it."""

    def __init__(self, folder: Path) -> None:
        if not _BINARIES:
            raise FileNotFoundError("PostgreSQL's server is not installed: no /usr/lib/postgresql/*/bin")
        self.binaries, self.port = _BINARIES[-1], free_port()
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.folder = folder / "cluster"
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user)
        self._run("initdb", "-D", str(self.folder), "-U", "shop", "--auth", "trust", "--no-sync", "-E", "UTF8", "--locale", "C.UTF-8")

    def _run(self, name: str, *arguments: str) -> None:
        user = self.user if os.geteuid() == 0 else None
        command = [str(self.binaries / name), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, cwd="/")  # our own

    def supervised(self, log: Path) -> Supervised:
        """Start the server, and start it again whenever it dies; it recovers from its log then."""
        command = [
            *(str(self.binaries / "postgres"), "-D", str(self.folder), "-p", str(self.port)),
            *("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}", "-c", "max_connections=100"),
        ]
        log.touch()
        user = self.user if os.geteuid() == 0 else ""
        # What the dead server's children hold is freed when they notification its death.
        server = Supervised("database", command, {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}, log, user=user, pause=1.0)
        wait_for_port(self.port)
        return server

    def create_database(self, name: str) -> None:
        """Create a database."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "shop", name)
