"""Amounts are whole numbers of a currency's smallest unit, read from plain text and nothing
else.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tillgate.money import Money
from tillgate.sandbox.money import decimals_of, shown, text_of, units_of

currencies = st.sampled_from(["KRW", "JPY", "USD", "PHP", "KWD"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1.",
        ".5",
        "1.234",
        "1e3",
        "1_000",
        "+1",
        "-1",
        "NaN",
        "Infinity",
        "\uff11",
        "١٢",
        "0x1",
        "1,00",
        "9" * 16,
        "1.0\n",
    ],
)
def test_what_is_no_plain_amount_is_none(text: str) -> None:
    assert units_of(text, "USD") is None


@pytest.mark.parametrize(
    ("text", "currency", "units"),
    [
        ("0", "USD", 0),
        ("12", "USD", 1200),
        ("12.5", "USD", 1250),
        ("12.05", "USD", 1205),
        ("9.990000", "USD", 999),
        ("99999999999999.99", "USD", 10**16 - 1),
        ("1250", "KRW", 1250),
        ("1250.00", "KRW", 1250),
        ("1250.5", "KRW", None),
        ("1.234", "KWD", 1234),
        ("1.2", "KWD", 1200),
        ("1.2345", "KWD", None),
        ("1", "XAU", None),
        ("1", "ABC", None),
    ],
)
def test_plain_amounts_are_read_exactly(
    text: str,
    currency: str,
    units: int | None,
) -> None:
    """The decimals are those of the currency."""
    assert units_of(text, currency) == units


@given(st.integers(0, 10**15 - 1), currencies)
def test_writing_and_reading_give_the_same_amount(units: int, currency: str) -> None:
    assert units_of(text_of(units, currency), currency) == units


@given(st.integers(0, 10**12), currencies)
def test_sandbox_and_client_agree_on_amounts(units: int, currency: str) -> None:
    assert Money(text_of(units, currency), currency).minor_units == units


@pytest.mark.parametrize(
    ("currency", "decimals"),
    [("KRW", 0), ("JPY", 0), ("USD", 2), ("KWD", 3), ("XAU", None), ("usd", None), ("CLF", None)],
)
def test_the_decimals_are_those_of_iso_4217(currency: str, decimals: int | None) -> None:
    assert decimals_of(currency) == decimals


def test_people_see_thousands() -> None:
    assert (shown(123456789, "USD"), shown(1234567, "KRW"), shown(1234567, "KWD")) == (
        "1,234,567.89",
        "1,234,567",
        "1,234.567",
    )
