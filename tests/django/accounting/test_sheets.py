"""CSV for spreadsheets: the page's words and numbers, and no cell that a spreadsheet runs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from tests.django.bookings import payment, refund
from tests.shop.test_summaries import DETAILS
from tillgate import hooks
from tillgate.django.accounting.figures import figures
from tillgate.django.accounting.sheets import Sheet
from tillgate.django.models import Payment, Refund
from tillgate.hooks import Customer

AT = "2026-03-01T10:00+00:00"


def read(lines: Any, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(list(lines), delimiter=delimiter))


@pytest.fixture
def shoppers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Customer]:
    """The facts that the shop's plugin knows of its shoppers, by order."""
    known: dict[str, Customer] = {}

    def call(_plugin: str, name: str, *, order_keys: Sequence[str]) -> Mapping[str, Customer]:
        assert name == "tillgate_customers"
        if "broken" in order_keys:
            raise RuntimeError
        return {key: known[key] for key in order_keys if key in known}

    monkeypatch.setattr(hooks, "call_owner", call)
    return known


def test_payment_has_words_costs_and_customer(
    shoppers: dict[str, Customer],
    settings: Any,
) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    payment("A", "1234.50", AT, key="100001")
    Payment.objects.update(details=DETAILS.as_json())
    shoppers["100001"] = Customer(name="Ann Lee", email="ann@shop.example")
    (row,) = read(Sheet("en").payments(Payment.objects.all()))
    assert row == {
        "Date": "2026-03-01 11:00:00",
        "Started": row["Started"],
        "Order": "100001",
        "Customer": "Ann Lee",
        "E-mail address": "ann@shop.example",
        "Paid with": "Visa ending 4242",
        "Amount": "1234.50",
        "Refunded": "0.00",
        "Fee": "0.61",
        "Net": "11.89",
        "Available for payout": "2026-12-07 01:00:00",
        "Currency": "USD",
        "Status": "paid",
        "Reference": "A",
        "Transaction number": "no-A",
        "Account": row["Account"],
        "Test": "",
    }


def test_german_page_writes_german_sheet(shoppers: dict[str, Customer]) -> None:
    """Its lines are made after the request, when its language has ended."""
    refund(payment("A", "1234.50", AT, key="100001"), "4.50", AT)
    with translation.override("de"):
        payments = Sheet("de").payments(Payment.objects.all())
        refunds = Sheet("de").refunds(Refund.objects.all())
    (row,) = read(payments, ";")
    assert (row["Betrag"], row["Erstattet"], row["Status"]) == ("1234,50", "4,50", "bezahlt")
    (row,) = read(refunds, ";")
    assert (row["Betrag"], row["Status"]) == ("4,50", "erstattet")
    assert translation.get_language() != "de"


def test_style_outweighs_language(shoppers: dict[str, Customer]) -> None:
    payment("A", "1234.50", AT)
    assert read(Sheet("de", "point").payments(Payment.objects.all()))[0]["Betrag"] == "1234.50"
    assert read(Sheet("en", "comma").payments(Payment.objects.all()), ";")[0]["Amount"] == "1234,50"


def test_figures_have_words_of_page() -> None:
    payment("A", "10.00", AT)
    (row,) = read(Sheet("en").figures(figures(date(2026, 3, 1), date(2026, 3, 1))))
    assert (row["Day"], row["Kind"], row["Status"], row["Number"], row["Amount"]) == (
        "2026-03-01",
        "payment",
        "paid",
        "1",
        "10.00",
    )


def test_empty_sheet_has_headings() -> None:
    (line,) = Sheet("en").payments(Payment.objects.none())
    assert line.startswith('"Date","Started","Order","Customer"')


@pytest.mark.parametrize("evil", ["=1+1", "@SUM(A1)", "\t=1", "a;=1+1", 'a";=1'])
@pytest.mark.parametrize("style", ["point", "comma"])
def test_no_cell_of_shopper_is_formula(
    shoppers: dict[str, Customer],
    evil: str,
    style: str,
) -> None:
    payment("A", "10.00", AT, key="1")
    shoppers["1"] = Customer(name=evil, email=evil)
    lines = list(Sheet("en", style).payments(Payment.objects.all()))
    for line in lines:
        assert line.startswith('"')
        for cell in line.replace('"', "").split(";"):
            assert not cell.lstrip().startswith(("=", "@"))


def test_failing_shop_leaves_names_out(shoppers: dict[str, Customer]) -> None:
    payment("A", "10.00", AT, key="broken")
    (row,) = read(Sheet("en").payments(Payment.objects.all()))
    assert (row["Customer"], row["Amount"]) == ("", "10.00")


def test_long_number_stays_text(shoppers: dict[str, Customer]) -> None:
    payment("A", "10.00", AT, key="007")
    Payment.objects.update(transaction_no="123456789012345678")
    (row,) = read(Sheet("en").payments(Payment.objects.all()))
    assert (row["Order"], row["Transaction number"]) == ("'007", "'123456789012345678")


def test_sheet_needs_few_statements(shoppers: dict[str, Customer]) -> None:
    for number in range(5):
        payment(f"A{number}", "10.00", AT, key=str(number))
    with CaptureQueriesContext(connection) as asked:
        assert len(read(Sheet("en").payments(Payment.objects.all()))) == 5
    # PostgreSQL's cursor on the server, which reads the payments, is not among them.
    assert len([one for one in asked if one["sql"].startswith("SELECT")]) <= 2
