"""The shop as a Django app; it plugs itself in when Django is ready."""

from django.apps import AppConfig


class SmallestShopConfig(AppConfig):
    """A shop with one kind of row."""

    name = "tests.smallest_shop"
    label = "smallest_shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the plugin under the name that Tillgate's rows will carry."""
        from tests.smallest_shop import plugin
        from tillgate import shop

        shop.register(plugin, "smallest-shop")
