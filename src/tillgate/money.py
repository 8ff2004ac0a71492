"""Money: an exact amount with its currency, from text to text (unspecified behaviour 4 and 17).

The decimals of a currency come from ISO 4217. JSON numbers are read from their text as
`WireNumber`, never as floats, and nothing is rounded. Babel writes and reads amounts in the words
of a reader's language.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation, localcontext
from functools import reduce
from typing import Any, Final, NoReturn, Self

from tillgate.errors import InvalidRequest

__all__ = [
    "EXACT",
    "MOST_DECIMALS",
    "Money",
    "WireNumber",
    "amount",
    "amount_text",
    "currency_code",
    "decimals_of",
    "format_money",
    "json_decoder",
    "left_of",
    "read_amount",
    "read_localized",
    "total",
]

EXACT: Final = Context(prec=40, traps=[])
"""The decimal context for money. The precision and traps of the host program's own context have no
effect on it.
"""
MOST_DECIMALS: Final = 3
"""No currency with more decimals can be paid: the two that ISO 4217 lists are units of account and
not money of a shopper.
"""

_AMOUNT = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,100})?", re.ASCII)
_CODE = re.compile(r"[A-Z]{3}", re.ASCII)
_LIMIT = Decimal(10) ** 15
_DECIMALS_OF_UNKNOWN: Final = 2


@functools.cache
def decimals_of(currency: str) -> int:
    """Return the number of decimals of a currency by ISO 4217: 0 for JPY, 2 for USD, 3 for KWD.

    Raises `InvalidRequest` for a code that is none, or of something that no shopper pays with, such
    as gold.
    """
    # imported late: it reads a table, and a process that moves no money needs none
    from iso4217 import (
        Currency,
    )

    decimals = None
    if isinstance(currency, str) and _CODE.fullmatch(currency):
        with contextlib.suppress(ValueError):
            decimals = Currency(currency).exponent
    if decimals is None or decimals > MOST_DECIMALS:
        raise InvalidRequest(
            "currency",
            currency,
            'is not a currency of ISO 4217 that can be paid: give a code such as "USD"',
        )
    return int(decimals)


def currency_code(value: object, field: str = "currency") -> str:
    """Return a currency's code, or raise `InvalidRequest`."""
    try:
        decimals_of(value)  # type: ignore[arg-type, unused-ignore]  # any object may arrive here
    except (InvalidRequest, TypeError):
        raise InvalidRequest(
            field,
            value,
            'is not a currency of ISO 4217 that can be paid: give a code such as "USD"',
        ) from None
    return str(value)


@dataclass(frozen=True, slots=True)
class Money:
    """An exact amount of a currency, zero or more. `Money("12.50", "USD")`; text, `Decimal` and
    `int` are taken, a float is refused.

    Raises `InvalidRequest` for an unknown currency, and for an amount with more decimals than the
    currency has.
    """

    amount: Decimal
    currency: str

    def __init__(self, amount: Decimal | str | int, currency: str) -> None:
        object.__setattr__(self, "currency", currency_code(currency))
        exact = read_amount(amount, currency)
        if exact is None:
            raise InvalidRequest("amount", amount, _remedy(currency))
        object.__setattr__(self, "amount", exact)

    def __str__(self) -> str:
        """Return the code and the amount, for logs and timelines: `USD 12.50`."""
        return f"{self.currency} {amount_text(self.amount, self.currency)}"

    @property
    def minor_units(self) -> int:
        """The amount in the smallest unit of the currency: 1250 for USD 12.50, 1250 for JPY
        1250.
        """
        return int(self.amount.scaleb(decimals_of(self.currency), EXACT))

    @classmethod
    def of_minor_units(cls, units: int, currency: str) -> Self:
        """Return the money of so many of the smallest units: 1250 are USD 12.50, or JPY 1250.

        Raises `InvalidRequest` for anything but a whole number, and for an unknown currency.
        """
        if isinstance(units, bool) or not isinstance(units, int):
            raise InvalidRequest("amount", units, "is not a whole number of the smallest unit")
        return cls(Decimal(units).scaleb(-decimals_of(currency), EXACT), currency)


