"""Heartbeats are signs of life: the pages' rests and refusals are rows of lanes."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.db.models import Q


def delete_others(apps: Any, schema_editor: Any) -> None:
    """Delete the heartbeats that are rests or refusals of an account: they last minutes."""
    rows = apps.get_model("tillgate", "Heartbeat").objects.using(schema_editor.connection.alias)
    others = Q(name__startswith="creations:") | Q(name__startswith="queries:")
    rows.filter(others | Q(name__startswith="refusals:")).delete()


class Migration(migrations.Migration):
    """Delete the rows."""

    dependencies = [("tillgate", "0004_worker")]

    operations = [migrations.RunPython(delete_others, migrations.RunPython.noop)]
