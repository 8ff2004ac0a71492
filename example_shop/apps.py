"""The shop as a Django app: its templates, its style, its catalogue."""

from django.apps import AppConfig


class ExampleShopConfig(AppConfig):
    """What is Fold & Margin's own."""

    name = "example_shop"
    default_auto_field = "django.db.models.BigAutoField"
