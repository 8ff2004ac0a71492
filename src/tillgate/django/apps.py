"""The app: label `tillgate`, tables `tillgate_*`."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TillgateConfig(AppConfig):
    """Tillgate's rows, pages, checks and commands."""

    name = "tillgate.django"
    label = "tillgate"
    verbose_name = _("Payments")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks and the observers."""
        from tillgate.django.operating import observers  # importing the checks registers them

        observers.register()
