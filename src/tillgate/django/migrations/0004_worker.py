"""The worker's marks at the events that it delivers, and its lanes."""

from django.db import migrations, models

import tillgate.django.models


class Migration(migrations.Migration):
    """Add the column and the table."""

    dependencies = [("tillgate", "0003_unmatched_notifications")]

    operations = [
        migrations.AddField("outboxevent", "begun_at", models.DateTimeField(blank=True, null=True)),
        migrations.CreateModel(
            name="Lane",
            fields=[
                (
                    "name",
                    tillgate.django.models.ExactField(
                        max_length=128,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("rests_until", models.DateTimeField(blank=True, null=True)),
                ("silent_since", models.DateTimeField(blank=True, null=True)),
                ("answered_at", models.DateTimeField(blank=True, null=True)),
                ("failures", models.JSONField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "lane of the worker",
                "verbose_name_plural": "lanes of the worker",
                "default_permissions": ("view",),
            },
        ),
    ]
