"""Fixtures for every test here: what plugin authors get, on the smallest shop, and pytest's own for testing fixtures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management.commands import flush

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from pytest_django import DjangoDbBlocker

    from tests.smallest_shop.driver import BareShopDriver

pytest_plugins = ["pytester", "tillgate.testing.fixtures", "tillgate.testing.shops", "tillgate.testing.gateways"]

_MIGRATED = frozenset({"auth_permission", "django_content_type"})
"""Tables that `migrate` fills, and that no test changes."""


@pytest.fixture(autouse=True, scope="session")
def emptied_quickly() -> Iterator[None]:
    """Empty the tables after each test without filling anew what no test changes, which takes longer than most tests.

    On PostgreSQL row by row: TRUNCATE makes new files for each table, and Django's foreign keys are checked at COMMIT.
    """

    def sql_flush(style: Any, connection: BaseDatabaseWrapper, **options: Any) -> list[str]:
        tables = [name for name in connection.introspection.django_table_names(only_existing=True) if name not in _MIGRATED]
        if connection.vendor == "postgresql":
            return [f"DELETE FROM {connection.ops.quote_name(name)}" for name in tables]
        return connection.ops.sql_flush(style, tables, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "sql_flush", sql_flush)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *_, **__: None)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Commit without waiting for the disk, where the user may ask for that: a test kills processes, never the server."""
    from django.db import DatabaseError, connection

    with django_db_blocker.unblock(), contextlib.suppress(DatabaseError):
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER DATABASE {connection.ops.quote_name(connection.settings_dict['NAME'])} SET synchronous_commit = off")
            connection.close()  # the setting begins with the next connection


@pytest.fixture
def shop_driver() -> BareShopDriver:
    """The shop of all tests that need one and name no other."""
    from tests.smallest_shop.driver import BareShopDriver

    return BareShopDriver()
