"""Money of the interface: US dollars as exact decimals, from text to text (unspecified behaviour 4 and 17).

JSON numbers are read from their text as `WireNumber`, never as floats, and nothing is rounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, InvalidOperation
from functools import reduce
from typing import Any, Final, NoReturn

from tillgate.errors import InvalidRequest

__all__ = ["CURRENCY", "EXACT", "WireNumber", "amount", "amount_text", "json_decoder", "left_of", "read_amount", "total"]

CURRENCY: Final = "USD"
"""The only supported currency (Create payment)."""

_CENTS = Decimal("0.01")
_AMOUNT = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,2}0*)?", re.ASCII)
_LIMIT = Decimal(10) ** 15
EXACT: Final = Context(prec=40, traps=[])
"""The decimal context for money. The precision and traps of the host program's own context have no effect on it."""


class WireNumber(Decimal):
    """A JSON number with the text it had on the wire, since a signature is computed over that text. A `Decimal` in every other respect."""

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
    """Return a decoder that reads numbers as `WireNumber` and objects with `members`, and refuses NaN and Infinity."""
    return json.JSONDecoder(object_pairs_hook=members, parse_float=WireNumber, parse_int=WireNumber, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def amount(value: object, field: str = "amount") -> Decimal:
    """Return an amount to send, in dollars with two decimals; raise `InvalidRequest` for anything but exact cents above zero.

    Text (`"12.50"`), `Decimal` and `int` are taken; a float is refused, since it has no exact cents.
    """
    exact = _exact(value)
    if exact is None:
        remedy = 'is not an amount: give text such as "12.50" or a Decimal above zero with at most two decimals, never a float'
        raise InvalidRequest(field, value, remedy)
    if exact <= 0:
        raise InvalidRequest(field, value, "is not above zero")
    return exact


def read_amount(value: object) -> Decimal | None:
    """Return a received text or `WireNumber` as dollars with two decimals, or None if it is not an exact amount of cents."""
    exact = _exact(value)
    return exact if exact is not None and exact >= 0 else None


def amount_text(value: Decimal) -> str:
    """Render an exact amount as the interface's text: two decimals, no exponent, no separators."""
    return f"{value:.2f}"


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Return the sum of amounts, 0.00 if there are none. The host program's decimal precision has no effect on it."""
    return reduce(EXACT.add, amounts, Decimal("0.00"))


def left_of(amount: Decimal, taken: Iterable[Decimal]) -> Decimal:
    """Return an amount less the amounts taken from it; negative if those are larger. Exact as `total` is."""
    return EXACT.subtract(amount, total(taken))


def _exact(value: object) -> Decimal | None:
    """Return the same value with two decimals, or None if it is not a plain number or has parts of a cent."""
    if isinstance(value, str):
        return Decimal(value).quantize(_CENTS, context=EXACT) if _AMOUNT.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        return None
    number = Decimal(value)
    if not number.is_finite() or number.copy_abs() >= _LIMIT:
        return None
    cents = number.quantize(_CENTS, context=EXACT)
    return cents if cents == number else None
