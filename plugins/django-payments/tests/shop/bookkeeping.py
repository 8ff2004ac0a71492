"""The shop's books, kept by the signals of the library and Django; they touch the database only."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db.models import Sum
from django.db.models.signals import post_save
from payments.signals import status_changed

from tests.shop.models import Entry, Payment


def keep() -> None:
    status_changed.connect(note_status, sender=Payment, dispatch_uid="books")
    post_save.connect(note_money, sender=Payment, dispatch_uid="books")


def note_status(instance: Payment, **_: Any) -> None:
    Entry.objects.create(payment=instance, status=instance.status)


def note_money(instance: Payment, **_: Any) -> None:
    held = Payment.objects.values_list("captured_amount", flat=True).get(pk=instance.pk)
    booked = instance.entries.aggregate(sum=Sum("money"))["sum"] or Decimal(0)
    if held != booked:
        Entry.objects.create(payment=instance, money=held - booked)
