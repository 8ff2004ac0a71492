"""The databases of the benchmarks: where they are, and which of them this machine lacks. Every
project here reads it.

SQLite is set to write through at each commit, as the two servers do by themselves, so that all
three promise the same.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, Final

__all__ = ["NAMES", "QUICKEST", "settings", "versions", "why_not"]

NAMES: Final = {
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
    "sqlite": "SQLite, `synchronous=FULL`",
}
QUICKEST: Final = "sqlite"


def settings(kind: str, name: str) -> dict[str, Any]:
    """Return Django's settings of a database of our own by that name, with connections that
    persist.
    """
    if kind == "sqlite":
        path = str(Path(tempfile.gettempdir()) / f"{name}.sqlite3")
        options = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 60,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        }
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": path,
            "TEST": {"NAME": path},
            "OPTIONS": options,
            "CONN_MAX_AGE": None,
        }
    host, port = _address(kind)
    common = {
        "NAME": name,
        "HOST": host,
        "PORT": str(port),
        "TEST": {"NAME": name},
        "CONN_MAX_AGE": None,
    }
    if kind == "postgresql":
        user, password = os.environ.get("PGUSER", "postgres"), os.environ.get("PGPASSWORD", "")
        return {
            **common,
            "ENGINE": "django.db.backends.postgresql",
            "USER": user,
            "PASSWORD": password,
        }
    user, password = os.environ.get("MYSQL_USER", "root"), os.environ.get("MYSQL_PWD", "")
    common["TEST"] = {"NAME": name, "CHARSET": "utf8mb4"}
    options = {"charset": "utf8mb4", "isolation_level": "read committed"}
    return {
        **common,
        "ENGINE": "django.db.backends.mysql",
        "USER": user,
        "PASSWORD": password,
        "OPTIONS": options,
    }


def _address(kind: str) -> tuple[str, int]:
    if kind == "postgresql":
        return os.environ.get("PGHOST", "127.0.0.1"), int(os.environ.get("PGPORT", "5432"))
    return os.environ.get("MYSQL_HOST", "127.0.0.1"), int(os.environ.get("MYSQL_TCP_PORT", "3306"))


def why_not(kind: str) -> str | None:
    """Say why a database cannot be measured here, if so; where continuous integration runs, it must
    be there.
    """
    if kind == "sqlite":
        return None
    host, port = _address(kind)
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError as error:
        if os.environ.get("CI") == "true":
            raise RuntimeError(
                f"continuous integration must have {NAMES[kind]} at {host}:{port}: {error}",
            ) from error
        return f"needs {NAMES[kind]} at {host}:{port}"
    return None


def versions() -> dict[str, str]:
    """Return the version of each database that can be reached."""
    import psycopg  # here, since every project reads this module for its settings
    import pymysql

    said = {"SQLite": sqlite3.sqlite_version}
    if why_not("postgresql") is None:
        chosen = settings("postgresql", "postgres")
        way = {
            "host": chosen["HOST"],
            "port": chosen["PORT"],
            "user": chosen["USER"],
            "password": chosen["PASSWORD"],
        }
        with psycopg.connect(dbname="postgres", **way) as one:
            said["PostgreSQL"] = one.info.parameter_status("server_version") or "unknown"
    if why_not("mariadb") is None:
        chosen = settings("mariadb", "")
        with pymysql.connect(
            host=chosen["HOST"],
            port=int(chosen["PORT"]),
            user=chosen["USER"],
            password=chosen["PASSWORD"],
        ) as other:
            said["MariaDB"] = other.get_server_info()
    return said
