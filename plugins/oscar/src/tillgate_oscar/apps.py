"""The app: label `tillgate_oscar`. It has no tables of its own; the tables of Oscar and Tillgate
store everything.
"""

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class TillgateOscarConfig(AppConfig):
    """Connects Oscar's orders to Tillgate."""

    name = "tillgate_oscar"
    label = "tillgate_oscar"
    verbose_name = _("Payments of Oscar's orders")

    def ready(self) -> None:
        """Register the system checks and listen to Oscar's signals."""
        from tillgate_oscar import checks  # noqa: F401  # importing the checks registers them

        if apps.is_installed("tillgate.django"):  # otherwise the checks report it
            from tillgate_oscar import signals

            signals.connect(self)
