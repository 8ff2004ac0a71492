"""PostgreSQL servers of a test's own, which may be killed at any instant: one alone, or one with
replicas.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Final

from proving.processes import Supervised, free_port, wait_for_port

__all__ = ["Cluster", "Replica", "why_not"]

_BINARIES: Final = sorted(
    Path("/usr/lib/postgresql").glob("*/bin"),
    key=lambda folder: int(folder.parent.name),
)
_USER: Final = "postgres"
"""Runs the servers where the test runs as root."""


def why_not() -> str:
    """Return the parts that this machine lacks for a cluster, or "" if it has all."""
    if not _BINARIES:
        return "needs PostgreSQL's server programs in /usr/lib/postgresql on this machine"
    if os.geteuid() == 0 and not any(entry.pw_name == _USER for entry in pwd.getpwall()):
        return f"needs the user {_USER} on this machine, since root may not run PostgreSQL"
    return ""


class Cluster:
    """A private PostgreSQL cluster, run by an unprivileged user and with every guard against loss
    on, as a shop would have it.
    """

    def __init__(self, folder: Path, name: str = "cluster") -> None:
        if detail := why_not():
            raise FileNotFoundError(detail)
        self.binaries, self.port = _BINARIES[-1], free_port()
        self.user = _USER if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.folder = folder / name
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user)
        self.folder.chmod(0o700)
        self._fill()

    def _fill(self) -> None:
        self._run(
            "initdb",
            "-D",
            str(self.folder),
            "-U",
            "shop",
            "--auth",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale",
            "C.UTF-8",
        )

    def _run(self, name: str, *arguments: str) -> None:
        user = self.user if os.geteuid() == 0 else None
        command = [str(self.binaries / name), *arguments]
        # our own
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, cwd="/")

    def supervised(self, log: Path, *settings: str) -> Supervised:
        """Start the server, and start it again whenever it dies; it recovers from its log then."""
        command = [
            *(str(self.binaries / "postgres"), "-D", str(self.folder), "-p", str(self.port)),
            *(
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=",
                "-c",
                "max_connections=100",
            ),
            *(part for setting in settings for part in ("-c", setting)),
        ]
        log.touch()
        user = self.user if os.geteuid() == 0 else ""
        # The dead server's children free their resources when they see that it died.
        server = Supervised(
            "database",
            command,
            {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
            log,
            user=user,
            pause=1.0,
        )
        wait_for_port(self.port)
        return server

    def create_database(self, name: str) -> None:
        """Create a database."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "shop", name)

    def command(self, name: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs about this cluster."""
        self._run(name, "-D", str(self.folder), *arguments)


class Replica(Cluster):
    """A cluster that follows another one, asynchronously, and can be written to once it is
    promoted.
    """

    def __init__(self, folder: Path, name: str, primary: Cluster) -> None:
        self._primary = primary
        super().__init__(folder, name)

    def _fill(self) -> None:
        source = ("-h", "127.0.0.1", "-p", str(self._primary.port), "-U", "shop")
        self._run(
            "pg_basebackup",
            "-D",
            str(self.folder),
            *source,
            "-R",
            "--checkpoint",
            "fast",
            "--no-sync",
        )

    def promote(self) -> None:
        """Let it take over, and return once it has."""
        self.command("pg_ctl", "promote", "--wait")
