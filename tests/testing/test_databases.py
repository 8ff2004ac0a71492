"""The database of a plugin's tests is chosen from outside, and is one that the threads of a
scenario can share.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tillgate.errors import ConfigurationError
from tillgate.testing.databases import DATABASE_NAMES, chosen_database, name_of_database


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILLGATE_TEST_DATABASE", "TILLGATE_TEST_NAME", "PGHOST", "MYSQL_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_sqlite_writers_wait_for_each_other() -> None:
    """The database is a file."""
    chosen = chosen_database("my-shop-tests")
    assert name_of_database() == "sqlite"
    assert Path(chosen["TEST"]["NAME"]).match("*/my-shop-tests_????????.sqlite3")
    assert chosen["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


@pytest.mark.parametrize(
    ("name", "engine", "host"),
    [("postgresql", "postgresql", "PGHOST"), ("mariadb", "mysql", "MYSQL_HOST")],
)
def test_server_defaults_to_this_machine(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    engine: str,
    host: str,
) -> None:
    """Only the server's own variable names another host."""
    monkeypatch.setenv("TILLGATE_TEST_DATABASE", name)
    chosen = chosen_database("my-shop-tests")
    assert (chosen["ENGINE"], chosen["HOST"]) == (f"django.db.backends.{engine}", "127.0.0.1")
    monkeypatch.setenv(host, "db.example")
    assert chosen_database("my-shop-tests")["HOST"] == "db.example"


@pytest.mark.parametrize(
    ("host", "options"),
    [("127.0.0.1", {"ssl_disabled": True}), ("db.example", {})],
)
def test_pymysql_skips_tls_only_locally(
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    options: dict[str, bool],
) -> None:
    """Asking again gives the same options."""
    monkeypatch.delitem(sys.modules, "MySQLdb", raising=False)
    monkeypatch.setenv("TILLGATE_TEST_DATABASE", "mariadb")
    monkeypatch.setenv("MYSQL_HOST", host)
    for _ in range(2):
        found = chosen_database("my-shop-tests")["OPTIONS"]
        assert {name: value for name, value in found.items() if name == "ssl_disabled"} == options


@pytest.mark.parametrize("name", DATABASE_NAMES)
def test_parallel_runs_use_separate_databases(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TILLGATE_TEST_DATABASE", name)
    before = chosen_database("my-shop-tests")["TEST"]["NAME"]
    monkeypatch.setenv("TILLGATE_TEST_NAME", "another")
    after = chosen_database("my-shop-tests")["TEST"]["NAME"]
    assert before != after
    assert "another" in after


@pytest.mark.parametrize("name", DATABASE_NAMES)
@pytest.mark.parametrize("chosen_name", [None, "another"])
def test_two_checkouts_share_no_database(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    chosen_name: str | None,
) -> None:
    monkeypatch.setenv("TILLGATE_TEST_DATABASE", name)
    if chosen_name:
        monkeypatch.setenv("TILLGATE_TEST_NAME", chosen_name)
    names = []
    for checkout in ("one", "other", "one"):
        (tmp_path / checkout).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / checkout)
        names.append(chosen_database("my-shop-tests")["TEST"]["NAME"])
    assert names[0] == names[2] != names[1]


def test_unknown_database_names_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILLGATE_TEST_DATABASE", "postgres")
    with pytest.raises(
        ConfigurationError,
        match="TILLGATE_TEST_DATABASE: 'postgres' must be one of sqlite, postgresql, mariadb",
    ):
        chosen_database("my-shop-tests")
