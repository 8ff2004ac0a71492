from django.db import migrations

from tillgate.django.models import MoneyField


class Migration(migrations.Migration):
    dependencies = [
        ("tillgate_saleor", "0002_purchases_by_channel"),
    ]

    operations = [
        migrations.AddField(
            model_name="purchase",
            name="costs",
            field=MoneyField(blank=True, null=True),
        ),
    ]
