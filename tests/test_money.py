"""Money is exact (unspecified 4 and 17)."""

from __future__ import annotations

import copy
import decimal
import json
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import answered, created, credentials, envelope, found, payment
from tillgate import AnswerNotUnderstood, InvalidRequest, money
from tillgate.money import Money, WireNumber, format_money, read_localized
from tillgate.wire import exchange

cents = st.integers(min_value=1, max_value=10**17 - 1)
NOT_PLAIN = [
    "",
    " 1.1 ",
    "1.1\n",
    "+1.10",
    "-1.10",
    "1_000",
    "1,000.00",
    "12,50",
    "1e5",
    "1E2",
    ".50",
    "1.",
    "1.2.3",
    "0x10",
    "١٢",
    "\uff11\uff12",  # full-width digits
    "\uff11\uff12\uff0e\uff15\uff10",
    "²",
    "12.505",
    "$12.50",
    "NaN",
    "Infinity",
    "sNaN",
    "9" * 16,
]


@pytest.mark.parametrize("value", [0.1, 12.5, 1.0, float("nan"), float("inf"), -0.0])
def test_a_float_never_becomes_money(value: float) -> None:
    with pytest.raises(InvalidRequest, match="never a float"):
        money.amount(value, "USD")
    assert money.read_amount(value, "USD") is None


@pytest.mark.parametrize("text", NOT_PLAIN)
def test_unclear_amount_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not an amount") as caught:
        money.amount(text, "USD")
    assert (caught.value.field, caught.value.value) == ("amount", text)
    assert money.read_amount(text, "USD") is None


@pytest.mark.parametrize(
    "value",
    [0, "0", "0.00", Decimal(0), Decimal("-0.00"), -1, Decimal("-12.50")],
)
def test_an_amount_to_send_is_above_zero(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="is not above zero"):
        money.amount(value, "USD")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        b"12.50",
        [],
        Fraction(25, 2),
        1 + 0j,
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        Decimal("1.001"),
        Decimal("1E-3"),
        Decimal("1E+15"),
        10**15,
        pytest.param(10**5000, id="more digits than Python prints"),
        Decimal("1E+999999"),
        WireNumber("1e9999999"),
        WireNumber("1e-9999999"),
    ],
)
def test_what_has_no_exact_cents_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        money.amount(value, "USD")
    assert str(caught.value)
    assert money.read_amount(value, "USD") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0.01", "0.01"),
        ("12.50", "12.50"),
        ("12.5", "12.50"),
        ("12", "12.00"),
        (12, "12.00"),
        (Decimal("1E+2"), "100.00"),
        (Decimal("1.500"), "1.50"),
        ("99999999999999.99", "99999999999999.99"),
        ("999999999999999.99", "999999999999999.99"),
    ],
)
def test_sent_amount_has_two_decimals(value: Any, text: str) -> None:
    exact = money.amount(value, "USD")
    assert type(exact) is Decimal
    assert money.amount_text(exact, "USD") == text
    assert payment(amount=value).parameters()["amount"] == text


@given(cents)
def test_every_amount_survives_round_trip(number: int) -> None:
    exact = Decimal(number).scaleb(-2)
    text = money.amount_text(money.amount(exact, "USD"), "USD")
    assert money.read_amount(text, "USD") == exact == money.amount(text, "USD")
    assert money.read_amount(WireNumber(text), "USD") == exact
    assert money.amount_text(money.amount(text, "USD"), "USD") == text


@pytest.mark.parametrize(
    "number",
    [
        "1234567.89",
        "99999999999999.99",
        "1.10",
        "1.1",
        "0.07",
        "0.1",
        "12.5",
        "4.35",
        "1.005e2",
        "3",
    ],
)
def test_json_number_is_read_exactly(number: str) -> None:
    body = json.dumps(envelope(found(amount="@"))).replace('"@"', number).encode()
    answer = exchange.read_query(credentials(), found()["reference"], answered(body))
    assert answer.amount == Decimal(number)
    assert answer.amount is not None
    assert money.amount_text(answer.amount, "USD") == f"{Decimal(number):.2f}"
    assert answer.raw["amount"].text == number, "a signature is computed over the text on the wire"


@given(cents)
def test_every_json_cent_amount_is_exact(number: int) -> None:
    exact = Decimal(number).scaleb(-2)
    body = json.dumps(envelope(found(amount="@"))).replace('"@"', f"{exact:.2f}").encode()
    assert exchange.read_query(credentials(), found()["reference"], answered(body)).amount == exact


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_not_json(number: str) -> None:
    body = json.dumps(envelope(found(amount="@"))).replace('"@"', number).encode()
    with pytest.raises(AnswerNotUnderstood, match="is not a number"):
        exchange.read_query(credentials(), found()["reference"], answered(body))


@pytest.mark.parametrize("number", ["1e99999999999999999999", "1e9999999999999999999999999999"])
def test_number_beyond_bounds_is_not_understood(number: str) -> None:
    body = json.dumps(envelope(found(amount="@"))).replace('"@"', number).encode()
    with pytest.raises(AnswerNotUnderstood, match="beyond all bounds"):
        exchange.read_query(credentials(), found()["reference"], answered(body))


@pytest.mark.parametrize(
    "amount",
    ["12.505", "twelve", " 12.50", "-12.50", True, [], {"usd": 12}, "\uff11\uff12"],
)
def test_unreadable_answer_amount_is_none(amount: object) -> None:
    assert (
        exchange.read_query(
            credentials(),
            found()["reference"],
            answered(envelope(found(amount=amount))),
        ).amount
        is None
    )


