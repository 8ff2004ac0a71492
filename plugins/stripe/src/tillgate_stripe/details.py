"""The details of a payment for people, from a session with its payment intent and latest charge.

They move no payment: a detail that Stripe's answer lacks, or has in another shape, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypedDict

from tillgate import InvalidRequest, Money, TransactionStatus
from tillgate.gateways import DeclineReason, NextStep, PaidWith
from tillgate_stripe.profile import from_units

Json = Mapping[str, Any]

_DASHBOARD: Final = "https://dashboard.stripe.com"
_LONGEST_WORD: Final = 64
_LONGEST_NUMBER: Final = 255
_LONGEST_TEXT: Final = 500
_PAGE: Final = re.compile(
    r"(?:https://(?:[A-Za-z0-9-]{1,63}\.){1,4}[A-Za-z]{2,20}|http://127\.0\.0\.1:\d{1,5})"
    r"/[A-Za-z0-9\-._~:/?#@!$&'()*+,;=%]{0,2000}",
    re.ASCII,
)
"""A page of Stripe, or of an imitation on this machine."""
_LAST_FOUR: Final = re.compile(r"\d{4}", re.ASCII)

_FOR_SHOPPERS: Final = frozenset(
    {
        "authentication_required",
        "card_not_supported",
        "card_velocity_exceeded",
        "currency_not_supported",
        "expired_card",
        "incorrect_cvc",
        "incorrect_number",
        "incorrect_zip",
        "insufficient_funds",
        "invalid_cvc",
        "invalid_expiry_month",
        "invalid_expiry_year",
        "invalid_number",
        "issuer_not_available",
        "processing_error",
        "try_again_later",
    },
)
"""The declines with a reason that Stripe lets the shopper know (docs.stripe.com/declines/codes). Of
the others, such as `stolen_card`, it says not to tell more than that the card was declined.
"""

_TRANSFER: Final = "display_bank_transfer_instructions"
_BANK_TRANSFER: Final = "bank_transfer"
"""Tillgate's code of what Stripe calls `customer_balance`."""
_DETAILS: Final = "_display_details"
_VOUCHERS: Final = {
    "oxxo_display_details": ("hosted_voucher_url", "expires_after"),
    "boleto_display_details": ("hosted_voucher_url", "expires_at"),
    "konbini_display_details": ("hosted_voucher_url", "expires_at"),
    "multibanco_display_details": ("hosted_voucher_url", "expires_at"),
    _TRANSFER: ("hosted_instructions_url", ""),
}
"""The next actions that are a voucher or a transfer, with the fields of its page and its end
(docs.stripe.com/api/payment_intents/object, `next_action`). A transfer has no end.
"""


class Details(TypedDict):
    """The fields of a `Transaction` that are for people."""

    paid_with: PaidWith | None
    fee: Money | None
    net: Money | None
    available_on: datetime | None
    decline_reason: DeclineReason | None
    next_step: NextStep | None
    dashboard_url: str | None
    numbers: tuple[str, ...]


def of_payment(session: Json, status: TransactionStatus, *, sandbox: bool) -> Details:
    """Return the details of a payment in this status."""
    intent = _part(session, "payment_intent")
    charge = _part(intent, "latest_charge")
    number = _word(intent.get("id") or session.get("payment_intent"), _LONGEST_NUMBER)
    is_paid = status is TransactionStatus.PAID
    has_attempt = is_paid or status is TransactionStatus.PROCESSING
    # of a debit or a voucher that failed too, by which the mail about it names it
    is_chosen = has_attempt or status is TransactionStatus.FAILED
    currency = str(session.get("currency") or "").upper()
    moved = _part(charge, "balance_transaction") if is_paid else {}
    return Details(
        paid_with=(_paid_with(charge) or _taken(intent)) if is_chosen else None,
        fee=_money(moved, "fee", currency),
        net=_money(moved, "net", currency),
        available_on=_time(moved.get("available_on")),
        decline_reason=None if has_attempt else _decline_reason(intent, charge),
        next_step=_next_step(intent) if status is TransactionStatus.PROCESSING else None,
        dashboard_url=page_of(number, sandbox=sandbox),
        numbers=tuple(filter(None, (number, _word(charge.get("id"), _LONGEST_NUMBER)))),
    )


