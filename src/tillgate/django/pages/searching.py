"""The search of staff: one box finds a payment, and its order and reviews, by all that a person may
have at hand.

Each part of it uses an index or is bounded, so that a large table answers quickly.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from tillgate import hooks
from tillgate.django.models import Order, Payment, PaymentNumber, Refund, database
from tillgate.errors import InvalidRequest
from tillgate.hooks.boundary import LONGEST_NUMBER
from tillgate.money import read_localized

_log = logging.getLogger("tillgate")

_MOST: Final = 100
"""The rows of each kind that a search finds at most, the newest first."""
_SHORTEST_TEXT: Final = 3
_LONGEST_TEXT: Final = 100
_REFERENCE: Final = re.compile(r"[A-Z0-9][A-Z0-9-]{2,63}", re.ASCII)
_AMOUNT: Final = re.compile(r"(?:[A-Za-z]{3}\s*)?[\d.,'\s]*\d\s*(?:[A-Za-z]{3})?", re.ASCII)


@dataclass(slots=True)
class Found:
    """The numbers of the rows that a search has found, and a sentence about a text that cannot be
    searched for.
    """

    payments: set[int] = field(default_factory=set)
    orders: set[int] = field(default_factory=set)
    hint: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found."""
        return not self.payments and not self.orders

    # A condition about two tables, or a subquery with "or", would make the database read a table
    # whole: the numbers are read first.
    @property
    def of_payments(self) -> Q:
        """The condition for rows of payments."""
        of_orders = Payment.objects.filter(order__in=self.orders)
        return Q(pk__in=self.payments.union(of_orders.values_list("pk", flat=True)))

    @property
    def of_orders(self) -> Q:
        """The condition for rows of orders."""
        of_payments = Payment.objects.filter(pk__in=self.payments)
        return Q(pk__in=self.orders.union(of_payments.values_list("order", flat=True)))

    @property
    def of_reviews(self) -> Q:
        """The condition for rows of reviews."""
        return Q(payment__in=self.payments) | Q(order__in=self.orders)


def search(text: str) -> Found:
    """Return the rows with a text that staff search for: an order's number with or without "#", a
    name, an e-mail address, an amount, our reference, a number of the gateway, or the last four
    digits of a card.

    A text that can be none of them finds nothing.
    """
    term = " ".join(text.replace("\0", " ").split()).removeprefix("#").strip()
    found = Found()
    if len(term) > LONGEST_NUMBER:
        found.hint = _("This is longer than anything that can be found.")
    if not term or found.hint:
        return found
    # A whole reference is one payment: nothing else is meant, and no table is read for it.
    exact = Payment.objects.filter(reference=term.upper()).values_list("pk", flat=True).first()
    if exact is not None:
        found.payments.add(exact)
        return found
    # the index of the keys begins with the plugin
    plugins = [name for name, _plugin in hooks.plugin_manager().list_name_plugin()]
    found.orders.update(_first(Order.objects.filter(plugin__in=plugins, key=term)))
    found.payments.update(_by_number(term))
    found.orders.update(_told_by_shops(term))
    if term.isascii() and term.isdigit() and len(term) == 4:
        found.payments.update(_first(Payment.objects.filter(last4=term)))
    if found.is_empty or not term.isdigit():
        # An order's number is not meant as an amount.
        found.payments.update(_by_amount(term))
    if found.is_empty and _REFERENCE.fullmatch(term.upper()):
        found.payments.update(_by_beginning(term.upper()))
    if found.is_empty and len(term) < _SHORTEST_TEXT:
        found.hint = _("Nothing has this number. Type at least three characters of a name.")
    return found


def _first(rows: QuerySet[Payment] | QuerySet[Order]) -> list[int]:
    return list(rows.order_by("-pk").values_list("pk", flat=True)[:_MOST])


def _by_number(term: str) -> Iterator[int]:
    yield from _first(Payment.objects.filter(transaction_no=term))
    further = PaymentNumber.objects.filter(number=term)
    yield from further.values_list("payment_id", flat=True)[:_MOST]
    refunds = Refund.objects.filter(Q(refund_no=term) | Q(refund_id=term.upper()))
    yield from refunds.values_list("payment_id", flat=True)[:_MOST]


def _by_beginning(term: str) -> list[int]:
    """Return some payments whose references begin with a text.

    The references alone are read first: they are in an index, and much less than the rows.
    """
    references = Payment.objects.order_by("reference").values_list("reference", flat=True)
    found = list(references.filter(reference__startswith=term)[:_MOST])
    return _first(Payment.objects.filter(reference__in=found))


def _by_amount(term: str) -> list[int]:
    """Return the newest payments of an amount, as the language of the page writes it."""
    if not _AMOUNT.fullmatch(term):
        return []
    digits = "".join(char for char in term if char in "0123456789.,'")
    try:
        # Three decimals fit every currency.
        amount = read_localized(digits, "KWD", get_language() or "en")
    except InvalidRequest:
        return []
    return _first(Payment.objects.filter(amount=amount))


def _told_by_shops(term: str) -> Iterator[int]:
    """Yield the orders that the shops' plugins find. A shop that fails finds none."""
    if not _SHORTEST_TEXT <= len(term) <= _LONGEST_TEXT:
        return
    for plugin, _plugin in hooks.plugin_manager().list_name_plugin():
        if not hooks.implements(plugin, "tillgate_find_orders"):
            continue
        try:
            with transaction.atomic(using=database()):
                keys = hooks.call_owner(plugin, "tillgate_find_orders", text=term, limit=_MOST)
        except Exception:  # the shop's own code may raise anything
            _log.exception("plugin %s could not search for orders", plugin)
            continue
        chosen = [key for key in keys or () if isinstance(key, str)][:_MOST]
        yield from _first(Order.objects.filter(plugin=plugin, key__in=chosen))
