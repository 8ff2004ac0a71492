"""The shop as a Django app: its templates, its style, its catalogue."""

from django.apps import AppConfig


class ExampleShopConfig(AppConfig):
    """The app of Fold & Margin itself."""

    name = "example_shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Let the shop read the vouchers of the sandbox."""
        from example_shop import vouchers
        from tillgate import hooks

        if not hooks.plugin_manager().is_registered(vouchers):
            hooks.plugin_manager().register(vouchers, name="vouchers")
