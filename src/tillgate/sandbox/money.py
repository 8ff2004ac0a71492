"""Amounts as whole numbers of a currency's smallest unit, read from text only: no float ever holds
money here.
"""

from __future__ import annotations

import functools
import re
from decimal import Decimal

_PLAIN = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?", re.ASCII)
_MOST_DECIMALS = 3


@functools.cache
def decimals_of(currency: str) -> int | None:
    """Return the number of decimals of a currency by ISO 4217: 0 for KRW, 2 for USD, 3 for KWD;
    None for a code that is no money.
    """
    from iso4217 import Currency  # imported late: it reads a table

    try:
        decimals = Currency(currency).exponent
    except ValueError:
        return None
    return decimals if decimals is None or decimals <= _MOST_DECIMALS else None


def units_of(text: str, currency: str) -> int | None:
    """Return a plain decimal in the smallest unit of its currency, or None for anything else
    (unspecified behaviour 17).

    Zeros may follow the decimals of the currency: docs.2pay.co sends "9.990000" (payments/payment).
    """
    found, decimals = _PLAIN.fullmatch(text), decimals_of(currency)
    if found is None or decimals is None:
        return None
    whole, part = found[1], found[2] or ""
    if part[decimals:].strip("0"):
        return None
    return int(whole + part[:decimals].ljust(decimals, "0"))


def text_of(units: int, currency: str) -> str:
    """Write an amount the way the interface's examples do: with the decimals of its currency."""
    return shown(units, currency).replace(",", "")


def number_of(text: str) -> str:
    """Write an amount as JSON writes numbers: without leading zeros, which a merchant may have sent
    in text.
    """
    return re.sub(r"^0+(?=[0-9])", "", text)


def shown(units: int, currency: str) -> str:
    """Write an amount for people, with separators between thousands."""
    decimals = decimals_of(currency) or 0
    whole, part = divmod(units, 10**decimals)
    return f"{whole:,}" + (f".{part:0{decimals}d}" if decimals else "")


def plain(text: str) -> Decimal | None:
    """Return a limit of the options as a number, or None if it is no plain decimal."""
    return Decimal(text) if _PLAIN.fullmatch(text) else None
