"""The shop as a Django app; it plugs itself in when Django is ready."""

from __future__ import annotations

from django.apps import AppConfig

from tillgate import hooks


class ShopConfig(AppConfig):
    """A shop with two kinds of rows."""

    name = "tools.benchmarks.shop"
    label = "benchmark_shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the shop, and an observer beside those that come with the app: all hooks are
        on.
        """
        from tillgate import shop
        from tools.benchmarks.shop import plugin

        shop.register(plugin, "benchmark-shop")
        hooks.plugin_manager().register(plugin.Observer(), name="benchmark-observer")
