"""The worker's marks at the events that it delivers."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the column."""

    dependencies = [("tillgate", "0001_initial")]

    operations = [
        migrations.AddField("outboxevent", "begun_at", models.DateTimeField(blank=True, null=True)),
    ]
