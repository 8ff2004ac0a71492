"""Django looks here for the pages that an app adds to the admin."""

from tillgate.django.pages.admin import OrderAdmin, PaymentAdmin, ReviewAdmin

__all__ = ["OrderAdmin", "PaymentAdmin", "ReviewAdmin"]
