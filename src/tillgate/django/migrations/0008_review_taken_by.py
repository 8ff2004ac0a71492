"""The clerk who works on a review."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the column."""

    dependencies = [("tillgate", "0007_fewer_indexes")]

    operations = [
        migrations.AddField(
            "review",
            "taken_by",
            models.CharField(blank=True, db_default="", default="", max_length=150),
        ),
    ]
