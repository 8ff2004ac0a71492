"""The details of a payment for people, from an order and its transactions.

They move no payment: values that PayU omits, or writes in an unknown form, stay empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypedDict

from tillgate import TransactionStatus
from tillgate.gateways import DeclineReason, NextStep, PaidWith
from tillgate_payu.profile import CARD

Json = Mapping[str, Any]

_BANK_TRANSFER: Final = "bank_transfer"
_LONGEST_WORD: Final = 64
_LONGEST_TEXT: Final = 500
_LAST_FOUR: Final = re.compile(r".*[*xX](\d{4})", re.ASCII)
_BRANDS: Final = {"VS": "visa", "MC": "mastercard"}


class Details(TypedDict):
    """The fields of a `Transaction` that are for people."""

    paid_with: PaidWith | None
    decline_reason: DeclineReason | None
    numbers: tuple[str, ...]


def of_order(answer: Json, transactions: Sequence[Json], status: TransactionStatus) -> Details:
    """Return the details of an order in this status."""
    good = [one for one in transactions if "ERROR" not in _word(one, "resultCode")]
    bad = [one for one in transactions if one not in good]
    is_paid = status is TransactionStatus.PAID
    return Details(
        # of several attempts PayU does not mark the one that paid
        paid_with=_paid_with(good[0]) if len(good) == 1 and (is_paid or _wires(good)) else None,
        decline_reason=_decline_reason(bad[-1]) if bad and not is_paid else None,
        numbers=_numbers(answer),
    )


def transfer(transactions: Sequence[Json]) -> NextStep | None:
    """Return the bank transfer that the shopper has chosen and still has to make, with the newest
    attempt's end. PayU has shown the bank details, and its answers have no page of them.
    """
    wires = _wires(transactions)
    return NextStep(until=_moment(wires[-1]), is_transfer=True) if wires else None


def _wires(transactions: Sequence[Json]) -> list[Json]:
    return [one for one in transactions if _part(one, "wireTransfer")]


def _moment(transaction: Json) -> datetime | None:
    with suppress(ValueError):
        found = datetime.fromisoformat(_word(transaction, "validUntil"))
        return found if found.tzinfo else None
    return None


def _paid_with(transaction: Json) -> PaidWith | None:
    if _wires([transaction]):
        return PaidWith(method=_BANK_TRANSFER)
    value = _word(_part(transaction, "payMethod"), "value")
    if not value:
        return None
    scheme = _word(_card(transaction), "cardScheme")
    digits = _LAST_FOUR.fullmatch(_word(_card(transaction), "cardNumberMasked"))
    return PaidWith(
        method=CARD[0] if value == CARD[1] else value,
        brand=_BRANDS.get(scheme, scheme.lower()),
        last4=digits[1] if digits else "",
    )


def _decline_reason(transaction: Json) -> DeclineReason:
    """Return PayU's code and the card's words: only for staff, since some tell of suspected
    fraud.
    """
    text = _word(_card(transaction), "cardResponseCodeDesc", _LONGEST_TEXT)
    return DeclineReason(code=_word(transaction, "resultCode"), text=text)


def _numbers(answer: Json) -> tuple[str, ...]:
    """Return the payment's number on PayU's statements and in the search of its panel."""
    properties = answer.get("properties")
    found = properties if isinstance(properties, list) else []
    named = [one for one in found if isinstance(one, dict) and one.get("name") == "PAYMENT_ID"]
    return tuple(number for one in named[:1] if (number := _word(one, "value")))


def _card(transaction: Json) -> Json:
    return _part(_part(transaction, "card"), "cardData")


def _part(whole: Json, name: str) -> Json:
    found = whole.get(name)
    return found if isinstance(found, Mapping) else {}


def _word(whole: Json, name: str, longest: int = _LONGEST_WORD) -> str:
    found = whole.get(name)
    is_word = isinstance(found, str) and len(found) <= longest and found.isprintable()
    return str(found) if is_word else ""
