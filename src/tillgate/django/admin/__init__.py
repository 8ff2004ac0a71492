"""The admin: payments, orders and what needs a person. It reads rows and calls operations; it never edits one."""

from tillgate.django.admin.attention import AttentionAdmin
from tillgate.django.admin.orders import OrderAdmin
from tillgate.django.admin.payments import PaymentAdmin

__all__ = ["AttentionAdmin", "OrderAdmin", "PaymentAdmin"]
