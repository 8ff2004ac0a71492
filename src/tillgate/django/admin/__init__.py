"""The admin: payments, orders and reviews. It reads rows and calls operations; it never edits a row."""

from tillgate.django.admin.orders import OrderAdmin
from tillgate.django.admin.payments import PaymentAdmin
from tillgate.django.admin.reviews import ReviewAdmin

__all__ = ["OrderAdmin", "PaymentAdmin", "ReviewAdmin"]
