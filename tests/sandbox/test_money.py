"""Amounts are whole cents, read from plain text and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tillgate.sandbox.money import cents_of, shown, text_of


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1.", ".5", "1.234", "1e3", "1_000", "+1", "-1", "NaN", "Infinity", "\uff11", "١٢", "0x1", "1,00", "9" * 16, "1.0\n"],
)
def test_what_is_no_plain_amount_is_none(text: str) -> None:
    assert cents_of(text) is None


@pytest.mark.parametrize(("text", "cents"), [("0", 0), ("12", 1200), ("12.5", 1250), ("12.05", 1205), ("99999999999999.99", 10**16 - 1)])
def test_a_plain_amount_is_read_exactly(text: str, cents: int) -> None:
    assert cents_of(text) == cents


@given(st.integers(0, 10**16))
def test_writing_and_reading_give_the_same_cents(cents: int) -> None:
    assert cents_of(text_of(cents)) == cents


def test_people_see_thousands() -> None:
    assert shown(123456789) == "1,234,567.89"
