"""The last four digits of a card, for the search of staff."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the column and its index."""

    dependencies = [("tillgate", "0009_slow_money")]

    operations = [
        migrations.AddField(
            "payment",
            "last4",
            models.CharField(blank=True, db_default="", default="", max_length=4),
        ),
        migrations.AddIndex(
            "payment",
            models.Index(fields=["last4"], name="tillgate_payment_by_last4"),
        ),
    ]
