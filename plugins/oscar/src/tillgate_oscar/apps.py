"""The app: label `tillgate_oscar`. It has no tables of its own; the tables of Oscar and Tillgate
store everything.
"""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TillgateOscarConfig(AppConfig):
    """Connects Oscar's orders to Tillgate."""

    name = "tillgate_oscar"
    label = "tillgate_oscar"
    verbose_name = _("Payments of Oscar's orders")

    def ready(self) -> None:
        """Register the plugin and the system checks, and listen to Oscar's signals."""
        from tillgate import shop
        from tillgate_oscar import checks, conf, plugin, signals  # noqa: F401  # the checks register

        shop.register(plugin, conf.PLUGIN)
        signals.connect(self)
