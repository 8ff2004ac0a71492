from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tillgate", "0005_accepted"),
    ]

    operations = [
        migrations.AddField(
            model_name="attention",
            name="mailed",
            field=models.JSONField(default=list, null=True),
        ),
    ]
