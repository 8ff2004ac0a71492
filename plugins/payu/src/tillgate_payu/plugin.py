"""The hooks: PayU as a gateway.

A payment is an order of PayU. Its `orderId` is the transaction number; the reference is its
`extOrderId`. PayU finds an order by its own number alone, which its answer to the creation and
every notification bring. Notifications are hints: only the answer to a query moves a payment.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from ipaddress import ip_address
from typing import Any, Final, TypeGuard

from tillgate import (
    Account,
    AnswerNotUnderstood,
    CreatedPayment,
    GatewayError,
    Method,
    OrderNotFound,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Refused,
    SignatureMismatch,
    Transaction,
    TransactionStatus,
)
from tillgate.gateways.http import Call
from tillgate.hooks import Finding, Hint, RefundOutcome, ReportedRefund, hookimpl
from tillgate_payu import details, examination
from tillgate_payu.api import ORDERS, ask, expect_success
from tillgate_payu.profile import CARD, DEFAULT_METHOD, PAYU

__all__: list[str] = []

Json = Mapping[str, Any]

_LONGEST_NAME: Final = 255
_LONGEST_DESCRIPTION: Final = 4000
_NOBODY: Final = "127.0.0.1"
"""The shopper's address where it is unknown: PayU asks for one."""
_NUMBER: Final = re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII)
_NOT_UNIQUE: Final = "ERROR_ORDER_NOT_UNIQUE"
_NEEDS_NUMBER: Final = (
    "PayU finds an order by its own number alone, and that is not known yet: a notification of "
    "PayU brings it, or staff find it in PayU's panel by the reference and enter it in the review"
)

_STATUSES: Final = {
    "NEW": TransactionStatus.PENDING,
    "PENDING": TransactionStatus.PENDING,
    # authorised; the merchant has switched the automatic collection off, and collects by hand
    "WAITING_FOR_CONFIRMATION": TransactionStatus.PROCESSING,
    "COMPLETED": TransactionStatus.PAID,
    "CANCELED": TransactionStatus.CLOSED,
}
_REFUNDS: Final = {
    "PENDING": RefundOutcome.PENDING,
    "FINALIZED": RefundOutcome.SUCCEEDED,
    "CANCELED": RefundOutcome.FAILED,
}
_EVIDENCE: Final = ("orderId", "extOrderId", "status", "totalAmount", "currencyCode")
_HASHES: Final = {
    "MD5": "md5",
    "SHA-256": "sha256",
    "SHA256": "sha256",
    "SHA-384": "sha384",
    "SHA-512": "sha512",
}


@hookimpl
def tillgate_pay(
    account: Account,
    request: PaymentRequest,
    deadline_seconds: float | None,
) -> CreatedPayment:
    """Create an order. PayU answers with a redirect to its page, which is the success."""
    call = Call(account, "pay", request.reference, seconds=deadline_seconds)
    try:
        answer = ask(call, "POST", ORDERS, json=_order(account, request), accept={302})
    except Refused as error:
        if error.ret_code != _NOT_UNIQUE:
            raise
        # PayU has an order of this fresh reference, so this very request came there twice
        raise call.unknown("PayU has an order of this reference already") from None
    made = expect_success(call, answer)
    number, page = made.get("orderId"), made.get("redirectUri")
    if not _is_number(number) or not isinstance(page, str):
        raise call.unknown("the answer has no orderId, or no redirectUri")
    if made.get("extOrderId", request.reference) != request.reference:
        raise call.unknown("the answer is about another order")
    return CreatedPayment(
        transaction_no=number,
        payment_url=page,
        reference=request.reference,
        amount=None,
        currency=None,
        settle_currency=None,
        raw={"orderId": number},
    )


def _order(account: Account, request: PaymentRequest) -> dict[str, Any]:
    order: dict[str, Any] = {
        "extOrderId": request.reference,
        "merchantPosId": account.merchant_no,
        "customerIp": ip_address(request.shopper_ip or _NOBODY).exploded,
        "description": (request.description or request.reference)[:_LONGEST_DESCRIPTION],
        "currencyCode": request.currency,
        "totalAmount": str(request.minor_units),
        "validityTime": str(request.timeout * 60),
        "continueUrl": request.callback_url,
        "products": _products(request),
    }
    if request.webhook_url:
        order["notifyUrl"] = request.webhook_url
    language = (request.language or "").partition("-")[0]
    if buyer := {
        name: text for name, text in (("email", request.email), ("language", language)) if text
    }:
        order["buyer"] = buyer
    if request.method != DEFAULT_METHOD:
        value = CARD[1] if request.method == CARD[0] else request.method
        order["payMethods"] = {"payMethod": {"type": "PBL", "value": value}}
    return order


