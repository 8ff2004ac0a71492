"""The version of each Saleor: it decides what a report may contain."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tillgate_saleor", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="installation",
            name="version",
            field=models.CharField(blank=True, db_default="", default="", max_length=32),
        ),
    ]
