from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tillgate", "0008_review_taken_by"),
    ]

    operations = [
        migrations.AddField(
            model_name="order",
            name="under_way_since",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="payment",
            name="last_returned_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
