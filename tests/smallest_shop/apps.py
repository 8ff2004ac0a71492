"""The shop as a Django app; it plugs itself in when Django is ready."""

from django.apps import AppConfig

from tillgate import hooks


class SmallestShopConfig(AppConfig):
    """A shop with one kind of row."""

    name = "tests.smallest_shop"
    label = "smallest_shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the plugin under the name that Tillgate's rows will carry."""
        from tests.smallest_shop import plugin

        if not hooks.plugin_manager().has_plugin("smallest-shop"):
            hooks.plugin_manager().register(plugin, name="smallest-shop")
