"""The hooks: Stripe Checkout as a gateway.

A payment is a Checkout Session, and the session's id the transaction number. The reference stands
in the session, in its metadata and in those of the payment intent. Stripe's events are hints: only
the answer to a query moves a payment.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from tillgate import (
    Account,
    AnswerNotUnderstood,
    CreatedPayment,
    GatewayError,
    Method,
    NotSent,
    OrderNotFound,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Refused,
    SignatureMismatch,
    Transaction,
    TransactionStatus,
    WrongCredentials,
)
from tillgate.hooks import (
    DisputeStatus,
    Finding,
    Hint,
    RefundOutcome,
    ReportedDispute,
    ReportedRefund,
    hookimpl,
)
from tillgate_stripe import details, examination
from tillgate_stripe.api import Call, Record, is_test_key
from tillgate_stripe.profile import (
    DEFAULT_METHOD,
    LANGUAGES,
    METHOD_OPTIONS,
    from_units,
    method,
    to_units,
)

__all__: list[str] = []

_log = logging.getLogger("tillgate")

_REFUNDED: Final = "payment_intent.latest_charge.refunds"
_EXPAND: Final = {"expand": [_REFUNDED]}
_WITH_FEE: Final = {
    "expand": [_REFUNDED, "payment_intent.latest_charge.balance_transaction"],
}
_PAGE: Final = 100
_SESSIONS: Final = "/v1/checkout/sessions"
_ALL_REFUNDS: Final = "/v1/refunds"
_SESSION_SECONDS: Final = 25 * 60 * 60
"""Longer than any session is open: one that is older and was attempted is in the search index."""
_TOLERANCE_SECONDS: Final = 300
"""The age of a signed notification that is still believed to be new
(docs.stripe.com/webhooks/signature).
"""
_LONGEST_NAME: Final = 250
_INTENT: Final = "pi_"
_THIN: Final = (
    "the notification is a thin event (v2): choose the payload style “snapshot”, and events of "
    "version 1,"
    " for the webhook endpoint at Stripe"
)

_REFUNDS: Final = {
    "succeeded": RefundOutcome.SUCCEEDED,
    "pending": RefundOutcome.PENDING,
    "requires_action": RefundOutcome.PENDING,
    "failed": RefundOutcome.FAILED,
    "canceled": RefundOutcome.FAILED,
}
_DISPUTES: Final = {
    "won": DisputeStatus.WON,
    "warning_closed": DisputeStatus.WON,
    "prevented": DisputeStatus.WON,
    "lost": DisputeStatus.LOST,
}
"""The words of a dispute that has ended; every other word is an open one's."""
_UNDER_WAY: Final = frozenset(
    {"processing", "requires_action", "requires_capture", "requires_confirmation"},
)
"""The words of a payment intent with a complete and unpaid session, while the money is on its way.
"""


@hookimpl
def tillgate_pay(
    account: Account,
    request: PaymentRequest,
    deadline_seconds: float | None,
) -> CreatedPayment:
    """Create a Checkout Session."""
    call = Call(account, "pay", request.reference, seconds=deadline_seconds)
    params = _session_params(account, request)
    key = f"tillgate-pay-{request.reference}"
    with call.errors():
        try:
            session = call.post(_SESSIONS, params, key)
        except Refused as error:
            refused = call.refused_parameter
            is_email = refused == "customer_email" or error.ret_code == "email_invalid"
            if not ((is_email and request.email) or ("[shipping]" in refused and request.shipping)):
                raise
            # A mistyped address must not stop a sale; nothing was created, so another key is safe.
            bare = request.model_copy(update={"email": None, "shipping": None})
            session = call.post(
                _SESSIONS,
                _session_params(account, bare),
                f"{key}-without-addresses",
            )
    if not session.url or session.amount_total is None:
        raise call.unknown("the session has no payment page, or no amount")
    return CreatedPayment(
        transaction_no=session.id,
        payment_url=session.url,
        reference=session.client_reference_id or "",
        amount=from_units(session.amount_total, (session.currency or "").upper()),
        currency=(session.currency or "").upper(),
        settle_currency=None,
        raw={"id": session.id, "livemode": getattr(session, "livemode", None)},
    )


