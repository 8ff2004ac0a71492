"""An order: its price, and its status."""

from django.db import models

from tillgate.shop import MoneyField


class ShopOrder(models.Model):
    """One order of the smallest shop."""

    total = MoneyField()
    currency = models.CharField(max_length=3, default="USD")
    status = models.CharField(max_length=16, default="open")  # open, paid, cancelled
    times_paid = models.PositiveIntegerField(default=0)
    paid_amount = MoneyField(default=0)
    times_released = models.PositiveIntegerField(default=0)
    refunded = MoneyField(default=0)
