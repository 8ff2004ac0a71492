"""What the gateway says for people, numbers to search by, and closed payment pages."""

import django.db.models.deletion
from django.db import migrations, models

import tillgate.django.models


class Migration(migrations.Migration):
    """Add the column and the table."""

    dependencies = [("tillgate", "0005_heartbeats")]

    operations = [
        migrations.AddField(
            "payment",
            "details",
            models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
            ),
        ),
        migrations.AddField(
            "payment",
            "hinted_no",
            models.CharField(blank=True, max_length=255, null=True),
        ),
        migrations.AddField(
            "payment",
            "close_wanted_at",
            models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            "payment",
            "page_closed_at",
            models.DateTimeField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="PaymentNumber",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("number", tillgate.django.models.ExactField(db_index=True, max_length=255)),
                (
                    "payment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="numbers",
                        to="tillgate.payment",
                    ),
                ),
            ],
            options={
                "verbose_name": "number of a payment",
                "verbose_name_plural": "numbers of payments",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("payment", "number"),
                        name="tillgate_payment_number",
                    ),
                ],
            },
        ),
    ]
