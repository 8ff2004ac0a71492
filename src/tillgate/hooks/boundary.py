"""The check of a gateway plugin's values: types, lengths and the payment page, once, before the
core uses them. A detail for people that is faulty is left out, and never stands in the money's way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

from tillgate.account import Account
from tillgate.money import Money
from tillgate.wire.details import DeclineReason, NextStep, PaidWith
from tillgate.wire.messages import (
    CreatedPayment,
    PaymentRequest,
    Refunded,
    RefundRequest,
    ReportedDispute,
    ReportedRefund,
    Transaction,
)
from tillgate.wire.profile import DisputeStatus, RefundOutcome, TransactionStatus
from tillgate.wire.urls import is_https, is_web_address

__all__ = ["LONGEST_NUMBER", "difference_from", "fault_in", "without_faulty_details"]

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


_NUMBER: Final = _text(LONGEST_NUMBER)


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
_ANYTHING: Final[_Rule] = ("", lambda _: True)
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
        "manual_review": _text(64, may_be_none=True),
        "paid_with": _one(PaidWith),
        "fee": _one(Money),
        "net": _one(Money),
        "available_on": _TIME_OR_NONE,
        "decline_reason": _one(DeclineReason),
        "next_step": _one(NextStep),
        "numbers": (
            f"a tuple of at most {_MOST_NUMBERS} texts of 1 to {LONGEST_NUMBER} characters",
            lambda value: (
                isinstance(value, tuple)
                and len(value) <= _MOST_NUMBERS
                and all(map(_NUMBER[1], value))
            ),
        ),
    },
    PaidWith: {"method": _text(64), "brand": _text(64, may_be_empty=True), "last4": _LAST_FOUR},
    DeclineReason: {
        "code": _text(64),
        "text": _text(500, may_be_empty=True),
        "for_shopper": ("True or False", lambda value: isinstance(value, bool)),
    },
    NextStep: {
        "until": _TIME_OR_NONE,
        "is_transfer": ("True or False", lambda value: isinstance(value, bool)),
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

_DETAILS: Final[Mapping[type, tuple[str, ...]]] = {
    Transaction: (
        "paid_with",
        "fee",
        "net",
        "available_on",
        "decline_reason",
        "next_step",
        "dashboard_url",
        "numbers",
    ),
    ReportedRefund: ("dashboard_url",),
    ReportedDispute: ("respond_by", "reason", "url"),
    Refunded: ("dashboard_url",),
    NextStep: ("url", "until", "is_transfer"),
}
"""The fields that people read and no decision does."""

Fault = tuple[str, str, str]
"""The field, the value and the remedy of a value that cannot be used."""
_T = TypeVar("_T")


def without_faulty_details(account: Account, value: _T) -> tuple[_T, list[Fault]]:
    """Return a value without the details that cannot be used, and their faults."""
    left_out: dict[str, Any] = {}
    faults: list[Fault] = []
    for name in _DETAILS.get(type(value), ()):
        if isinstance(step := getattr(value, name), NextStep):
            # without its link it still says that the shopper has not paid yet
            left_out[name], found = without_faulty_details(account, step)
            faults += _named(name, found)
        elif fault := _fault_of(account, value, name):
            left_out[name] = type(value).__dataclass_fields__[name].default  # type: ignore[attr-defined]
            faults.append(fault)
    for name in ("refunds", "disputes") if isinstance(value, Transaction) else ():
        listed = getattr(value, name)
        if isinstance(listed, tuple):
            checked = [without_faulty_details(account, one) for one in listed]
            left_out[name] = tuple(one for one, _ in checked)
            faults += [fault for _, found in checked for fault in _named(name, found)]
    return (replace(value, **left_out) if left_out else value), faults  # type: ignore[type-var]


def _named(name: str, faults: list[Fault]) -> list[Fault]:
    return [(f"{name}: {field}", found, remedy) for field, found, remedy in faults]


def fault_in(account: Account, value: _Checked) -> Fault | None:
    """Return the fault of the first field that cannot be used, or None."""
    page, _ = _PAGES.get(type(value), ("", False))
    for name in dict.fromkeys([*_RULES[type(value)], *filter(None, [page])]):
        if fault := _fault_of(account, value, name):
            return fault
    return None


def difference_from(
    request: PaymentRequest | RefundRequest,
    answer: CreatedPayment | Refunded,
) -> Fault | None:
    """Return the first fact in which an answer disagrees with its request, or None. A creation may
    be answered without amount and currency.
    """
    for name in ("reference", "amount", "currency"):
        found, wanted = getattr(answer, name, None), getattr(request, name)
        if found not in (None, wanted):
            return name, repr(found)[:80], f"must be that of the request, {wanted}"
    return None


def _fault_of(account: Account, value: object, name: str) -> Fault | None:
    """Return the fault of one field. The address of a page is shown by its beginning only: the rest
    holds its key (I11).
    """
    found = getattr(value, name)
    wanted, is_right = _RULES[type(value)].get(name, _ANYTHING)
    if not is_right(found):
        return name, repr(found)[:80], f"must be {wanted}"
    page, is_required = _PAGES.get(type(value), ("", False))
    if name == page and (is_required or found is not None) and not _is_page(account, found):
        return name, repr(found)[:9], _NO_PAGE
    currency = getattr(value, "currency", None)
    if isinstance(found, Money) and found.currency != currency:
        return name, str(found), f"must be in the payment's currency, {currency}"
    for one in found if isinstance(found, tuple) else (found,):
        if type(one) in _RULES and (fault := fault_in(account, one)):
            return f"{name}: {fault[0]}", fault[1], fault[2]
    return None


def _is_page(account: Account, url: object) -> bool:
    return is_web_address(url) and (account.sandbox or is_https(str(url)))
