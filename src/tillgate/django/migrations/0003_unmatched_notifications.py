"""Let a notification wait for the worker to find its payment."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from tillgate.django.models import ExactField


def forget_unmatched(apps: Any, schema_editor: Any) -> None:
    """Delete the rows that the older version cannot hold."""
    rows = apps.get_model("tillgate", "Notification").objects.using(schema_editor.connection.alias)
    rows.filter(payment=None).delete()


class Migration(migrations.Migration):
    dependencies = [("tillgate", "0002_refund_idempotency_key")]

    operations = [
        migrations.AlterField(
            "notification",
            "payment",
            models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="kept_notifications",
                to="tillgate.payment",
            ),
        ),
        migrations.RunPython(migrations.RunPython.noop, forget_unmatched),
        migrations.AddField(
            "notification",
            "account",
            models.CharField(blank=True, db_default="", max_length=128, verbose_name="account"),
        ),
        migrations.AddField(
            "notification",
            "unmatched",
            ExactField(blank=True, max_length=255, null=True),
        ),
        migrations.AddField(
            "notification",
            "due_at",
            models.DateTimeField(blank=True, db_index=True, null=True),
        ),
        migrations.AddConstraint(
            "notification",
            models.UniqueConstraint(
                fields=("account", "unmatched"),
                name="tillgate_notification_unmatched",
            ),
        ),
    ]
