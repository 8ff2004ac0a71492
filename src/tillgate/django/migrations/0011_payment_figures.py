"""Indexes for figures, which read no rows, and for the search by amount."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Replace the index of the figures, and add another."""

    dependencies = [("tillgate", "0010_payment_last4")]

    operations = [
        migrations.AddIndex(
            "payment",
            models.Index(
                fields=["sandbox", "status_since", "status", "currency", "method", "amount"],
                name="tillgate_payment_figures",
            ),
        ),
        migrations.AddIndex(
            "payment",
            models.Index(fields=["amount"], name="tillgate_payment_by_amount"),
        ),
        migrations.RemoveIndex("payment", "tillgate_payment_since"),
    ]
