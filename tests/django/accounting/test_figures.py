"""Figures: exact sums by day, payment method, currency and status, the same on every database."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from tests.django.bookings import payment, refund
from tillgate.django.accounting.figures import Figure, Kind, figures, sums_by


def test_sums_are_exact_for_each_currency() -> None:
    for number in range(10):
        payment(f"A{number}", "0.10", "2026-03-02T10:00+00:00")
    payment("Y", "300", "2026-03-02T10:00+00:00", currency="JPY")
    day = date(2026, 3, 2)
    assert figures(day, day) == [
        Figure(day, Kind.PAYMENT, "alipay", "JPY", "paid", 1, Decimal(300)),
        Figure(day, Kind.PAYMENT, "alipay", "USD", "paid", 10, Decimal("1.00")),
    ]


@pytest.mark.parametrize(
    ("zone", "days"),
    [("UTC", [2, 3]), ("Asia/Shanghai", [3, 3]), ("America/New_York", [2, 2])],
)
def test_day_follows_project_time_zone(settings: Any, zone: str, days: list[int]) -> None:
    settings.TIME_ZONE = zone
    payment("LATE", "1.00", "2026-03-02T23:30+00:00")
    payment("EARLY", "2.00", "2026-03-03T00:30+00:00")
    found = figures(date(2026, 3, 1), date(2026, 3, 5))
    assert sorted({one.day.day for one in found}) == sorted(set(days))
    assert sum(one.amount for one in found) == 3
    for day in set(days):  # the bounds of a period are the same days
        assert {one.day.day for one in figures(date(2026, 3, day), date(2026, 3, day))} == {day}


def test_refund_counts_when_it_succeeded() -> None:
    """Sums contain only money that has moved."""
    paid = payment("A", "10.00", "2026-03-02T10:00+00:00")
    payment("B", "99.00", "2026-03-02T10:00+00:00", status="failed")
    refund(paid, "4.00", "2026-03-04T10:00+00:00")
    refund(paid, "5.00", "2026-03-04T10:00+00:00", status="failed")
    found = figures(date(2026, 3, 2), date(2026, 3, 4))
    assert [(one.day.day, one.kind, one.status) for one in found] == [
        (2, Kind.PAYMENT, "failed"),
        (2, Kind.PAYMENT, "paid"),
        (4, Kind.REFUND, "failed"),
        (4, Kind.REFUND, "succeeded"),
    ]
    by_day = sums_by(found, lambda one: one.day.day)
    assert [
        (day, str(one.paid), str(one.refunded), str(one.net)) for day, one in by_day.items()
    ] == [
        (2, "10.00", "0.00", "10.00"),
        (4, "0.00", "4.00", "-4.00"),
    ]


def test_tests_are_never_among_real_money() -> None:
    real = payment("REAL", "10.00", "2026-03-02T10:00+00:00")
    test = payment("TEST", "7.00", "2026-03-02T10:00+00:00", sandbox=True)
    for one in (real, test):
        refund(one, "1.00", "2026-03-02T11:00+00:00")
    day = date(2026, 3, 2)
    assert [one.amount for one in figures(day, day)] == [10, 1]
    assert [one.amount for one in figures(day, day, sandbox=True)] == [7, 1]
