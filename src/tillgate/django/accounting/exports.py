"""Payments and refunds as CSV: names and numbers for programs, and cells that no
spreadsheet takes for a formula.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db.models import QuerySet

from tillgate import money
from tillgate.django import dates
from tillgate.django.accounting.figures import in_batches
from tillgate.django.models import Payment, Refund
from tillgate.lifecycle import RefundStatus
from tillgate.wire.texts import printable

# spreadsheets read the wide signs too
_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001
_AFTER_SEMICOLON: Final = re.compile(rf"(;\s*)(?=[{re.escape(''.join(_FORMULA))}])")
_LONGEST_NUMBER: Final = 11
"""The digits that every spreadsheet shows as they are."""

Row = list[Any]


def payment_rows(payments: QuerySet[Payment]) -> Iterator[Row]:
    """Yield the columns, and a row for each payment."""
    yield [
        *(
            "reference",
            "plugin",
            "order",
            "account",
            "sandbox",
            "method",
            "amount",
            "currency",
            "status",
        ),
        *("started_at", "status_since", "transaction_no", "refunded_amount"),
    ]
    # the index of the figures begins with the kind of money
    for sandbox in (False, True):
        for batch in in_batches(payments.filter(sandbox=sandbox).select_related("order")):
            refunded = refunded_of(batch)
            yield from (_payment_row(one, refunded[one.pk]) for one in batch)


def _payment_row(one: Payment, refunded: Decimal) -> Row:
    names = (one.reference, one.order.plugin, one.order.key, one.account)
    return [
        *map(number_as_text, names),
        _yes(one.sandbox),
        one.method,
        money.amount_text(one.amount, one.currency),
        one.currency,
        one.status,
        _time(one.created_at),
        _time(one.status_since),
        number_as_text(one.transaction_no),
        money.amount_text(refunded, one.currency),
    ]


def refunded_of(payments: list[Payment]) -> Mapping[int, Decimal]:
    """Return how much of each payment went back for certain, read at once for all of them."""
    parts = defaultdict[int, list[Decimal]](list)
    succeeded = Refund.objects.filter(payment__in=payments, status=RefundStatus.SUCCEEDED)
    for pk, part in succeeded.values_list("payment_id", "amount"):
        parts[pk].append(part)
    return {one.pk: money.total(parts[one.pk]) for one in payments}


def refund_rows(refunds: QuerySet[Refund]) -> Iterator[Row]:
    """Yield the columns, and a row for each refund."""
    yield [
        *(
            "refund_id",
            "reference",
            "plugin",
            "order",
            "account",
            "sandbox",
            "method",
            "amount",
            "currency",
            "status",
        ),
        *("requested_at", "status_since", "refund_no", "external", "requested_by", "reason"),
    ]
    for batch in in_batches(refunds.select_related("payment__order")):
        yield from map(_refund_row, batch)


def _refund_row(one: Refund) -> Row:
    paid = one.payment
    names = (one.refund_id, paid.reference, paid.order.plugin, paid.order.key, paid.account)
    return [
        *map(number_as_text, names),
        _yes(paid.sandbox),
        paid.method,
        money.amount_text(one.amount, paid.currency),
        paid.currency,
        one.status,
        _time(one.created_at),
        _time(one.status_since),
        number_as_text(one.refund_no),
        _yes(one.external),
        one.requested_by,
        one.reason,
    ]


def csv_lines(rows: Iterable[Row], *, delimiter: str = ",") -> Iterator[str]:
    """Yield each row as a line of CSV with every cell quoted."""
    writer = csv.writer(
        _Line(),
        delimiter=delimiter,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL,
    )
    for row in rows:
        yield writer.writerow([_safe(cell) if isinstance(cell, str) else cell for cell in row])


class _Line:
    """The file of `csv.writer`, whose `writerow` returns the line."""

    def write(self, line: str) -> str:
        return line


def _safe(cell: str) -> str:
    # Where a comma is the decimal sign, spreadsheets split lines at semicolons, even inside of
    # quoted cells after the first.
    text = _AFTER_SEMICOLON.sub(r"\1'", printable(cell))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def number_as_text(number: str | None) -> str:
    """Return a number that names something as a spreadsheet leaves it: it would round long ones,
    and drop zeros in front.
    """
    text = number or ""
    is_changed = text.isdigit() and (len(text) > _LONGEST_NUMBER or text.startswith("0"))
    return f"'{text}" if is_changed else text


def _time(moment: datetime) -> str:
    return dates.local(moment).isoformat(timespec="seconds")


def _yes(flag: bool) -> str:  # noqa: FBT001  # a value of a row
    return "yes" if flag else "no"
