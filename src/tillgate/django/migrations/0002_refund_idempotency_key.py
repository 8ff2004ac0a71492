from django.db import migrations, models

import tillgate.django.models


class Migration(migrations.Migration):
    dependencies = [("tillgate", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="refund",
            name="idempotency_key",
            field=tillgate.django.models.ExactField(blank=True, max_length=255, null=True),
        ),
        migrations.AddConstraint(
            model_name="refund",
            constraint=models.UniqueConstraint(
                fields=("payment", "idempotency_key"),
                name="tillgate_refund_key",
            ),
        ),
    ]
