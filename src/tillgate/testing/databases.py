"""Databases: the same tests on SQLite, PostgreSQL and MariaDB, chosen from outside."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from tillgate.errors import ConfigurationError

DATABASE_NAMES: Final = ("sqlite", "postgresql", "mariadb")


def name_of_database() -> str:
    """Return the database that the tests run on: the value of TILLGATE_TEST_DATABASE, else
    `sqlite`.
    """
    name = os.environ.get("TILLGATE_TEST_DATABASE", "sqlite")
    if name not in DATABASE_NAMES:
        raise ConfigurationError(
            "TILLGATE_TEST_DATABASE",
            name,
            f"must be one of {', '.join(DATABASE_NAMES)}",
        )
    return name


def chosen_database(test_name: str) -> dict[str, Any]:
    """Return the entry of DATABASES for the tests of a project.

    The servers run on this machine unless their own variables (PGHOST, MYSQL_HOST and so on) say
    otherwise. TILLGATE_TEST_NAME replaces `test_name` for a second run beside this one. SQLite uses
    a file, since the threads of a test cannot share memory.
    """
    name = _name_here(os.environ.get("TILLGATE_TEST_NAME", test_name))
    if name_of_database() == "postgresql":
        return {
            "ENGINE": "django.db.backends.postgresql",
            **_server("PGUSER", "postgres", "PGPASSWORD", "PGHOST", "PGPORT", "5432"),
            "TEST": {"NAME": name},
        }
    if name_of_database() == "mariadb":
        server = _server("MYSQL_USER", "root", "MYSQL_PWD", "MYSQL_HOST", "MYSQL_TCP_PORT", "3306")
        return {
            "ENGINE": "django.db.backends.mysql",
            **server,
            "TEST": {"NAME": name, "CHARSET": "utf8mb4"},
            "OPTIONS": {
                "charset": "utf8mb4",
                "isolation_level": "read committed",
                **_mysqldb_options(server["HOST"]),
            },
        }
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": f"{test_name}.sqlite3",
        "TEST": {"NAME": str(Path(tempfile.gettempdir()) / f"{name}.sqlite3")},
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
        },
    }


def _name_here(name: str) -> str:
    """Return a name that no other working directory gets, for resources that all checkouts on this
    machine share.

    Databases of a server and files in the temporary folder would otherwise belong to two runs at
    once.
    """
    return f"{name}_{hashlib.sha256(os.fsencode(Path.cwd())).hexdigest()[:8]}"


def _server(
    user: str,
    default_user: str,
    password: str,
    host: str,
    port: str,
    default_port: str,
) -> dict[str, str]:
    """Return the access to a server, from the environment's variables of these names."""
    given = os.environ.get
    access = {"USER": given(user, default_user), "PASSWORD": given(password, "")}
    return {
        "NAME": "test",
        **access,
        "HOST": given(host, "127.0.0.1"),
        "PORT": given(port, default_port),
    }


def _mysqldb_options(host: str) -> dict[str, Any]:
    """Provide `MySQLdb`, and return its options: PyMySQL would read all certificate authorities for
    each connection to this machine.
    """
    try:
        import MySQLdb  # type: ignore[import-untyped]  # of mysqlclient
    except ImportError:
        import pymysql

        # the version of mysqlclient that Django asks for, which PyMySQL replaces
        pymysql.version_info = (
            2,
            2,
            4,
            "final",
            0,
        )
        pymysql.install_as_MySQLdb()
        import MySQLdb
    return (
        {"ssl_disabled": True}
        if MySQLdb.__name__ == "pymysql" and host in ("127.0.0.1", "localhost")
        else {}
    )