def _products(request: PaymentRequest) -> list[dict[str, str]]:
    """Return the lines with their unit prices, which add up or are left out: then one line is the
    whole order.
    """
    prices = [line.unit_price for line in request.goods_info]
    lines = [
        (line.goods_name, price, line.quantity)
        for line, price in zip(request.goods_info, prices, strict=True)
        if price is not None and price >= 0
    ]
    if not lines or len(lines) < len(prices):
        lines = [(request.description or request.reference, request.amount, "1")]
    return [
        {
            "name": name[:_LONGEST_NAME],
            "unitPrice": str(int(price.scaleb(2))),
            "quantity": quantity,
        }
        for name, price, quantity in lines
    ]


@hookimpl
def tillgate_query(
    account: Account,
    reference: str,
    transaction_no: str | None,
    deadline_seconds: float | None,
) -> Transaction:
    """Retrieve an order by PayU's number, with its transactions and, once it is paid, its
    refunds.
    """
    call = Call(account, "query", reference, seconds=deadline_seconds)
    answer, order = _retrieve(call, transaction_no)
    word, currency = str(order.get("status")), order.get("currencyCode")
    status = _STATUSES.get(word, TransactionStatus.UNRECOGNISED)
    transactions = [] if word == "NEW" else _transactions(call, transaction_no)
    step = details.transfer(transactions) if status is TransactionStatus.PENDING else None
    if step:
        status = TransactionStatus.PROCESSING
    is_paid = status is TransactionStatus.PAID
    return Transaction(
        reference=str(order.get("extOrderId") or "none"),
        status=status,
        status_text=word,
        transaction_no=order.get("orderId"),
        amount=_amount(order.get("totalAmount")),
        currency=currency if isinstance(currency, str) else None,
        settle_currency=None,
        raw={name: order[name] for name in _EVIDENCE if name in order},
        refunds=_refunds(call, transaction_no, str(currency)) if is_paid else (),
        next_step=step,
        **details.of_order(answer, transactions, status),
    )


def _is_number(number: object) -> TypeGuard[str]:
    return isinstance(number, str) and _NUMBER.fullmatch(number) is not None


def _retrieve(call: Call, number: str | None) -> tuple[Json, Json]:
    """Return PayU's answer about an order, and the order in it."""
    if number is None:
        raise AnswerNotUnderstood(_NEEDS_NUMBER)
    if not _is_number(number):
        raise AnswerNotUnderstood(f"{number[:40]!r} is not the number of an order of PayU")
    answer = expect_success(call, ask(call, "GET", f"{ORDERS}/{number}"))
    match answer.get("orders"):
        case [dict() as order]:
            return answer, order
    raise call.unknown("the answer has not one order")


