"""The shop's own app."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from tests.shop import bookkeeping

        bookkeeping.keep()