def _session_params(account: Account, request: PaymentRequest) -> dict[str, Any]:
    names = {"reference": request.reference}
    goods = ", ".join(f"{line.quantity} x {line.goods_name}" for line in request.goods_info)
    product: Any = {"name": (request.description or request.reference)[:_LONGEST_NAME]}
    if goods:
        product["description"] = goods[:_LONGEST_NAME]
    params: dict[str, Any] = {
        "mode": "payment",
        "client_reference_id": request.reference,
        "metadata": names,
        "payment_intent_data": {"metadata": names, "description": product["name"]},
        "line_items": [
            {
                "quantity": 1,
                "price_data": {
                    "currency": request.currency.lower(),
                    "unit_amount": to_units(request.amount, request.currency),
                    "product_data": product,
                },
            },
        ],
        # the shopper pays the order's own amount in its own currency
        "adaptive_pricing": {"enabled": False},
        "success_url": request.callback_url.replace("{status}", "success"),
        "cancel_url": request.callback_url.replace("{status}", "cancelled"),
        "expires_at": int(time.time()) + request.timeout * 60,
        "locale": _language(request.language),
    }
    if request.method != DEFAULT_METHOD:
        params["allowed_payment_method_types"] = [request.method]
    if options := METHOD_OPTIONS.get(request.method):
        params["payment_method_options"] = {request.method: options}
    if descriptor := account.options.get("statement_descriptor"):
        is_by_card = request.method in ("card", DEFAULT_METHOD)
        name = "statement_descriptor_suffix" if is_by_card else "statement_descriptor"
        params["payment_intent_data"][name] = descriptor
    if to := request.shipping:
        address = {
            "line1": to.line1,
            "line2": to.line2,
            "city": to.city,
            "state": to.region,
            "postal_code": to.postal_code,
            "country": to.country,
        }
        known = {name: text for name, text in address.items() if text}
        shipping = {"name": to.name, "address": known}
        params["payment_intent_data"]["shipping"] = shipping
    if request.email:
        params["customer_email"] = request.email
    return params


def _language(language: str | None) -> str:
    """Return Stripe's name of a language of Django's, or "auto" for one that Stripe's page does not
    speak.
    """
    wanted = {"zh-hans": "zh", "zh-hant": "zh-TW"}.get(language or "", language or "")
    known = {name.lower(): name for name in LANGUAGES}
    return known.get(wanted.lower()) or known.get(wanted.lower().partition("-")[0]) or "auto"


@hookimpl
def tillgate_query(
    account: Account,
    reference: str,
    transaction_no: str | None,
    deadline_seconds: float | None,
) -> Transaction:
    """Retrieve a session by its id, or find it by its reference, with its refunds and disputes."""
    call = Call(account, "query", reference, seconds=deadline_seconds)
    with call.errors():
        try:
            session = _session(call, transaction_no, _WITH_FEE)
        except WrongCredentials as error:
            if error.http_status != 403:
                raise
            _log_unread(call, "fee", error)  # the key may not read the balance
            session = _session(call, transaction_no)
        return _transaction(call, session)


def _session(
    call: Call,
    transaction_no: str | None,
    expand: Mapping[str, Any] = _EXPAND,
) -> Any:
    if transaction_no and not transaction_no.startswith(_INTENT):
        return call.get(f"{_SESSIONS}/{quote(transaction_no, safe='')}", expand)
    ids = _of_intent(call, transaction_no) if transaction_no else _candidates(call)
    found = next(ids, None)
    if found is None:
        names = (
            f"is of {transaction_no}" if transaction_no else f"has the reference {call.reference}"
        )
        raise OrderNotFound("resource_missing", f"no Checkout Session {names}", 404)
    return call.get(f"{_SESSIONS}/{quote(found, safe='')}", expand)


def _candidates(call: Call) -> Iterator[str]:
    """Yield the ids of the sessions of a reference: first of the recent ones, then of those that
    the search index knows.

    Every session that may still be open is recent, and Stripe's list is complete; the index lags
    behind by a minute or so.
    """
    since = int(time.time()) - _SESSION_SECONDS
    yield from (
        session.id
        for session in call.pages(_SESSIONS, {"limit": _PAGE, "created": {"gte": since}})
        if session.client_reference_id == call.reference
    )
    quoted = call.reference.replace("\\", "\\\\").replace("'", "\\'")
    try:
        intents = call.get(
            "/v1/payment_intents/search",
            {"query": f"metadata['reference']:'{quoted}'", "limit": 1},
        ).data
    except WrongCredentials:
        raise
    except Refused:  # merchants in India have no search
        yield from (
            session.id
            for session in call.pages(_SESSIONS, {"limit": _PAGE, "created": {"lt": since}})
            if session.client_reference_id == call.reference
        )
        return
    for intent in intents:
        yield from _of_intent(call, intent.id)


def _of_intent(call: Call, intent: str) -> Iterator[str]:
    """Yield the id of the session of a payment intent."""
    listed = call.get(_SESSIONS, {"payment_intent": intent, "limit": 1})
    yield from (session.id for session in listed.data)


