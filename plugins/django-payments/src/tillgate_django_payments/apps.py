"""The app: label `tillgate_django_payments`. It has no tables; the shop's payments and Tillgate's
rows store everything.
"""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TillgateDjangoPaymentsConfig(AppConfig):
    """Connects the payments of django-payments to Tillgate."""

    name = "tillgate_django_payments"
    label = "tillgate_django_payments"
    verbose_name = _("Payments of django-payments")

    def ready(self) -> None:
        """Register the plugin and the system checks."""
        from tillgate import shop
        from tillgate_django_payments import checks, plugin  # noqa: F401  # the checks register
        from tillgate_django_payments.variants import PLUGIN

        shop.register(plugin, PLUGIN)
