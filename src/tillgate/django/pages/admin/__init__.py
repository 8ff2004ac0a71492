"""The admin: payments, orders and reviews. It reads rows and calls operations; it never edits a
row.
"""

from tillgate.django.pages.admin.orders import OrderAdmin
from tillgate.django.pages.admin.payments import PaymentAdmin
from tillgate.django.pages.admin.reviews import ReviewAdmin

__all__ = ["OrderAdmin", "PaymentAdmin", "ReviewAdmin"]