def _transaction(call: Call, session: Record) -> Transaction:
    if getattr(session, "livemode", None) is call.account.sandbox:
        raise AnswerNotUnderstood(
            "the session is in test mode and the account is live, or the other way round",
        )
    currency = (session.currency or "").upper()
    intent = session.payment_intent if isinstance(session.payment_intent, Record) else None
    status, word = _status(session, intent)
    units = session.amount_total
    if status is TransactionStatus.PAID and intent is not None:
        units = intent.amount_received
    charge = (
        intent.latest_charge
        if intent is not None and isinstance(intent.latest_charge, Record)
        else None
    )
    return Transaction(
        reference=session.client_reference_id or "none",
        status=status,
        status_text=word,
        transaction_no=session.id,
        amount=None if units is None or not currency else from_units(units, currency),
        currency=currency or None,
        settle_currency=None,
        raw=_evidence(session, intent, charge),
        refunds=_refunds(call, session, charge, currency),
        disputes=_disputes(call, session, charge, currency),
        manual_review=_manual_review(call, charge) if status is TransactionStatus.PAID else None,
        **details.of_payment(session, status, sandbox=call.account.sandbox),
    )


def _status(
    session: Record,
    intent: Record | None,
) -> tuple[TransactionStatus, str]:
    if session.status == "expired":
        return TransactionStatus.CLOSED, "expired"
    # a declined card too: the shopper may try another on the same page
    if session.status == "open":
        return TransactionStatus.PENDING, "open"
    if session.status != "complete":
        return TransactionStatus.UNRECOGNISED, str(session.status)
    if session.payment_status == "paid":
        return TransactionStatus.PAID, "paid"
    if session.payment_status != "unpaid":
        return TransactionStatus.UNRECOGNISED, str(session.payment_status)
    stands = "processing" if intent is None else str(intent.status)
    if stands in _UNDER_WAY:
        return TransactionStatus.PROCESSING, f"complete, {stands}"
    if stands in ("requires_payment_method", "canceled"):
        return TransactionStatus.FAILED, f"complete, {stands}"
    return TransactionStatus.UNRECOGNISED, f"complete, {stands}"


def _evidence(
    session: Record,
    intent: Record | None,
    charge: Record | None,
) -> dict[str, Any]:
    """Return the evidence of an answer for the timeline: nothing about the shopper."""
    kept: dict[str, Any] = {
        name: getattr(session, name, None)
        for name in ("id", "status", "payment_status", "amount_total", "currency")
    }
    if intent is not None:
        kept |= {
            "payment_intent": intent.id,
            "intent_status": intent.status,
            "amount_received": intent.amount_received,
        }
        if error := getattr(intent, "last_payment_error", None):
            kept["last_error"] = getattr(error, "decline_code", None) or getattr(
                error,
                "code",
                None,
            )
    if charge is not None:
        details = getattr(charge, "payment_method_details", None)
        kept |= {"charge": charge.id, "paid_with": getattr(details, "type", None)}
    return kept


def _refunds(
    call: Call,
    session: Record,
    charge: Record | None,
    currency: str,
) -> tuple[ReportedRefund, ...] | None:
    """Return the refunds of a charge: none before there is one, and None where the answer does not
    say.
    """
    if charge is None or not currency:
        return None if session.payment_intent else ()
    listed = charge.refunds
    try:
        found = (
            list(call.pages(_ALL_REFUNDS, {"charge": charge.id, "limit": _PAGE}))
            if listed is None or listed.has_more
            else listed.data
        )
        return tuple(
            ReportedRefund(
                amount=from_units(refund.amount, currency),
                refund_no=refund.id,
                refund_id=getattr(refund.metadata, "refund_id", None),
                outcome=_outcome(call, refund),
            )
            for refund in found
        )
    except GatewayError as error:
        _log_unread(call, "refunds", error)
        return None


def _disputes(
    call: Call,
    session: Record,
    charge: Record | None,
    currency: str,
) -> tuple[ReportedDispute, ...]:
    if charge is None or not currency or not getattr(charge, "disputed", False):
        return ()
    page = details.page_of(_intent_id(session), sandbox=call.account.sandbox)
    try:
        found = list(call.pages("/v1/disputes", {"charge": charge.id, "limit": _PAGE}))
    except GatewayError as error:
        _log_unread(call, "disputes", error)
        # The charge says that it is disputed: until Stripe says more, all of it is at stake.
        whole = from_units(session.amount_total or 0, currency)
        unread = ReportedDispute(
            amount=whole,
            status=DisputeStatus.OPEN,
            dispute_no=charge.id,
            url=page,
        )
        return (unread,)
    return tuple(
        ReportedDispute(
            # A bank may count in another currency; then all of the payment is at stake.
            amount=from_units(
                one.amount if one.currency.upper() == currency else session.amount_total or 0,
                currency,
            ),
            status=_dispute_status(one.status, charge),
            dispute_no=one.id,
            respond_by=details.deadline_of(one),
            reason=details.text_of(getattr(one, "reason", None), 255),
            url=page,
        )
        for one in found
    )


