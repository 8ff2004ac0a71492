"""References: one per payment attempt, never the same twice (unspecified 11, I8)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import credentials, payment, refund
from tillgate import InvalidRequest, new_reference
from tillgate.wire import exchange, references

BAD = [
    pytest.param("", id="empty"),
    pytest.param("A" * 33, id="33 characters"),
    *[
        "A&B",
        "A B",
        " A",
        "A\n",
        "A=B",
        "A\U0001f600",
        "A_B",
        "A.B",
        "A/B",
        "\u00c4",
        "\u0661",
        "\uff21",
        "A\x00",
        "A\ud800",
    ],
    pytest.param("abc-7", id="two cases would meet in a case-insensitive collation"),
]
SHAPE = re.compile(r"[A-Z0-9-]{1,18}-[A-Z2-7]{13}")


@pytest.mark.parametrize("value", [*BAD, None, 7, b"A"])
def test_invalid_reference_is_refused_with_remedy(value: Any) -> None:
    for refused in (lambda: references.reference(value), lambda: payment(reference=value)):
        with pytest.raises(
            InvalidRequest,
            match=r"1 to 32 characters of A-Z, 0-9 and hyphen",
        ) as caught:
            refused()
        assert (caught.value.field, caught.value.value) == ("reference", value)


@pytest.mark.parametrize("value", ["A", "7", "A" * 32, "100017-7Q2MZK4RXW3DA"])
def test_safe_reference_is_accepted(value: str) -> None:
    """It has 1 to 32 safe characters."""
    assert references.reference(value) == value


@given(st.text())
def test_i8_any_order_number_gives_reference(order_number: str) -> None:
    made = new_reference(order_number)
    assert SHAPE.fullmatch(made)
    assert references.reference(made) == made


@pytest.mark.parametrize(
    ("order_number", "start"),
    [
        ("100017", "100017"),
        ("shop/2026 #7", "SHOP-2026-7"),
        ("x" * 40, "X" * 18),
        ("", "ORDER"),
        ("\u8ba2\u5355", "ORDER"),
        ("---", "ORDER"),
        ("stra\u00dfe", "STRASSE"),
    ],
)
def test_a_reference_begins_with_the_order_number(order_number: str, start: str) -> None:
    assert new_reference(order_number).rpartition("-")[0] == start


def test_i8_references_differ_even_ignoring_case() -> None:
    assert len({new_reference("100017").casefold() for _ in range(20_000)}) == 20_000


def test_i8_every_character_appears_everywhere() -> None:
    """Each one of the alphabet is drawn at each place."""
    drawn = [new_reference("1").partition("-")[2] for _ in range(2_000)]
    assert {len(set(place)) for place in zip(*drawn, strict=True)} == {32}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_i8_a_forked_process_makes_other_references() -> None:
    script = (
        "import os; from tillgate import new_reference; new_reference('A'); os.fork() and "
        "os.wait(); print(new_reference('A'))"
    )
    lines = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(lines) == len(set(lines)) == 2


FOREIGN = [
    "100000123at1605000000",
    "4711:alipay:1605000000",
    "123e4567-e89b-12d3-a456-426614174000",
    "order_7/2.b",
    "x" * 64,
]
"""References as other plugins made them: an owner who changes plugins queries and refunds these
payments too.
"""


@pytest.mark.parametrize("value", FOREIGN)
def test_other_plugins_reference_can_be_used(value: str) -> None:
    """Its payment can be queried and refunded."""
    assert exchange.write_query(credentials(), value).reference == value
    assert refund(reference=value).reference == value
    with pytest.raises(InvalidRequest):
        payment(reference=value)


@pytest.mark.parametrize(
    "value",
    ["", "x" * 65, "A B", " A", "A\n", "A&B", "A=B", "\u00c4", "A\x00", "A\ud800", None, 7, b"A"],
)
def test_impossible_reference_is_refused_before_sending(value: Any) -> None:
    for refused in (
        lambda: refund(reference=value),
        lambda: exchange.write_query(credentials(), value),
    ):
        with pytest.raises(InvalidRequest, match="1 to 64 visible ASCII characters"):
            refused()