class WireNumber(Decimal):
    """A JSON number with the text it had on the wire, since a signature is computed over that text.
    A `Decimal` in every other respect.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> WireNumber:
        """Read the text of a JSON number; raise ValueError when its exponent has no bounds."""
        try:
            number = super().__new__(cls, text)
        except InvalidOperation:
            raise ValueError("a number is beyond all bounds") from None
        number.text = text
        return number

    def __reduce__(self) -> tuple[type[WireNumber], tuple[str]]:
        return type(self), (self.text,)


def json_decoder(members: Callable[[list[tuple[str, Any]]], Any]) -> json.JSONDecoder:
    """Return a decoder that reads numbers as `WireNumber` and objects with `members`, and refuses
    NaN and Infinity.
    """
    return json.JSONDecoder(
        object_pairs_hook=members,
        parse_float=WireNumber,
        parse_int=WireNumber,
        parse_constant=_refuse_constant,
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def amount(value: object, currency: str, field: str = "amount") -> Decimal:
    """Return an amount to send, with the decimals of its currency; raise `InvalidRequest` for
    anything but an exact amount above zero.

    Text (`"12.50"`), `Decimal` and `int` are taken; a float is refused, since it has no exact
    cents.
    """
    exact = _exact(value, decimals_of(currency))
    if exact is None:
        raise InvalidRequest(field, value, _remedy(currency))
    if exact <= 0:
        raise InvalidRequest(field, value, "is not above zero")
    return exact


def _remedy(currency: str) -> str:
    decimals = decimals_of(currency)
    return (
        f"is not an amount of {currency}: give text such as "
        f'"{amount_text(Decimal("12.5"), currency)}" or a Decimal above zero with '
        f"{'no' if not decimals else f'at most {decimals}'} decimals, never a float"
    )


def read_amount(value: object, currency: str | None) -> Decimal | None:
    """Return a received text or `WireNumber` as an exact amount, or None if it has more decimals
    than its currency.

    Where the currency is unknown, an amount has two decimals, or three if it needs them.
    """
    try:
        decimals = decimals_of(currency or "")
    except InvalidRequest:
        decimals = (
            MOST_DECIMALS if _exact(value, _DECIMALS_OF_UNKNOWN) is None else _DECIMALS_OF_UNKNOWN
        )
    exact = _exact(value, decimals)
    return exact if exact is not None and exact >= 0 else None


def amount_text(value: Decimal, currency: str) -> str:
    """Render an exact amount as text: the decimals of its currency, no exponent, no separators."""
    return f"{value:.{decimals_of(currency)}f}"


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Return the sum of amounts of one currency, 0.00 if there are none. The host program's decimal
    precision has no effect on it.
    """
    return reduce(EXACT.add, amounts, Decimal("0.00"))


def left_of(amount: Decimal, taken: Iterable[Decimal]) -> Decimal:
    """Return an amount less the amounts taken from it; negative if those are larger. Exact as
    `total` is.
    """
    return EXACT.subtract(amount, total(taken))


def format_money(amount: Decimal, currency: str, language: str) -> str:
    """Return an amount for a reader of a language such as "de": `USD 1,234.50`, `1.234,50 EUR`. For
    people only.

    An amount with more decimals than its currency is shown whole, since it is refused and must be
    seen.
    """
    from babel.numbers import format_decimal  # imported late: only pages and mails need it

    with localcontext(EXACT):  # Babel counts in the context of the host program
        return _formatted(format_decimal, amount, currency, _locale(language))


def _formatted(
    format_decimal: Callable[..., str],
    amount: Decimal,
    currency: str,
    locale: Any,
) -> str:
    try:
        decimals = decimals_of(currency)
    except InvalidRequest:
        decimals = _DECIMALS_OF_UNKNOWN
    number = EXACT.create_decimal(amount)
    finest = number.normalize(EXACT).as_tuple().exponent
    shown = max(decimals, -finest if isinstance(finest, int) else 0)
    text = format_decimal(number, f"#,##0.{'0' * shown}" if shown else "#,##0", locale=locale)
    is_after = (
        locale.currency_formats["standard"]
        .pattern.split(";")[0]
        .rstrip("\u00a0\u200f ")
        .endswith("¤")
    )
    return f"{text} {currency}" if is_after else f"{currency} {text}"


def read_localized(text: str, currency: str, language: str, field: str = "amount") -> Decimal:
    """Return the amount that a reader of a language has typed: "45,21" in German is 45.21, and
    "1.000" is one thousand.

    "45.21" with a point is taken in every language where it cannot mean thousands. Raises
    `InvalidRequest` for anything else.
    """
    from babel.numbers import NumberFormatError, get_decimal_symbol, get_group_symbol, parse_decimal

    locale, plain = _locale(language), text.strip()
    point, group = get_decimal_symbol(locale), get_group_symbol(locale)
    is_plain = _AMOUNT.fullmatch(plain) is not None and (
        point == "." or group != "." or len(plain.partition(".")[2]) != 3
    )
    try:
        spaced = re.sub(r"\s", group, plain) if group.isspace() else plain
        if any(character.isdigit() and not character.isascii() for character in plain):
            raise ValueError(plain)
        with localcontext(EXACT):
            value = (
                Decimal(plain) if is_plain else parse_decimal(spaced, locale=locale, strict=True)
            )
    except (NumberFormatError, ValueError, InvalidOperation):
        example = format_money(Decimal("1234.5"), currency, language).replace(currency, "").strip()
        raise InvalidRequest(
            field,
            text,
            f'is not an amount of {currency}: write it as "{example}"',
        ) from None
    return amount(value, currency, field)


@functools.cache
def decimal_sign(language: str) -> str:
    """Return the sign before the decimals in a language, "." or ","."""
    from babel.numbers import get_decimal_symbol

    return "," if get_decimal_symbol(_locale(language)) == "," else "."


def _locale(language: str) -> Any:
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(language.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        return Locale("en")


def _exact(value: object, decimals: int) -> Decimal | None:
    """Return the same value with so many decimals, or None if it is not a plain number or has finer
    parts.
    """
    if isinstance(value, str):
        if not _AMOUNT.fullmatch(value):
            return None
    elif isinstance(value, bool) or not isinstance(value, Decimal | int):
        return None
    number = Decimal(value)
    if not number.is_finite() or number.copy_abs() >= _LIMIT:
        return None
    exact = number.quantize(Decimal(1).scaleb(-decimals), context=EXACT)
    return exact if exact == number else None
