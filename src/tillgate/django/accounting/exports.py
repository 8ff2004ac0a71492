"""Payments and refunds as CSV: names and numbers for programs, and cells that no
spreadsheet takes for a formula.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.db.models import QuerySet

from tillgate import money
from tillgate.django import dates
from tillgate.django.models import Payment, Refund
from tillgate.lifecycle import RefundStatus
from tillgate.wire.texts import printable

_BATCH: Final = 1000
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
    columns = (
        "reference",
        "order__plugin",
        "order__key",
        "account",
        "sandbox",
        "method",
        "amount",
        "currency",
        "status",
    )
    chosen = (
        payments.order_by("id")
        .values_list("id", *columns, "created_at", "status_since", "transaction_no")
        .iterator(chunk_size=_BATCH)
    )
    while batch := list(itertools.islice(chosen, _BATCH)):
        refunded = defaultdict[int, list[Decimal]](list)
        succeeded = Refund.objects.filter(
            payment__in=[row[0] for row in batch],
            status=RefundStatus.SUCCEEDED,
        )
        for payment, part in succeeded.values_list("payment_id", "amount"):
            refunded[payment].append(part)
        for (
            payment,
            *names,
            sandbox,
            method,
            amount,
            currency,
            status,
            started,
            since,
            number,
        ) in batch:
            yield [
                *(
                    *map(number_as_text, names),
                    _yes(sandbox),
                    method,
                    money.amount_text(amount, currency),
                    currency,
                    status,
                    _time(started),
                    _time(since),
                ),
                *(
                    number_as_text(number),
                    money.amount_text(money.total(refunded[payment]), currency),
                ),
            ]


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
    of_payment = ("reference", "order__plugin", "order__key", "account", "sandbox", "method")
    chosen = refunds.order_by("id").values_list(
        *(
            "refund_id",
            *(f"payment__{name}" for name in of_payment),
            "amount",
            "payment__currency",
            "status",
        ),
        *("created_at", "status_since", "refund_no", "external", "requested_by", "reason"),
    )
    for (
        *names,
        sandbox,
        method,
        amount,
        currency,
        status,
        asked,
        since,
        number,
        external,
        by,
        reason,
    ) in chosen.iterator(chunk_size=_BATCH):
        yield [
            *(
                *map(number_as_text, names),
                _yes(sandbox),
                method,
                money.amount_text(amount, currency),
                currency,
                status,
                _time(asked),
                _time(since),
            ),
            *(number_as_text(number), _yes(external), by, reason),
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
