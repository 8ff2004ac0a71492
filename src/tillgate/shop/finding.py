"""Finding: the orders that staff mean by a number, an amount or the last digits of a card."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Final

from django.db.models import Q
from django.utils import timezone

from tillgate.django.models import Order, Payment, PaymentNumber, Refund
from tillgate.errors import TillgateError
from tillgate.money import read_localized
from tillgate.wire.texts import storable

__all__ = ["find_orders"]

_LONGEST: Final = 255
"""The longest text that any number of an order or a payment has: a longer one finds nothing."""
_MOST: Final = 200
_LAST_DIGITS: Final = 4
_DIGITS_FOR: Final = timedelta(days=180)
"""How long ago a payment may have begun that is found by the digits of its card: they have no
index.
"""


def find_orders(plugin: str, text: str, *, currency: str = "", language: str = "en") -> list[str]:
    """Return the keys of a plugin's orders that a text of staff may mean, at most 200.

    It finds the order's key, with or without "#", our reference, the gateway's numbers of payments
    and refunds, an amount, such as "USD 12.50" or "12,50" as the language writes it, and the last
    four digits of a card of the last 180 days. Names and addresses are the shop's own: Tillgate
    stores none.
    """
    term = text.strip().removeprefix("#").strip()
    if not term or len(term) > _LONGEST or storable(term) != term:
        return []
    ways = [  # each by itself: a database reads the whole table for one condition of them all
        Q(reference=term.upper()),
        Q(transaction_no=term),
        Q(pk__in=PaymentNumber.objects.filter(number=term).values("payment")),
        Q(pk__in=Refund.objects.filter(refund_no=term).values("payment")),
    ]
    if term.isascii() and term.isdigit() and len(term) == _LAST_DIGITS:
        since = timezone.now() - _DIGITS_FOR
        ways.append(Q(created_at__gte=since, details__paid_with__last4=term))
    amount = _amount_in(term, currency, language)
    if amount is not None:
        ways.append(Q(amount=amount))
    found: list[str] = []
    for way in ways:
        payments = Payment.objects.filter(way, order__plugin=plugin).order_by("-pk")
        found += payments.values_list("order__key", flat=True)[:_MOST]
    by_key = Order.objects.filter(plugin=plugin, key=term).values_list("key", flat=True)
    return list(dict.fromkeys([*by_key, *found]))[:_MOST]


def _amount_in(term: str, currency: str, language: str) -> Decimal | None:
    """Return the amount that a text is, with or without its currency."""
    words = term.split()
    known = next((one.upper() for one in words if one.isalpha() and len(one) == 3), currency)
    rest = "".join(one for one in words if one.upper() != known)
    try:
        return read_localized(rest, known, language) if known and rest else None
    except TillgateError:
        return None
