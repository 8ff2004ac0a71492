"""Figures, payments and refunds as CSV: names and numbers for programs, and cells that no spreadsheet takes for a formula."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db.models import QuerySet

from tillgate import money
from tillgate.django import clock
from tillgate.django.models import Payment, Refund
from tillgate.django.operations.figures import Figure
from tillgate.lifecycle import RefundStatus
from tillgate.wire.texts import printable

__all__ = ["csv_lines", "figure_rows", "payment_rows", "refund_rows"]

_BATCH: Final = 1000
_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001  # spreadsheets read the wide signs too

Row = list[Any]


def figure_rows(figures: Iterable[Figure]) -> Iterator[Row]:
    """Yield the columns, and a row for each figure."""
    yield ["day", "kind", "method", "currency", "status", "count", "amount"]
    for one in figures:
        yield [one.day, one.kind, one.method, one.currency, one.status, one.count, _amount(one.amount, one.currency)]


def payment_rows(payments: QuerySet[Payment]) -> Iterator[Row]:
    """Yield the columns, and a row for each payment."""
    yield [
        *("reference", "plugin", "order", "account", "sandbox", "method", "amount", "currency", "status"),
        *("started_at", "status_since", "transaction_no", "refunded_amount"),
    ]
    chosen = payments.select_related("order").prefetch_related("refunds").order_by("id")
    for one in chosen.iterator(chunk_size=_BATCH):
        refunded = money.total(refund.amount for refund in one.refunds.all() if refund.status == RefundStatus.SUCCEEDED)
        yield [
            *(one.reference, one.order.plugin, one.order.key, one.account, _yes(one.sandbox), one.method),
            *(_amount(one.amount, one.currency), one.currency, one.status, _time(one.created_at), _time(one.status_since)),
            *(one.transaction_no or "", _amount(refunded, one.currency)),
        ]


def refund_rows(refunds: QuerySet[Refund]) -> Iterator[Row]:
    """Yield the columns, and a row for each refund."""
    yield [
        *("refund_id", "reference", "plugin", "order", "account", "sandbox", "method", "amount", "currency", "status"),
        *("requested_at", "status_since", "refund_no", "external", "requested_by", "reason"),
    ]
    for one in refunds.select_related("payment__order").order_by("id").iterator(chunk_size=_BATCH):
        payment = one.payment
        yield [
            *(one.refund_id, payment.reference, payment.order.plugin, payment.order.key, payment.account, _yes(payment.sandbox)),
            *(payment.method, _amount(one.amount, payment.currency), payment.currency, one.status),
            *(_time(one.created_at), _time(one.status_since), one.refund_no or "", _yes(one.external), one.requested_by, one.reason),
        ]


def csv_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yield each row as a line of CSV."""
    writer = csv.writer(_Line(), lineterminator="\n")
    for row in rows:
        yield writer.writerow([_safe(cell) if isinstance(cell, str) else cell for cell in row])


class _Line:
    """The file of `csv.writer`, whose `writerow` returns the line."""

    def write(self, line: str) -> str:
        return line


def _safe(cell: str) -> str:
    text = printable(cell)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _amount(amount: Decimal, currency: str) -> Decimal:
    """Return an amount with the decimals of its currency."""
    return Decimal(money.amount_text(amount, currency))


def _time(moment: datetime) -> str:
    return clock.local(moment).isoformat(timespec="seconds")


def _yes(flag: bool) -> str:  # noqa: FBT001  # a value of a row
    return "yes" if flag else "no"
