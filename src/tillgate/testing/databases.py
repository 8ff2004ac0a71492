"""Databases: the same tests on SQLite, PostgreSQL and MariaDB, chosen from outside."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final

from tillgate.errors import ConfigurationError

__all__ = ["DATABASE_NAMES", "chosen_database", "name_of_database"]

DATABASE_NAMES: Final = ("sqlite", "postgresql", "mariadb")


def name_of_database() -> str:
    """Return the database that the tests run on: the value of TILLGATE_TEST_DATABASE, else `sqlite`."""
    name = os.environ.get("TILLGATE_TEST_DATABASE", "sqlite")
    if name not in DATABASE_NAMES:
        raise ConfigurationError("TILLGATE_TEST_DATABASE", name, f"must be one of {', '.join(DATABASE_NAMES)}")
    return name


def chosen_database(test_name: str) -> dict[str, Any]:
    """Return the entry of DATABASES for the tests of a project.

    The servers run on this machine unless their own variables (PGHOST, MYSQL_HOST and so on) say otherwise. TILLGATE_TEST_NAME takes the
    place of `test_name`, so that two runs can go on beside each other. SQLite uses a file, since the threads of a test cannot share
    memory, and its writers wait for each other instead of failing. MariaDB is reached through PyMySQL, unless only mysqlclient is
    installed.
    """
    name = os.environ.get("TILLGATE_TEST_NAME", test_name)
    if name_of_database() == "postgresql":
        return _postgresql(name)
    if name_of_database() == "mariadb":
        return _mariadb(name)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": f"{test_name}.sqlite3",
        "TEST": {"NAME": str(Path(tempfile.gettempdir()) / f"{name}.sqlite3")},
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


def _postgresql(name: str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "test",
        "USER": os.environ.get("PGUSER", "postgres"),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ.get("PGHOST", "127.0.0.1"),
        "PORT": os.environ.get("PGPORT", "5432"),
        "TEST": {"NAME": name},
    }


def _mariadb(name: str) -> dict[str, Any]:
    try:
        import MySQLdb  # type: ignore[import-untyped]  # noqa: F401  # of mysqlclient
    except ImportError:
        import pymysql

        pymysql.version_info = (2, 2, 4, "final", 0)  # the version of mysqlclient that Django asks for, which PyMySQL replaces
        pymysql.install_as_MySQLdb()
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": "test",
        "USER": os.environ.get("MYSQL_USER", "root"),
        "PASSWORD": os.environ.get("MYSQL_PWD", ""),
        "HOST": os.environ.get("MYSQL_HOST", "127.0.0.1"),
        "PORT": os.environ.get("MYSQL_TCP_PORT", "3306"),
        "TEST": {"NAME": name, "CHARSET": "utf8mb4"},
        "OPTIONS": {"charset": "utf8mb4", "isolation_level": "read committed"},
    }
