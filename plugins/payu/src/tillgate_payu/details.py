"""What people read about a payment, from an order and its transactions.

It moves no payment: what PayU's answer lacks, or has in another shape, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from tillgate import TransactionStatus
from tillgate.gateways import DeclineReason, PaidWith
from tillgate_payu.profile import code_of

Json = Mapping[str, Any]

_LONGEST_WORD: Final = 64
_LONGEST_TEXT: Final = 500
_LAST_FOUR: Final = re.compile(r".*[*xX](\d{4})", re.ASCII)
_BRANDS: Final = {"VS": "visa", "MC": "mastercard"}
_RESULTS: Final = {
    "AUT_ERROR_NO_AUTHORIZATION": "authorization was not received, transaction cancelled",
    "AUT_ERROR_ANTIFRAUD_DECLINED": "rejected at authorization by the antifraud system",
    "REG_ERROR_ANTIFRAUD_DECLINED": "rejected at registration by the antifraud system",
}
"""PayU's own words for `resultCode` (developers.payu.com/europe/api, "Retrieve a Transaction"). A
shopper who is suspected of fraud must not read why, so none of them is for shoppers.
"""


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
        # of several that could have paid PayU does not say which did
        paid_with=_paid_with(good[0]) if is_paid and len(good) == 1 else None,
        decline_reason=_decline_reason(bad[-1]) if bad and not is_paid else None,
        numbers=_numbers(answer),
    )


def awaits_transfer(transactions: Sequence[Json]) -> bool:
    """Return whether the shopper has chosen a transfer, whose money comes in days."""
    return any(_part(one, "wireTransfer") for one in transactions)


def _paid_with(transaction: Json) -> PaidWith | None:
    method = _word(_part(transaction, "payMethod"), "value")
    card = _part(_part(transaction, "card"), "cardData")
    scheme = _word(card, "cardScheme")
    digits = _LAST_FOUR.fullmatch(_word(card, "cardNumberMasked"))
    if not method:
        return None
    return PaidWith(
        method=code_of(method),
        brand=_BRANDS.get(scheme, scheme.lower()),
        last4=digits[1] if digits else "",
    )


def _decline_reason(transaction: Json) -> DeclineReason:
    code = _word(transaction, "resultCode")
    card = _part(_part(transaction, "card"), "cardData")
    said = _RESULTS.get(code, ""), _word(card, "cardResponseCodeDesc", _LONGEST_TEXT)
    return DeclineReason(code=code, text="; ".join(filter(None, said))[:_LONGEST_TEXT])


def _numbers(answer: Json) -> tuple[str, ...]:
    """Return the payment's number on PayU's statements and in the search of its panel."""
    properties = answer.get("properties")
    found = properties if isinstance(properties, list) else []
    named = [one for one in found if isinstance(one, dict) and one.get("name") == "PAYMENT_ID"]
    return tuple(number for one in named[:1] if (number := _word(one, "value")))


def _part(whole: Json, name: str) -> Json:
    found = whole.get(name)
    return found if isinstance(found, Mapping) else {}


def _word(whole: Json, name: str, longest: int = _LONGEST_WORD) -> str:
    found = whole.get(name)
    is_word = isinstance(found, str) and len(found) <= longest and found.isprintable()
    return str(found) if is_word else ""