def page_of(intent: object, *, sandbox: bool) -> str | None:
    """Return the page of a payment intent in Stripe's dashboard, where its refunds and disputes
    stand too.
    """
    if not isinstance(intent, str) or not re.fullmatch(r"pi_\w{1,250}", intent, re.ASCII):
        return None
    return f"{_DASHBOARD}/{'test/' if sandbox else ''}payments/{intent}"


def deadline_of(dispute: Json) -> datetime | None:
    """Return until when a dispute takes evidence."""
    return _time(_part(dispute, "evidence_details").get("due_by"))


def text_of(found: object, longest: int = _LONGEST_TEXT) -> str:
    """Return a text on one line, cut to this length; empty for any other value."""
    line = " ".join(found.split()) if isinstance(found, str) else ""
    return "".join(filter(str.isprintable, line))[:longest]


def _part(whole: Json, name: str) -> Json:
    found = whole.get(name)
    return found if isinstance(found, Mapping) else {}


def _time(seconds: object) -> datetime | None:
    if type(seconds) is not int or seconds <= 0:
        return None
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(seconds, UTC)
    return None


def _word(found: object, longest: int = _LONGEST_WORD) -> str:
    is_word = isinstance(found, str) and len(found) <= longest and found.isprintable()
    return str(found) if is_word else ""


def _paid_with(charge: Json) -> PaidWith | None:
    details = _part(charge, "payment_method_details")
    method = _word(details.get("type"))
    if not method or charge.get("status") not in ("succeeded", "pending", "failed"):
        return None
    card = _part(details, "card")
    last4 = _word(card.get("last4"))
    return PaidWith(
        method=_BANK_TRANSFER if method == "customer_balance" else method,
        brand=_word(card.get("brand")),
        last4=last4 if _LAST_FOUR.fullmatch(last4) else "",
    )


def _taken(intent: Json) -> PaidWith | None:
    """Return the method of a voucher or transfer that is still to be paid: it has no charge yet."""
    kind = _word(_part(intent, "next_action").get("type"))
    if kind not in _VOUCHERS:
        return None
    is_transfer = kind == _TRANSFER
    return PaidWith(method=_BANK_TRANSFER if is_transfer else kind.removesuffix(_DETAILS))


def _money(moved: Json, name: str, currency: str) -> Money | None:
    """Return an amount of a balance transaction: none in another currency than the payment's, and
    none below zero.
    """
    units = moved.get(name)
    if str(moved.get("currency")).upper() != currency or type(units) is not int:
        return None
    with suppress(InvalidRequest):
        return Money(from_units(units, currency), currency)
    return None


def _decline_reason(intent: Json, charge: Json) -> DeclineReason | None:
    """Return why the last attempt was declined: to the shopper in Stripe's words for shoppers, to
    staff in those for merchants.
    """
    error = _part(intent, "last_payment_error")
    outcome = _part(charge, "outcome") if charge.get("status") == "failed" else {}
    words = (error.get("decline_code"), error.get("code"), outcome.get("reason"))
    code = next(filter(None, map(_word, words)), "")
    if not code:
        return None
    message, for_staff = text_of(error.get("message")), text_of(outcome.get("seller_message"))
    if code in _FOR_SHOPPERS and message:
        return DeclineReason(code=code, text=message, for_shopper=True)
    return DeclineReason(code=code, text=for_staff or message)


def _next_step(intent: Json) -> NextStep | None:
    action = _part(intent, "next_action")
    kind = _word(action.get("type"))
    if kind not in _VOUCHERS:
        return None
    voucher, (page, end) = _part(action, kind), _VOUCHERS[kind]
    url = voucher.get(page)
    is_page = isinstance(url, str) and _PAGE.fullmatch(url)
    return NextStep(
        url=url if is_page else None,
        until=_time(voucher.get(end)),
        is_transfer=kind == _TRANSFER,
    )