def _manual_review(call: Call, charge: Record | None) -> str | None:
    """Return Stripe's word for why Radar holds a charge for a review by hand, while that is open. A
    review that cannot be read may be open.
    """
    if charge is None or not isinstance(charge.review, str):
        return None
    try:
        review = call.get(f"/v1/reviews/{quote(charge.review, safe='')}")
    except GatewayError as error:
        _log_unread(call, "manual_review", error)
        return "unread"
    return details.text_of(review.reason, 64) or "open" if review.open else None


def _log_unread(call: Call, field: str, error: GatewayError) -> None:
    """Log the part that is left out of an answer: it must not stand in the way of the money."""
    _log.warning("stripe: %s of %s cannot be read: %s", field, call.reference, error)


def _dispute_status(word: str, charge: Record) -> DisputeStatus:
    """Return the state of a dispute; a full refund answers an inquiry, though Stripe keeps its word
    for a while.
    """
    if word.startswith("warning_") and charge.refunded:
        return DisputeStatus.WON
    return _DISPUTES.get(word, DisputeStatus.OPEN)


def _outcome(call: Call, refund: Record) -> RefundOutcome:
    try:
        return _REFUNDS[refund.status or ""]
    except KeyError:
        raise call.unknown(f"Stripe calls the refund {refund.id} {refund.status!r}") from None


@hookimpl
def tillgate_refund(account: Account, request: RefundRequest) -> Refunded:
    """Refund the session's payment intent. Stripe remembers the refund's id for a day, and its
    metadata for ever.
    """
    intent = _intent_to_refund(account, request)
    if intent is None:
        raise Refused("not_paid", "it is not paid, so nothing can be refunded", 400)
    call = Call(account, "refund", request.reference)
    names = {"reference": request.reference, "refund_id": request.refund_id or ""}
    with call.errors():
        refund = call.post(
            _ALL_REFUNDS,
            {
                "payment_intent": intent,
                "amount": to_units(request.amount, request.currency),
                "metadata": names,
            },
            f"tillgate-refund-{request.refund_id}" if request.refund_id else "",
        )
    return _refunded(call, request, refund)


def _intent_to_refund(account: Account, request: RefundRequest) -> str | None:
    """Return the payment intent of a refund. Until it is known no money moves."""
    looking = Call(account, "refund", request.reference, moves_money=False)
    try:
        with looking.errors():
            session = _session(looking, request.transaction_no)
            if (currency := str(session.currency).upper()) != request.currency:
                raise Refused("currency", f"the payment is in {currency}")
            return _intent_id(session)
    except Refused:
        raise
    except GatewayError as error:
        raise NotSent(
            "refund",
            request.reference,
            f"the payment could not be read: {error}",
        ) from None


def _intent_id(session: Record) -> str | None:
    intent: Any = session.payment_intent
    found: str | None = intent.id if isinstance(intent, Record) else intent
    return found


def _refunded(call: Call, request: RefundRequest, refund: Record) -> Refunded:
    return Refunded(
        reference=request.reference,
        amount=from_units(refund.amount, refund.currency.upper()),
        ret_msg=" ".join(filter(None, [refund.status, getattr(refund, "failure_reason", None)])),
        outcome=_outcome(call, refund),
        refund_no=refund.id,
    )


@hookimpl
def tillgate_query_refund(
    account: Account,
    request: RefundRequest,
    refund_no: str | None,
) -> Refunded:
    """Retrieve a refund by its number, or find it by the id in its metadata."""
    call = Call(account, "query", request.reference)
    with call.errors():
        if refund_no:
            refund = call.get(f"{_ALL_REFUNDS}/{quote(refund_no, safe='')}")
            return _refunded(call, request, refund)
        intent = _intent_id(_session(call, request.transaction_no))
        listed = (
            call.pages(_ALL_REFUNDS, {"payment_intent": intent, "limit": _PAGE}) if intent else ()
        )
        found = next(
            (
                one
                for one in listed
                if request.refund_id
                and getattr(one.metadata, "refund_id", None) == request.refund_id
            ),
            None,
        )
        if found is None:
            raise OrderNotFound(
                "resource_missing",
                f"no refund has the id {request.refund_id}",
                404,
            )
        return _refunded(call, request, found)


