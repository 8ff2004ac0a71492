"""Empty the tables after each test without writing the rows of `migrate` again, which takes longer
than most tests.

A pytest plugin beside pytest-django, for tests that write no permissions or content types of their
own: `-p tillgate.testing.emptying`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

_KEPT: Final = frozenset({"auth_permission", "django_content_type"})


@pytest.fixture(autouse=True, scope="session")
def emptied_quickly() -> Iterator[None]:
    """Keep the permissions and content types. On PostgreSQL empty row by row: TRUNCATE makes new
    files for each table.
    """
    from django.contrib.auth.management import create_permissions
    from django.contrib.contenttypes.management import create_contenttypes
    from django.core.management.commands import flush
    from django.core.management.sql import emit_post_migrate_signal
    from django.db.models.signals import post_migrate

    uid = "django.contrib.auth.management.create_permissions"

    def sql_flush(style: Any, connection: BaseDatabaseWrapper, **options: Any) -> list[str]:
        tables = [
            name
            for name in connection.introspection.django_table_names(only_existing=True)
            if name not in _KEPT
        ]
        if connection.vendor == "postgresql":  # Django's foreign keys are checked at COMMIT
            # our own tables
            return [f"DELETE FROM {connection.ops.quote_name(name)}" for name in tables]  # noqa: S608
        return connection.ops.sql_flush(style, tables, **options)

    def emit_to_others(*args: Any, **options: Any) -> None:
        had_permissions, had_types = (
            post_migrate.disconnect(dispatch_uid=uid),
            post_migrate.disconnect(create_contenttypes),
        )
        emit_post_migrate_signal(*args, **options)
        if had_permissions:
            post_migrate.connect(create_permissions, dispatch_uid=uid)
        if had_types:
            post_migrate.connect(create_contenttypes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "sql_flush", sql_flush)
        patch.setattr(flush, "emit_post_migrate_signal", emit_to_others)
        yield
