"""A settlement file against payments and refunds: the gaps on either side, and the effect of a bad
file.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.django.bookings import payment, refund
from tillgate.django.accounting.settlement import Checked, check_settlement, read_file


def _check(text: str, columns: dict[str, str] | None = None, **options: Any) -> Checked:
    rows, faults = read_file(text.encode(), columns or {})
    return check_settlement(rows, faults, **options)


def _kinds(checked: Checked) -> list[tuple[str, str, str]]:
    return [(one.kind, one.about, one.reference) for one in checked.differences]


def test_missing_payments_listed_and_fees_summed() -> None:
    for number, reference in enumerate("ABC", 1):
        payment(reference, "10.00", f"2026-03-0{number}T10:00+00:00")
    payment("LATER", "10.00", "2026-03-09T10:00+00:00")
    payment("OTHER", "10.00", "2026-03-02T10:00+00:00", account="other")
    payment("TEST", "10.00", "2026-03-02T10:00+00:00", sandbox=True)
    text = "reference,amount,fee\nA,10.00,0.10\nC,10.00,0.20\nZ,5.00,0.30\n"
    checked = _check(text, account="default")
    assert _kinds(checked) == [
        ("missing-here", "payment", "Z"),
        ("missing-in-file", "payment", "B"),
    ]
    assert checked.matched == 2
    assert [str(one) for one in (checked.paid["USD"], checked.fees["USD"], checked.fees[""])] == [
        "20.00",
        "0.30",
        "0.30",
    ]
    everything = _check(
        text,
        since=datetime(2026, 3, 1, tzinfo=UTC),
        until=datetime(2026, 3, 31, tzinfo=UTC),
    )
    assert {one[2] for one in _kinds(everything)} == {"Z", "B", "LATER", "OTHER"}


def test_other_amounts_currencies_statuses_and_duplicates_differ() -> None:
    payment("A", "10.00", "2026-03-01T10:00+00:00")
    payment("B", "10.00", "2026-03-01T10:00+00:00")
    payment("C", "10.00", "2026-03-01T10:00+00:00", status="expired")
    checked = _check(
        "reference,amount,currency\nA,9.99,USD\nB,10.00,EUR\nC,10.00,USD\nA,10.00,USD\n",
    )
    assert [(one.kind, one.line) for one in checked.differences] == [
        ("amount", 2),
        ("amount", 3),
        ("not-done-here", 4),
        ("duplicate", 5),
    ]
    assert checked.differences[0].here == (Decimal("10.00"), "USD")


def test_refunds_known_by_sign_type_name() -> None:
    """A missing refund is listed."""
    paid = payment("A", "10.00", "2026-03-01T10:00+00:00")
    for amount in ("1.00", "1.00", "2.00"):
        refund(paid, amount, "2026-03-01T12:00+00:00")
    named = refund(paid, "3.00", "2026-03-01T12:00+00:00")
    lines = [
        "A,10.00,Sale",
        "A,-1.00,",
        "no-A,1.00,REFUND",
        f"{named.refund_id},-3.00,refund",
        "A,-7.00,Refund",
    ]
    checked = _check(
        "\n".join(["reference,amount,type", *lines]),
        until=datetime(2026, 3, 2, tzinfo=UTC),
    )
    assert _kinds(checked) == [("missing-here", "refund", "A"), ("missing-in-file", "refund", "A")]
    assert checked.differences[1].here == (Decimal("2.00"), "USD")
    assert checked.matched == 4


def test_bad_line_loses_no_other_line() -> None:
    """It is named with its field."""
    for reference in "ABCD":
        payment(reference, "10.00", "2026-03-01T10:00+00:00")
    lines = [
        "A,10.00,0.1,USD",
        "B,ten,,USD",
        ",10.00,,USD",
        "C,10.00,,XXQ",
        '"D,10.00,,USD',
        "Z,1.00,1.2.3,USD",
        "D,10.00,,USD",
    ]
    text = "\n".join(["reference,amount,fee,currency", *lines])
    checked = _check(text)
    assert [(fault.line, fault.field, fault.value) for fault in checked.faults] == [
        (3, "amount", "ten"),
        (4, "reference", ""),
        (5, "currency", "XXQ"),
        (6, "amount", ""),
        (7, "fee", "1.2.3"),
    ]
    assert not checked.differences  # B and C are in the file, though unreadable
    assert checked.matched == 2


def test_impossible_reference_is_a_fault() -> None:
    payment("A", "10.00", "2026-03-01T10:00+00:00")
    checked = _check("reference,amount\nB\0C,10.00\nA,10.00\n")
    assert [(fault.line, fault.field) for fault in checked.faults] == [(2, "reference")]
    assert checked.matched == 1


def test_large_file_costs_few_statements(django_assert_max_num_queries: Any) -> None:
    """A file of another shop: its references are looked up in large batches."""
    lines = "".join(f"X-{number},12.50\n" for number in range(10_000))
    with django_assert_max_num_queries(12):
        checked = _check(f"reference,amount\n{lines}")
    assert len(checked.differences) == 10_000


@pytest.mark.parametrize(
    "content",
    [
        'reference,amount,fee\nA,"1,234.50",0.375\n'.encode("utf-8-sig"),
        "Merchant Reference;Gross Amount;Fee\r\nA;1.234,50;0,375\r\n".encode("cp1252"),
        "Händler;Müller\nreference\tamount\tfee\nA\t1234.5\t.375\n".replace(".375", "0.375").encode(
            "utf-16",
        ),
        "Händler: Müller\n\nTransaction ID|Amount|Fee\nno-A|1234.50|0.375\n<END>\n".encode(
            "cp1252",
        ),
    ],
)
def test_common_csv_formats_are_read(content: bytes) -> None:
    """Encodings, delimiters and ways to write numbers may vary."""
    payment("A", "1234.50", "2026-03-01T10:00+00:00")
    rows, _ = read_file(content, {})
    assert [(row.amount, row.fee) for row in rows] == [(Decimal("1234.50"), Decimal("0.375"))]
    assert check_settlement(rows).is_clean


def test_ambiguous_number_is_refused() -> None:
    """It is read where the file shows which form it has."""
    rows, faults = read_file(b"reference,amount\nA,1.234\n", {})
    assert not rows
    assert [fault.value for fault in faults] == ["1.234"]
    rows, _ = read_file(b"reference;amount\nA;1.234\nB;0,5\n", {})
    assert [row.amount for row in rows] == [1234, Decimal("0.5")]


def test_columns_may_have_any_name() -> None:
    """A file without recognisable columns is reported."""
    payment("A", "10.00", "2026-03-01T10:00+00:00")
    assert _check("Beleg,Brutto\nA,10.00\n", {"reference": "beleg", "amount": "BRUTTO"}).is_clean
    for text in ("", "\0\0", "Beleg,Brutto\nA,10.00\n"):
        checked = _check(text)
        assert [fault.field for fault in checked.faults] == ["columns"]


def test_foreign_file_has_no_period() -> None:
    """Nothing in the file is ours."""
    payment("A", "10.00", "2026-03-01T10:00+00:00")
    checked = _check("reference,amount\nZ,1.00\n")
    assert _kinds(checked) == [("missing-here", "payment", "Z")]
    assert (checked.since, checked.until) == (None, None)
