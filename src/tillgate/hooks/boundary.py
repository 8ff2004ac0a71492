"""The check of what a gateway plugin returns: types, lengths and the payment page, once, before the
core uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from tillgate.account import Account
from tillgate.wire.dialects import DisputeStatus, RefundOutcome, TransactionStatus
from tillgate.wire.messages import (
    CreatedPayment,
    Refunded,
    ReportedDispute,
    ReportedRefund,
    Transaction,
)
from tillgate.wire.urls import is_https, is_web_address

__all__ = ["LONGEST_NUMBER", "fault_in"]

LONGEST_NUMBER: Final = 255
"""The length of the column that stores a transaction number."""

_Checked = CreatedPayment | Transaction | ReportedRefund | ReportedDispute | Refunded
_Rule = tuple[str, Callable[[Any], bool]]


def _text(longest: int, *, may_be_none: bool = False) -> _Rule:
    def is_right(value: Any) -> bool:
        return (may_be_none and value is None) or (
            isinstance(value, str) and 0 < len(value) <= longest and value.isprintable()
        )

    return (
        f"text of 1 to {longest} printable characters{' or None' if may_be_none else ''}",
        is_right,
    )


def _are(value: Any, kind: type) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, kind) for one in value)


_AMOUNT: Final[_Rule] = (
    "a finite Decimal or None",
    lambda value: value is None or (isinstance(value, Decimal) and value.is_finite()),
)
_EXACT_AMOUNT: Final[_Rule] = (
    "a finite Decimal",
    lambda value: isinstance(value, Decimal) and value.is_finite(),
)
_OUTCOME: Final[_Rule] = ("a RefundOutcome", lambda value: isinstance(value, RefundOutcome))
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
        "refunds": (
            "a tuple of ReportedRefund or None",
            lambda value: value is None or _are(value, ReportedRefund),
        ),
        "disputes": ("a tuple of ReportedDispute", lambda value: _are(value, ReportedDispute)),
    },
    ReportedRefund: {
        "amount": _EXACT_AMOUNT,
        "refund_no": _text(LONGEST_NUMBER, may_be_none=True),
        "refund_id": _text(LONGEST_NUMBER, may_be_none=True),
        "outcome": _OUTCOME,
    },
    ReportedDispute: {
        "amount": _EXACT_AMOUNT,
        "status": ("a DisputeStatus", lambda value: isinstance(value, DisputeStatus)),
        "dispute_no": _text(LONGEST_NUMBER),
        "respond_by": (
            "an aware datetime or None",
            lambda value: (
                value is None or (isinstance(value, datetime) and value.tzinfo is not None)
            ),
        ),
    },
    Refunded: {
        "reference": _text(64),
        "amount": _EXACT_AMOUNT,
        "ret_msg": ("text", lambda value: isinstance(value, str)),
        "outcome": _OUTCOME,
        "refund_no": _text(LONGEST_NUMBER, may_be_none=True),
    },
}


def fault_in(account: Account, value: _Checked) -> tuple[str, str, str] | None:
    """Return the field, the value and the remedy of the first field that cannot be used, or None.

    The address of a payment page is shown by its beginning only: the rest holds its key (I11).
    """
    for name, (wanted, is_right) in _RULES[type(value)].items():
        found = getattr(value, name)
        if not is_right(found):
            return name, repr(found)[:80], f"must be {wanted}"
    if isinstance(value, Transaction):
        for name, listed in (("refunds", value.refunds or ()), ("disputes", value.disputes)):
            if fault := next(filter(None, (fault_in(account, one) for one in listed)), None):
                return f"{name}: {fault[0]}", fault[1], fault[2]
    if isinstance(value, CreatedPayment):
        url = value.payment_url
        if not is_web_address(url) or not (account.sandbox or is_https(url)):
            return (
                "payment_url",
                repr(url)[:9],
                "must be an absolute https address; http only for a sandbox account",
            )
    return None
