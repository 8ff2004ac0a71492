"""CSV of payments and refunds: every row once, exact amounts, and no cell that a spreadsheet
runs.
"""

from __future__ import annotations

import csv

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.django.bookings import payment, refund
from tillgate.django.accounting.exports import csv_lines, payment_rows, refund_rows
from tillgate.django.models import Payment, Refund


def _read(lines: list[str]) -> list[dict[str, str]]:
    return list(csv.DictReader(lines))


def test_payment_export_is_exact_and_cheap() -> None:
    """It has the refunded amount and exact amounts, in few statements."""
    paid = payment("A", "10.00", "2026-03-01T10:00+00:00", key="100001")
    payment("Y", "300", "2026-03-01T10:00+00:00", currency="JPY")
    for amount, status in (("1.10", "succeeded"), ("2.20", "succeeded"), ("5.00", "failed")):
        refund(paid, amount, "2026-03-01T12:00+00:00", status=status, reason="broken, sorry")
    with CaptureQueriesContext(connection) as asked:
        first, second = _read(list(csv_lines(payment_rows(Payment.objects.all()))))
    assert (first["reference"], first["order"], first["amount"], first["refunded_amount"]) == (
        "A",
        "100001",
        "10.00",
        "3.30",
    )
    assert (second["amount"], second["refunded_amount"], second["transaction_no"]) == (
        "300",
        "0",
        "no-Y",
    )
    assert len(asked) <= 3  # payments, their refunds, and no tests
    refunds = _read(list(csv_lines(refund_rows(Refund.objects.all()))))
    assert [(one["reference"], one["amount"], one["status"], one["reason"]) for one in refunds] == [
        ("A", "1.10", "succeeded", "broken, sorry"),
        ("A", "2.20", "succeeded", "broken, sorry"),
        ("A", "5.00", "failed", "broken, sorry"),
    ]


@pytest.mark.parametrize("evil", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1"])  # noqa: RUF001
def test_no_cell_begins_as_a_formula(evil: str) -> None:
    payment("A", "10.00", "2026-03-01T10:00+00:00", key=evil)
    (row,) = _read(list(csv_lines(payment_rows(Payment.objects.all()))))
    assert row["order"][0] in "'\\"


@pytest.mark.parametrize("evil", ["a;=1+1", "a; @SUM(A1)", 'a";=1'])
def test_no_part_of_cell_is_formula(evil: str) -> None:
    payment("A", "10.00", "2026-03-01T10:00+00:00", key=evil)
    lines = list(csv_lines(payment_rows(Payment.objects.all())))
    assert all(line.startswith('"') and line.endswith('"\n') for line in lines)
    assert not any(
        cell.lstrip().startswith(("=", "@")) for line in lines for cell in line.split(";")
    )


@pytest.mark.parametrize(
    ("number", "cell"),
    [("123456789012345678", "'123456789012345678"), ("007", "'007"), ("100001", "100001")],
)
def test_transaction_number_stays_text(number: str, cell: str) -> None:
    payment("A", "100000000000", "2026-03-01T10:00+00:00", currency="JPY", key=number)
    Payment.objects.update(transaction_no=number)
    (row,) = _read(list(csv_lines(payment_rows(Payment.objects.all()))))
    assert (row["transaction_no"], row["order"], row["amount"]) == (cell, cell, "100000000000")
