"""Figures, payments and refunds as CSV for spreadsheets: the words, the decimal sign and the times
of the page, and cells that no spreadsheet takes for a formula.

`exports` has the same rows with names and numbers for programs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db.models import QuerySet
from django.utils import translation
from django.utils.translation import gettext as _

from tillgate import hooks, money
from tillgate.django import dates, words
from tillgate.django.accounting.exports import Row, csv_lines, number_as_text, refunded_of
from tillgate.django.accounting.figures import Figure, Kind, in_batches
from tillgate.django.models import Payment, Refund
from tillgate.django.orders.customers import customers_of
from tillgate.money import Money

_STYLES: Final = {"point": ".", "comma": ","}


class Sheet:
    """The way in which a person's spreadsheet reads CSV: a decimal comma goes with semicolons, as
    where that language is spoken. `style` is "point" or "comma"; any other follows the language.
    """

    def __init__(self, language: str, style: str = "") -> None:
        self._language = language
        self._sign = _STYLES.get(style) or money.decimal_sign(language)

    def figures(self, figures: Iterable[Figure]) -> Iterator[str]:
        """Yield the lines of figures by day."""
        return self._lines(self._figure_rows, [list(figures)])

    def payments(self, payments: QuerySet[Payment]) -> Iterator[str]:
        """Yield the lines of payments, read bit by bit."""
        return self._lines(self._payment_rows, in_batches(payments.select_related("order")))

    def refunds(self, refunds: QuerySet[Refund]) -> Iterator[str]:
        """Yield the lines of refunds, read bit by bit."""
        read = refunds.select_related("payment__order")
        return self._lines(self._refund_rows, in_batches(read))

    def _lines(self, rows_of: Callable[[list[Any]], list[Row]], batches: Any) -> Iterator[str]:
        delimiter = ";" if self._sign == "," else ","
        for batch in itertools.chain([[]], batches):  # the headings first, also of nothing
            # The server sends the lines after the request, when its language has ended.
            with translation.override(self._language):
                rows = rows_of(batch)
            yield from csv_lines(rows, delimiter=delimiter)

    def _figure_rows(self, figures: list[Figure]) -> list[Row]:
        if not figures:
            names = (_("Day"), _("Kind"), _("Payment method"), _("Status"), _("Number"))
            return [[*names, _("Amount"), _("Currency")]]
        kinds = {Kind.PAYMENT: _("payment"), Kind.REFUND: _("refund")}
        statuses = {Kind.PAYMENT: words.PAYMENT_STATUSES, Kind.REFUND: words.REFUND_STATUSES}
        return [
            [
                one.day.isoformat(),
                kinds[one.kind],
                words.method_name(one.method),
                str(statuses[one.kind][one.status].label),
                one.count,
                self._amount(one.amount, one.currency),
                one.currency,
            ]
            for one in figures
        ]

    def _payment_rows(self, payments: list[Payment]) -> list[Row]:
        if not payments:
            return [
                [
                    *(_("Date"), _("Started"), _("Order"), _("Customer"), _("E-mail address")),
                    *(_("Paid with"), _("Amount"), _("Refunded"), _("Fee"), _("Net")),
                    *(_("Available for payout"), _("Currency"), _("Status")),
                    *(_("Reference"), _("Transaction number")),
                    *(_("Account"), _("Test")),
                ],
            ]
        refunded = refunded_of(payments)
        customers = customers_of((one.order.plugin, one.order.key) for one in payments)
        return [
            self._payment_row(
                one,
                refunded[one.pk],
                customers.get((one.order.plugin, one.order.key), hooks.Customer()),
            )
            for one in payments
        ]

    def _payment_row(self, one: Payment, refunded: Decimal, customer: hooks.Customer) -> Row:
        known, currency = one.known, one.currency
        return [
            *(_time(one.status_since), _time(one.created_at), number_as_text(one.order.key)),
            *(customer.name, customer.email, words.paid_with(one.method, known.paid_with)),
            *(self._amount(one.amount, currency), self._amount(refunded, currency)),
            *(self._cost(known.fee, currency), self._cost(known.net, currency)),
            *(_time(known.available_on) if known.available_on else "", currency),
            *(str(words.PAYMENT_STATUSES[one.status].label), one.reference),
            *(number_as_text(one.transaction_no), one.account, _("yes") if one.sandbox else ""),
        ]

    def _refund_rows(self, refunds: list[Refund]) -> list[Row]:
        if not refunds:
            return [
                [
                    *(_("Date"), _("Requested"), _("Order"), _("Customer"), _("E-mail address")),
                    *(_("Paid with"), _("Amount"), _("Currency"), _("Status"), _("Reason")),
                    *(_("Requested by"), _("Reference"), _("Number of the refund")),
                    *(_("Account"), _("Test")),
                ],
            ]
        of_orders = {one.pk: (one.payment.order.plugin, one.payment.order.key) for one in refunds}
        customers = customers_of(of_orders.values())
        return [
            self._refund_row(one, customers.get(of_orders[one.pk], hooks.Customer()))
            for one in refunds
        ]

    def _refund_row(self, one: Refund, customer: hooks.Customer) -> Row:
        paid = one.payment
        return [
            *(_time(one.status_since), _time(one.created_at), number_as_text(paid.order.key)),
            *(customer.name, customer.email, words.paid_with(paid.method, paid.known.paid_with)),
            *(self._amount(one.amount, paid.currency), paid.currency),
            *(str(words.REFUND_STATUSES[one.status].label), one.reason, one.requested_by),
            *(paid.reference, number_as_text(one.refund_no), paid.account),
            _("yes") if paid.sandbox else "",
        ]

    def _amount(self, amount: Decimal, currency: str) -> str:
        return money.amount_text(amount, currency).replace(".", self._sign)

    def _cost(self, cost: Money | None, currency: str) -> str:
        if cost is None:
            return ""
        text = self._amount(cost.amount, cost.currency)
        return text if cost.currency == currency else f"{text} {cost.currency}"


def _time(moment: datetime) -> str:
    """Return a time in the project's time zone, as every spreadsheet reads it."""
    return f"{dates.local(moment):%Y-%m-%d %H:%M:%S}"