def _transactions(call: Call, number: str | None) -> list[Json]:
    """Return the attempts to pay an order; none where PayU does not say, since they are for
    people.
    """
    try:
        answer = ask(call, "GET", f"{ORDERS}/{number}/transactions")
    except GatewayError:
        return []
    found = answer.get("transactions") if isinstance(answer, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _amount(units: object) -> Decimal | None:
    """Return an amount of PayU, which counts every currency in hundredths."""
    is_whole = re.fullmatch(r"\d{1,18}", str(units), re.ASCII) and not isinstance(units, bool)
    return Decimal(str(units)).scaleb(-2) if is_whole else None


def _refunds(call: Call, number: str | None, currency: str) -> tuple[ReportedRefund, ...] | None:
    """Return the refunds of an order; None where the answer does not say."""
    try:
        return tuple(_reported(call, one, currency) for one in _listed(call, number))
    except GatewayError:
        return None


def _listed(call: Call, number: str | None) -> list[Json]:
    try:
        found = ask(call, "GET", f"{ORDERS}/{number}/refunds")
    except OrderNotFound:  # PayU has the order, and none of its refunds
        return []
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return found
    raise call.unknown("the answer is no list of refunds")


def _reported(call: Call, refund: Json, currency: str) -> ReportedRefund:
    """Return a refund as PayU describes it; raise for a description that proves nothing."""
    number, named = refund.get("refundId"), refund.get("extRefundId")
    amount, outcome = _amount(refund.get("amount")), _REFUNDS.get(str(refund.get("status")))
    is_in_currency = refund.get("currencyCode", currency) == currency
    if not _is_number(number) or amount is None or outcome is None or not is_in_currency:
        shown = [refund.get(name) for name in ("refundId", "amount", "currencyCode", "status")]
        raise call.unknown(f"PayU describes a refund in {currency} by {shown}")
    return ReportedRefund(amount=amount, refund_no=number, refund_id=named, outcome=outcome)


@hookimpl
def tillgate_refund(account: Account, request: RefundRequest) -> Refunded:
    """Refund an order. PayU does a refund once for each `extRefundId` with the same data."""
    if not _is_number(request.transaction_no):
        raise Refused("no_order_id", "PayU's number of the order is not known", 400)
    call = Call(account, "refund", request.reference)
    asked = {
        "description": f"Refund of {request.reference}",
        "amount": str(request.minor_units),
        "currencyCode": request.currency,
    }
    if request.refund_id:
        asked["extRefundId"] = request.refund_id
    path = f"{ORDERS}/{request.transaction_no}/refunds"
    made = expect_success(call, ask(call, "POST", path, json={"refund": asked}))
    if made.get("orderId", request.transaction_no) != request.transaction_no:
        raise call.unknown("the answer is about another order")
    refund = made.get("refund")
    return _refunded(call, request, refund if isinstance(refund, dict) else {})


def _refunded(call: Call, request: RefundRequest, refund: Json) -> Refunded:
    found = _reported(call, refund, request.currency)
    if (found.refund_id or request.refund_id) != request.refund_id:
        raise call.unknown("the answer is about another refund")
    error = refund.get("statusError")
    said = [refund.get("status"), error.get("description") if isinstance(error, dict) else None]
    return Refunded(
        reference=request.reference,
        amount=found.amount,
        ret_msg=" ".join(str(one) for one in said if one),
        outcome=found.outcome,
        refund_no=found.refund_no,
    )


@hookimpl
def tillgate_query_refund(
    account: Account,
    request: RefundRequest,
    refund_no: str | None,
) -> Refunded:
    """Retrieve a refund by its number, or find it in the list by its `extRefundId`."""
    call = Call(account, "query", request.reference)
    if not _is_number(request.transaction_no):
        raise AnswerNotUnderstood(_NEEDS_NUMBER)
    if _is_number(refund_no):
        path = f"{ORDERS}/{request.transaction_no}/refunds/{refund_no}"
        return _refunded(call, request, expect_success(call, ask(call, "GET", path)))
    if not request.refund_id:
        raise AnswerNotUnderstood("a refund without number or id is not distinct from another")
    for one in _listed(call, request.transaction_no):
        if one.get("extRefundId") == request.refund_id:
            return _refunded(call, request, one)
    raise OrderNotFound("DATA_NOT_FOUND", f"no refund has the id {request.refund_id}", 404)


@hookimpl
def tillgate_close(
    account: Account,
    reference: str,
    transaction_no: str | None,
    deadline_seconds: float | None,
) -> bool:
    """Cancel an unpaid order: of a paid one the same call would be a refund."""
    call = Call(account, "query", reference, seconds=deadline_seconds)
    _, order = _retrieve(call, transaction_no)
    if order.get("extOrderId") != reference:
        raise call.unknown("the answer is about another order")
    if order.get("status") in ("NEW", "PENDING") and not details.transfer(
        _transactions(call, transaction_no),
    ):
        with suppress(Refused):  # the shopper was quicker
            ask(call, "DELETE", f"{ORDERS}/{transaction_no}")
        _, order = _retrieve(call, transaction_no)
    return order.get("status") == "CANCELED"


@hookimpl
def tillgate_payment_methods(account: Account) -> Sequence[Method]:
    """Return the methods that the account lists, or PayU's own choice on its page."""
    return account.methods or PAYU.methods[:1]


@hookimpl
def tillgate_read_notification(
    account: Account,
    headers: Mapping[str, str],
    body: bytes,
) -> Sequence[Hint]:
    """Verify a notification by the account's second key, and return the order that it is about,
    with PayU's number of it. A refund's notification names both as well.
    """
    names = {name.lower(): text for name, text in headers.items()}
    _verify(account, names.get("openpayu-signature", ""), body)
    try:
        told = json.loads(body)
        about = told.get("order", told)
        number, reference = about.get("orderId"), about.get("extOrderId")
    except (ValueError, TypeError, KeyError, AttributeError):
        raise AnswerNotUnderstood("the notification is none of an order of PayU") from None
    if not _is_number(number):
        return []
    return [
        Hint(reference=reference if isinstance(reference, str) else None, transaction_no=number)
    ]


def _verify(account: Account, header: str, body: bytes) -> None:
    """Raise `SignatureMismatch` unless the header signs the body with one of the account's keys
    (developers.payu.com/europe/docs, "Payment Lifecycle", "Signature verification").
    """
    parts = dict(part.strip().partition("=")[::2] for part in header.split(";"))
    name = _HASHES.get(parts.get("algorithm", "").upper())
    signature = parts.get("signature", "").lower().encode()
    if not account.webhook_secrets:
        raise SignatureMismatch("a notification came, and the account has no webhook_secrets")
    if name is None:
        raise SignatureMismatch("a notification has no OpenPayu-Signature of a known algorithm")
    for secret in account.webhook_secrets:
        signed = body + secret.get_secret_value().encode()
        made = hashlib.new(name, signed, usedforsecurity=False).hexdigest()  # PayU's way, MD5 too
        del signed
        if hmac.compare_digest(signature, made.encode()):
            return
    raise SignatureMismatch("a notification is signed with none of the account's webhook_secrets")


@hookimpl
def tillgate_examine_account(
    account: Account,
    online: bool,  # noqa: FBT001  # as the hook is
    deadline_seconds: float | None,
) -> Sequence[Finding]:
    """Examine the address and the second key and, online, the client_id with its secret."""
    return [
        *examination.of_settings(account),
        *(examination.at_payu(account, deadline_seconds) if online else ()),
    ]
