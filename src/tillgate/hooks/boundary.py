"""The check of what a gateway plugin returns: types, lengths and the payment page, once, before the core uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from tillgate.account import Account
from tillgate.wire.dialects import TransactionStatus
from tillgate.wire.messages import CreatedPayment, Refunded, Transaction
from tillgate.wire.urls import is_https, is_web_address

__all__ = ["LONGEST_NUMBER", "fault_in"]

LONGEST_NUMBER: Final = 255
"""The length of the column that stores a transaction number."""

_Rule = tuple[str, Callable[[Any], bool]]


def _text(longest: int, *, may_be_none: bool = False) -> _Rule:
    def is_right(value: Any) -> bool:
        return (may_be_none and value is None) or (isinstance(value, str) and 0 < len(value) <= longest and value.isprintable())

    return f"text of 1 to {longest} printable characters{' or None' if may_be_none else ''}", is_right


_AMOUNT: Final[_Rule] = (
    "a finite Decimal or None",
    lambda value: value is None or (isinstance(value, Decimal) and value.is_finite()),
)
_CURRENCY: Final = _text(10, may_be_none=True)
_RAW: Final[_Rule] = ("a mapping", lambda value: isinstance(value, Mapping))
_RULES: Final[Mapping[type, Mapping[str, _Rule]]] = {
    CreatedPayment: {
        "transaction_no": _text(LONGEST_NUMBER),
        "reference": _text(64),
        "amount": _AMOUNT,
        "currency": _CURRENCY,
        "settle_currency": _CURRENCY,
        "raw": _RAW,
    },
    Transaction: {
        "reference": _text(64),
        "status": ("a TransactionStatus", lambda value: isinstance(value, TransactionStatus)),
        "status_text": _text(64),
        "transaction_no": _text(LONGEST_NUMBER, may_be_none=True),
        "amount": _AMOUNT,
        "currency": _CURRENCY,
        "settle_currency": _CURRENCY,
        "raw": _RAW,
    },
    Refunded: {
        "reference": _text(64),
        "amount": ("a finite Decimal", lambda value: isinstance(value, Decimal) and value.is_finite()),
        "ret_msg": ("text", lambda value: isinstance(value, str)),
    },
}


def fault_in(account: Account, value: CreatedPayment | Transaction | Refunded) -> tuple[str, str, str] | None:
    """Return the field, the value and the remedy of the first field that cannot be used, or None.

    The address of a payment page is shown by its beginning only: the rest holds its key (I11).
    """
    for name, (wanted, is_right) in _RULES[type(value)].items():
        found = getattr(value, name)
        if not is_right(found):
            return name, repr(found)[:80], f"must be {wanted}"
    if isinstance(value, CreatedPayment):
        url = value.payment_url
        if not is_web_address(url) or not (account.sandbox or is_https(url)):
            return "payment_url", repr(url)[:9], "must be an absolute https address; http only for a sandbox account"
    return None