@hookimpl
def tillgate_close(
    account: Account,
    reference: str,
    transaction_no: str | None,
    deadline_seconds: float | None,
) -> bool:
    """Expire a session. Stripe refuses that for one that is complete, or has expired before."""
    call = Call(account, "query", reference, seconds=deadline_seconds)
    with call.errors():
        session = _session(call, transaction_no)
        if session.status == "open":
            try:
                session = call.post(f"{_SESSIONS}/{quote(session.id, safe='')}/expire", {})
            except Refused:  # the shopper was quicker
                session = _session(call, session.id)
    return bool(session.status == "expired")


@hookimpl
def tillgate_payment_methods(account: Account) -> Sequence[Method]:
    """Return the methods that the account lists, or Stripe's own choice on its page."""
    return [method(one.code, one.label, one.currencies) for one in account.methods] or [
        method(DEFAULT_METHOD),
    ]


@hookimpl
def tillgate_read_notification(
    account: Account,
    headers: Mapping[str, str],
    body: bytes,
) -> Sequence[Hint]:
    """Verify an event by the account's secrets, and return the payment that it is about.

    It asks Stripe nothing. A refund of the dashboard, a dispute and a review name no reference:
    their hint is the payment intent, and the worker queries by that.
    """
    _verify(account, headers.get("Stripe-Signature", ""), body)
    try:
        event = json.loads(body)
        if str(event.get("object")).startswith("v2."):
            raise AnswerNotUnderstood(_THIN)
        about, is_live = event["data"]["object"], event["livemode"]
        kind = about["object"]
        if is_live is is_test_key(account):
            return []
        if kind == "checkout.session":
            hint = Hint(reference=about.get("client_reference_id"), transaction_no=about.get("id"))
            return [hint] if hint.reference else []
        if kind in ("payment_intent", "charge", "refund", "dispute", "review"):
            intent = about["id"] if kind == "payment_intent" else about.get("payment_intent")
            reference = (about.get("metadata") or {}).get("reference")
            if reference:
                return [Hint(reference=reference)]
            return [Hint(transaction_no=intent)] if str(intent).startswith(_INTENT) else []
    except (ValueError, TypeError, KeyError, AttributeError):
        raise AnswerNotUnderstood("the notification is no event of Stripe") from None
    return []


def _verify(account: Account, signature: str, body: bytes) -> None:
    for secret in account.webhook_secrets:
        if _is_signed(body, signature, secret.get_secret_value()):
            return _expect_recent(signature)
    problem = (
        "is signed with none of the account's webhook_secrets"
        if account.webhook_secrets
        else "came, and the account has no webhook_secrets"
    )
    raise SignatureMismatch(f"a notification {problem}")


def _is_signed(body: bytes, signature: str, secret: str) -> bool:
    """Tell whether a header signs a body (docs.stripe.com/webhooks/signature), at whatever time: an
    old event that is rightly signed has another remedy.
    """
    parts = [part.partition("=") for part in signature.split(",")]
    signed_at = next((value for name, _equals, value in parts if name == "t"), "")
    if not re.fullmatch(r"[0-9]{1,12}", signed_at):
        return False
    message = signed_at.encode() + b"." + body
    expected = hmac.new(secret.encode(), message, hashlib.sha256).hexdigest().encode()
    given = [value.encode() for name, _equals, value in parts if name == "v1"]
    return any(hmac.compare_digest(one, expected) for one in given)


def _expect_recent(signature: str) -> None:
    """Raise for a rightly signed event that is old: a copy of it may have been kept and sent
    again.
    """
    signed_at = next(int(part[2:]) for part in signature.split(",") if part.startswith("t="))
    age = int(time.time()) - signed_at
    if age > _TOLERANCE_SECONDS:
        remedy = "check the clock of this machine (NTP)"
        raise SignatureMismatch(
            f"a notification is rightly signed, but was signed {age} seconds ago, and more than "
            f"{_TOLERANCE_SECONDS} are refused: {remedy}, or it was held up or replayed on its way",
        )


@hookimpl
def tillgate_examine_account(
    account: Account,
    online: bool,  # noqa: FBT001  # as the hook is
    deadline_seconds: float | None,
    webhook_url: str | None,
) -> Sequence[Finding]:
    """Examine the key, the webhook secrets and, online, the permissions, the webhook endpoints and
    the API version.
    """
    return [
        *examination.of_settings(account),
        *(examination.at_stripe(account, deadline_seconds, webhook_url) if online else ()),
    ]
