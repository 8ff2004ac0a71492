"""Personal data: the fields of a message that Tillgate keeps, and the texts in which e-mail
addresses and card numbers are masked.

A list names the fields to keep. A gateway may describe the shopper in any field that it likes, so a
list of fields to drop would have gaps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

__all__ = ["KEPT_FIELDS", "kept_fields", "kept_texts", "without_personal_data"]

KEPT_FIELDS: Final = frozenset(
    {
        *("ret_code", "retCode", "ret_msg", "retMsg"),
        *(
            "reference",
            "transactionNo",
            "transactionType",
            "vendor",
            "vendorId",
            "terminal",
            "merchantNo",
            "storeNo",
        ),
        *(
            "amount",
            "currency",
            "settleCurrency",
            "settleAmount",
            "exchangeRate",
            "status",
            "transactionStatus",
            "time",
        ),
        *(
            "refundInfo",
            "refundReference",
            "refundTransactionNo",
            "refundTransactionId",
            "refundAmount",
            "refundStatus",
            "refundTime",
        ),
    },
)
"""The fields of the interface that Tillgate keeps of a notification or an answer, at every depth.
None is about the shopper.
"""

_NUMBER_FIELDS: Final = ("transactionNo", "refundTransactionNo", "refundTransactionId")
_HIDDEN: Final = "***"
_EMAIL = re.compile(r"[^\s@<>()\[\]\"',;:=/]+@(?:[^\s@<>()\[\]\"',;:=/.]+\.)+[^\W\d_]{2,}")
_DIGITS = re.compile(r"(?<![\w-])(?:\d[ -]?){12,30}\d(?![\w-])", re.ASCII)
_CARD_DIGITS: Final = range(13, 20)
_DEEPEST: Final = 20


def without_personal_data(text: str, numbers: Collection[str | None] = ()) -> str:
    """Return a text with `***` in place of each e-mail address and card number. A name cannot be
    recognised.

    A text that is a number as a whole stays: it is the value of a field, such as a transaction
    number, and the field's name decides. `numbers` are the gateway's own, which stay too: one
    transaction number in ten passes for a card number.
    """
    if "@" in text:
        text = _EMAIL.sub(_HIDDEN, text)
    # Most texts are words such as a status, too short for a card number.
    is_harmless = len(text) < _CARD_DIGITS.start or text.isdigit()
    return text if is_harmless else _DIGITS.sub(partial(_without_card, numbers), text)


def _without_card(numbers: Collection[str | None], found: re.Match[str]) -> str:
    """Return digits masked where some of their groups are a card number: another number, such as
    its expiry date, may follow it.
    """
    groups = re.split("[ -]", found[0])
    runs = (
        "".join(groups[start:end])
        for start in range(len(groups))
        for end in range(start + 1, len(groups) + 1)
    )
    is_card = any(
        len(run) in _CARD_DIGITS and run not in numbers and _has_check_digit(run) for run in runs
    )
    return _HIDDEN if is_card else found[0]


def _has_check_digit(digits: str) -> bool:
    """Return whether the last digit is the check digit of ISO/IEC 7812."""
    doubled = [int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits))]
    return sum(digit - 9 if digit > 9 else digit for digit in doubled) % 10 == 0


def kept_fields(message: Mapping[str, Any], names: Collection[str] = KEPT_FIELDS) -> dict[str, Any]:
    """Return the listed members of a message, at every depth; texts are without personal data."""
    numbers = _numbers(message)
    return {
        name: _kept(value, names, numbers, 0) for name, value in message.items() if name in names
    }


def _numbers(message: Mapping[str, Any]) -> frozenset[str]:
    """Return the gateway's own numbers in a message, which its texts may repeat."""
    return frozenset(str(message[name]) for name in _NUMBER_FIELDS if name in message)


def _kept(value: Any, names: Collection[str], numbers: Collection[str], depth: int) -> Any:
    if isinstance(value, Mapping | list | tuple) and depth == _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        numbers = _numbers(value).union(numbers)
        return {
            name: _kept(member, names, numbers, depth + 1)
            for name, member in value.items()
            if name in names
        }
    if isinstance(value, list | tuple):
        # A bare text in a list has no name that says it is not the shopper's.
        return [
            _HIDDEN if isinstance(member, str) else _kept(member, names, numbers, depth + 1)
            for member in value
        ]
    return without_personal_data(value, numbers) if isinstance(value, str) else value


def kept_texts(message: Mapping[str, str], names: Collection[str] = KEPT_FIELDS) -> dict[str, str]:
    """Return the same of a notification. Its values are texts: a nested one is JSON."""
    numbers = _numbers(message)
    return {
        name: _kept_text(value, names, numbers) for name, value in message.items() if name in names
    }


def _kept_text(text: str, names: Collection[str], numbers: Collection[str]) -> str:
    if not text.lstrip().startswith(("{", "[")):
        return without_personal_data(text, numbers)
    try:
        nested = json.loads(text)
    except (ValueError, RecursionError):
        return _HIDDEN  # its content is unknown
    return json.dumps(_kept(nested, names, numbers, 0), ensure_ascii=False, separators=(",", ":"))