def test_nothing_received_is_rounded_to_cents() -> None:
    assert money.read_amount(WireNumber("12.500"), "USD") == Decimal("12.50")
    assert money.read_amount("12.500", "USD") == Decimal("12.50")
    assert money.read_amount(WireNumber("12.505"), "USD") is None
    assert money.read_amount("12.505", "USD") is None
    assert (
        money.read_amount(WireNumber("12.4999999999999999999999999999999999999999999999"), "USD")
        is None
    )


@pytest.mark.parametrize("trap", [None, decimal.Inexact, decimal.Rounded, decimal.FloatOperation])
def test_host_decimal_context_changes_nothing(
    trap: type[decimal.DecimalException] | None,
) -> None:
    with decimal.localcontext() as context:
        context.prec = 3
        context.rounding = decimal.ROUND_UP
        if trap:
            context.traps[trap] = True
        assert (
            money.amount("123456789012345.99", "USD")
            == money.amount(Decimal("123456789012345.99"), "USD")
            == Decimal("123456789012345.99")
        )
        assert money.read_amount(WireNumber("99999999999999.99"), "USD") == Decimal(
            "99999999999999.99",
        )
        assert money.amount_text(Decimal("123456789012345.99"), "USD") == "123456789012345.99"
        assert money.total([Decimal("123456789012345.99"), Decimal("0.01")]) == Decimal(
            "123456789012346.00",
        )
        assert money.left_of(
            Decimal("123456789012345.99"),
            [Decimal("1000.00"), Decimal("0.98")],
        ) == Decimal("123456789011345.01")
        assert created()["amount"] == payment(amount="12.50").parameters()["amount"]


def test_total_of_no_amounts_is_zero() -> None:
    """The rest of an amount can be below zero."""
    assert str(money.total([])) == "0.00"
    assert money.left_of(Decimal("1.00"), [Decimal("0.75"), Decimal("0.50")]) == Decimal("-0.25")


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda number: pickle.loads(pickle.dumps(number))],
)
def test_copied_wire_number_keeps_its_text(duplicate: Any) -> None:
    number = duplicate(WireNumber("1.10"))
    assert (number, number.text, hash(number)) == (Decimal("1.1"), "1.10", hash(Decimal("1.1")))


@pytest.mark.parametrize(
    ("given", "currency", "text", "units"),
    [
        ("12.5", "USD", "USD 12.50", 1250),
        (1250, "JPY", "JPY 1250", 1250),
        ("1250.000", "KRW", "KRW 1250", 1250),
        ("1.234", "KWD", "KWD 1.234", 1234),
        # ISO 4217 gives the forint two decimals; others give it none
        (
            "1200.00",
            "HUF",
            "HUF 1200.00",
            120000,
        ),
        ("0", "USD", "USD 0.00", 0),
    ],
)
def test_money_has_the_decimals_of_its_currency(
    given: Any,
    currency: str,
    text: str,
    units: int,
) -> None:
    money_of = Money(given, currency)
    assert (str(money_of), money_of.minor_units) == (text, units)
    assert Money.of_minor_units(units, currency) == money_of


@pytest.mark.parametrize(
    ("given", "currency", "field"),
    [
        ("12.505", "USD", "amount"),
        ("1250.5", "JPY", "amount"),
        ("1.2345", "KWD", "amount"),
        (12.5, "USD", "amount"),
        ("-1", "USD", "amount"),
        ("1", "usd", "currency"),
        ("1", "XAU", "currency"),
        ("1", "RMB", "currency"),
        ("1", "CLF", "currency"),
        ("1", None, "currency"),
    ],
)
def test_unknown_currency_or_precision_is_refused(
    given: Any,
    currency: Any,
    field: str,
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Money(given, currency)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("amount", "currency", "language", "shown"),
    [
        ("1234.50", "USD", "en", "USD 1,234.50"),
        ("1234.50", "EUR", "de", "1.234,50 EUR"),
        ("1234.00", "JPY", "ja", "JPY 1,234"),
        ("1.234", "KWD", "en", "KWD 1.234"),
        ("12.505", "USD", "en", "USD 12.505"),  # refused when paid, and shown as it is
        ("5.00", "USD", "xx-nowhere", "USD 5.00"),
    ],
)
def test_amount_is_shown_in_readers_language(
    amount: str,
    currency: str,
    language: str,
    shown: str,
) -> None:
    assert format_money(Decimal(amount), currency, language) == shown


@pytest.mark.parametrize(
    ("typed", "language", "meant"),
    [
        ("45,21", "de", "45.21"),
        ("1.000", "de", "1000"),
        ("1.000,50", "de", "1000.50"),
        ("45.21", "de", "45.21"),
        ("1,000.50", "en", "1000.50"),
        (" 7 ", "en", "7"),
        ("1 234,50", "fr", "1234.50"),
    ],
)
def test_amount_is_read_as_written(typed: str, language: str, meant: str) -> None:
    """It follows the language of its writer."""
    assert read_localized(typed, "USD", language) == Decimal(meant)


@pytest.mark.parametrize(
    ("typed", "language"),
    [
        ("45,21", "en"),
        ("1,00,00", "en"),
        ("", "en"),
        ("-1", "en"),
        ("12.505", "en"),
        ("zwei", "de"),
        ("\u0661", "en"),
    ],
)
def test_ambiguous_amount_is_refused(typed: str, language: str) -> None:
    with pytest.raises(InvalidRequest):
        read_localized(typed, "USD", language)
