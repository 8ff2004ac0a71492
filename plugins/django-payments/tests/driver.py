"""The driver: how tests talk to a shop on django-payments."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Sum
from django.urls import reverse
from payments import PaymentError, PaymentStatus, RedirectNeeded

from tests.shop.models import Entry, Order, Payment
from tillgate.testing.driver import ShopDriver


class ChoosingDriver(ShopDriver):
    """A shop with one variant: its shoppers choose the payment method on Tillgate's page."""

    plugin = "django-payments"

    def _payment(self, order_key: str) -> Any:
        return Payment.objects.get(pk=order_key)

    def place_order(self, total: Decimal) -> str:
        """Write order and payment, and ask the provider for the way, in one transaction as a
        checkout does.
        """
        with transaction.atomic():
            payment = Payment.objects.create(
                order=Order.objects.create(),
                variant="online",
                total=total,
                currency="USD",
            )
            with pytest.raises(RedirectNeeded, match=r"^/tillgate/pay/"):
                payment.get_form()
        return str(payment.pk)

    def pay_path(self, order_key: str) -> str | None:
        """Ask the provider for the way, as the shop's page does."""
        payment = self._payment(order_key)
        if payment.variant == "invoice":
            return None  # another provider's: Tillgate has no way to pay it
        try:
            payment.get_form()
        except RedirectNeeded as way:
            return str(way)
        except PaymentError:
            return None
        raise AssertionError("the provider has no form")

    def is_paid(self, order_key: str) -> bool:
        return bool(self._payment(order_key).status == PaymentStatus.CONFIRMED)

    def times_paid(self, order_key: str) -> int:
        heard = Entry.objects.filter(
            payment_id=int(order_key),
            status=PaymentStatus.CONFIRMED,
        ).count()
        return max(heard, Entry.objects.filter(payment_id=int(order_key), money__gt=0).count())

    def paid_amount(self, order_key: str) -> Decimal:
        return Entry.objects.filter(payment_id=int(order_key), money__gt=0).aggregate(
            sum=Sum("money"),
        )["sum"] or Decimal(0)

    def refunded(self, order_key: str) -> Decimal:
        entries = Entry.objects.filter(payment_id=int(order_key))
        booked = entries.aggregate(sum=Sum("money"))["sum"] or Decimal(0)
        assert booked == self._payment(order_key).captured_amount, "the ledger and the row disagree"
        return -(entries.filter(money__lt=0).aggregate(sum=Sum("money"))["sum"] or Decimal(0))

    def is_payable(self, order_key: str) -> bool:
        return self._payment(order_key).status in (PaymentStatus.WAITING, PaymentStatus.INPUT)

    def is_released(self, order_key: str) -> bool:
        return bool(self._payment(order_key).status == PaymentStatus.REJECTED)

    def times_released(self, order_key: str) -> int:
        return Entry.objects.filter(
            payment_id=int(order_key),
            status=PaymentStatus.REJECTED,
        ).count()

    def close_order(self, order_key: str) -> None:
        self._payment(order_key).cancel()

    def edit_total(self, order_key: str, total: Decimal) -> None:
        Payment.objects.filter(pk=order_key).update(total=total)

    def place_free_order(self) -> str:
        """The shop confirms a payment of nothing itself: the provider refuses it."""
        payment = Payment.objects.create(
            order=Order.objects.create(),
            variant="online",
            total=Decimal("0.00"),
            currency="USD",
        )
        with pytest.raises(PaymentError, match="there is nothing to pay"):
            payment.get_form()
        payment.change_status(PaymentStatus.CONFIRMED)
        return str(payment.pk)

    def place_order_in(self, currency: str, total: Decimal) -> str:
        """The provider names the way to pay this row only where the account takes it; a guess gets
        no further.
        """
        payment = Payment.objects.create(
            order=Order.objects.create(),
            variant="online",
            total=total,
            currency=currency,
        )
        with pytest.raises((PaymentError, RedirectNeeded)):
            payment.get_form()
        return str(payment.pk)

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        payment = Payment.objects.create(
            order=Order.objects.create(),
            variant="invoice",
            total=total,
            currency="USD",
        )
        payment.captured_amount = total
        payment.save()
        payment.change_status(PaymentStatus.CONFIRMED)
        return str(payment.pk)


class FixedMethodsDriver(ChoosingDriver):
    """A shop with a variant for each payment method: its shoppers choose on its own page."""

    def pay_path(self, order_key: str) -> str:
        return reverse("checkout", args=[order_key])
