"""Fixtures for every test here: those that plugin authors get, on the smallest shop, and pytest's
own for testing fixtures.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_django import DjangoDbBlocker

    from tests.smallest_shop.driver import BareShopDriver

pytest_plugins = [
    "pytester",
    "tillgate.testing.emptying",
    "tillgate.testing.fixtures",
    "tillgate.testing.shops",
    "tillgate.testing.gateways",
]


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Commit without waiting for the disk, where the user may ask for that: a test kills processes,
    never the server.
    """
    from django.db import DatabaseError, connection

    with django_db_blocker.unblock(), contextlib.suppress(DatabaseError):
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(
                    "ALTER DATABASE "
                    f"{connection.ops.quote_name(connection.settings_dict['NAME'])} SET "
                    "synchronous_commit = off",
                )
            connection.close()  # the setting begins with the next connection


@pytest.fixture
def shop_driver() -> BareShopDriver:
    """The shop of all tests that need one and name no other."""
    from tests.smallest_shop.driver import BareShopDriver

    return BareShopDriver()
