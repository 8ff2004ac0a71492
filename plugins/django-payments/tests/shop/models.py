"""A small shop on django-payments, as its documentation has one: an order, and payments that are
paid for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from django.db import models
from django.urls import reverse
from payments import PurchasedItem
from payments.models import BasePayment


class Order(models.Model):  # type: ignore[django-manager-missing]  # the library has no types
    """A purchase. Each attempt of the checkout makes a payment of its own for it, as many shops
    have it.
    """

    title = models.CharField(max_length=100, default="Green tea")
    quantity = models.PositiveIntegerField(default=1)


class Payment(BasePayment):  # type: ignore[misc]  # the library has no types
    """The shop's PAYMENT_MODEL."""

    order = models.ForeignKey(Order, models.CASCADE, related_name="payments")

    def not_payable_detail(self) -> str | None:
        order = Order.objects.select_for_update().get(pk=self.order_id)
        return "its order is paid" if order.payments.filter(status="confirmed").exists() else None

    def get_purchased_items(self) -> Iterable[PurchasedItem]:
        yield PurchasedItem(
            self.order.title,
            self.order.quantity,
            Decimal(self.total),
            self.currency,
            "TEA-1",
        )

    def get_success_url(self) -> str:
        return reverse("thanks", args=[self.pk])

    def get_failure_url(self) -> str:
        return reverse("checkout", args=[self.pk])


class CardPayment(Payment):
    """A payment with more to it than the shop's PAYMENT_MODEL has."""

    last_digits = models.CharField(max_length=4, default="4242")


class Entry(models.Model):
    """A line in the shop's books: every status that it heard of, and every change of the money that
    a payment holds.
    """

    payment = models.ForeignKey(Payment, models.CASCADE, related_name="entries")
    status = models.CharField(max_length=10, blank=True)
    money = models.DecimalField(max_digits=9, decimal_places=2, default=0)
