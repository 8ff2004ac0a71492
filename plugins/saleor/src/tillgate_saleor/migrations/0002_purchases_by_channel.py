from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tillgate_saleor", "0001_initial"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="purchase",
            index=models.Index(fields=["installation", "channel"], name="tillgate_saleor_by_channel"),
        ),
    ]
