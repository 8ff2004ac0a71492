"""The check of what a gateway plugin returns: types, lengths and the payment page, once, before the
core uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from tillgate.account import Account
from tillgate.money import Money
from tillgate.wire.details import DeclineReason, NextStep, PaidWith
from tillgate.wire.messages import (
    CreatedPayment,
    Refunded,
    ReportedDispute,
    ReportedRefund,
    Transaction,
)
from tillgate.wire.profile import DisputeStatus, RefundOutcome, TransactionStatus
from tillgate.wire.urls import is_https, is_web_address

__all__ = ["LONGEST_NUMBER", "fault_in"]

LONGEST_NUMBER: Final = 255
"""The length of the column that stores a transaction number."""

_Checked = (
    CreatedPayment
    | Transaction
    | ReportedRefund
    | ReportedDispute
    | Refunded
    | PaidWith
    | DeclineReason
    | NextStep
)
_Rule = tuple[str, Callable[[Any], bool]]


def _text(longest: int, *, may_be_none: bool = False, may_be_empty: bool = False) -> _Rule:
    least = 0 if may_be_empty else 1

    def is_right(value: Any) -> bool:
        return (may_be_none and value is None) or (
            isinstance(value, str) and least <= len(value) <= longest and value.isprintable()
        )

    return (
        f"text of {least} to {longest} printable characters{' or None' if may_be_none else ''}",
        is_right,
    )


def _one(kind: type) -> _Rule:
    return f"a {kind.__name__} or None", lambda value: value is None or isinstance(value, kind)


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
_TIME: Final[_Rule] = (
    "an aware datetime",
    lambda value: isinstance(value, datetime) and value.tzinfo is not None,
)
_TIME_OR_NONE: Final[_Rule] = (
    "an aware datetime or None",
    lambda value: value is None or _TIME[1](value),
)
_LAST_FOUR: Final[_Rule] = (
    "the last four digits or empty",
    lambda value: value == "" or (isinstance(value, str) and len(value) == 4 and value.isdecimal()),
)
_MOST_NUMBERS: Final = 20
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
        "paid_with": _one(PaidWith),
        "fee": _one(Money),
        "net": _one(Money),
        "decline_reason": _one(DeclineReason),
        "next_step": _one(NextStep),
        "numbers": (
            f"a tuple of at most {_MOST_NUMBERS} texts of 1 to {LONGEST_NUMBER} characters",
            lambda value: (
                isinstance(value, tuple)
                and len(value) <= _MOST_NUMBERS
                and all(map(_text(LONGEST_NUMBER)[1], value))
            ),
        ),
    },
    PaidWith: {"method": _text(64), "brand": _text(64, may_be_empty=True), "last4": _LAST_FOUR},
    DeclineReason: {
        "code": _text(64),
        "text": _text(500, may_be_empty=True),
        "for_shopper": ("True or False", lambda value: isinstance(value, bool)),
    },
    NextStep: {"until": _TIME_OR_NONE},
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
        "respond_by": _TIME_OR_NONE,
        "reason": _text(255, may_be_empty=True),
    },
    Refunded: {
        "reference": _text(64),
        "amount": _EXACT_AMOUNT,
        "ret_msg": ("text", lambda value: isinstance(value, str)),
        "outcome": _OUTCOME,
        "refund_no": _text(LONGEST_NUMBER, may_be_none=True),
    },
}


_PAGES: Final[Mapping[type, tuple[str, bool]]] = {
    CreatedPayment: ("payment_url", True),
    NextStep: ("url", False),
    Transaction: ("dashboard_url", False),
    ReportedRefund: ("dashboard_url", False),
    Refunded: ("dashboard_url", False),
    ReportedDispute: ("url", False),
}
"""The page that a value has, and whether it must have it."""
_NO_PAGE: Final = "must be an absolute https address; http only for a sandbox account"


def fault_in(account: Account, value: _Checked) -> tuple[str, str, str] | None:
    """Return the field, the value and the remedy of the first field that cannot be used, or None.

    The address of a page is shown by its beginning only: the rest holds its key (I11).
    """
    for name, (wanted, is_right) in _RULES[type(value)].items():
        found = getattr(value, name)
        if not is_right(found):
            return name, repr(found)[:80], f"must be {wanted}"
    name, is_required = _PAGES.get(type(value), ("", False))
    url = getattr(value, name) if name else None
    if (is_required or url is not None) and not _is_page(account, url):
        return name, repr(url)[:9], _NO_PAGE
    return _fault_within(account, value) if isinstance(value, Transaction) else None


def _is_page(account: Account, url: object) -> bool:
    return is_web_address(url) and (account.sandbox or is_https(str(url)))


def _fault_within(account: Account, answer: Transaction) -> tuple[str, str, str] | None:
    for name in ("refunds", "disputes", "paid_with", "decline_reason", "next_step"):
        found = getattr(answer, name) or ()
        for one in found if isinstance(found, tuple) else (found,):
            if fault := fault_in(account, one):
                return f"{name}: {fault[0]}", fault[1], fault[2]
    for name in ("fee", "net"):
        money = getattr(answer, name)
        if money is not None and money.currency != answer.currency:
            return name, str(money), f"must be in the payment's currency, {answer.currency}"
    return None
