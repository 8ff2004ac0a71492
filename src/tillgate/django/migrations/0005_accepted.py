from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tillgate", "0004_confirmed_refunds"),
    ]

    operations = [
        migrations.AddField(
            model_name="attention",
            name="accepted",
            field=models.BooleanField(default=False, null=True),
        ),
    ]
