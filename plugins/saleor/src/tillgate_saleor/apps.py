"""The app: label `tillgate_saleor`. Its tables store the Saleors that have installed it, and their
transactions.
"""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TillgateSaleorConfig(AppConfig):
    """Connects the transactions of Saleor to Tillgate."""

    name = "tillgate_saleor"
    label = "tillgate_saleor"
    verbose_name = _("Payments of Saleor")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the plugin and the system checks."""
        from tillgate import shop
        from tillgate_saleor import checks, conf, plugin  # noqa: F401  # the checks register

        shop.register(plugin, conf.PLUGIN)
