"""One exchange with the gateway: the request's bytes, and the meaning of the answer's bytes. No
I/O.

`write_*` turns a message into an `HttpRequest`. `read_*` turns an `HttpAnswer` into a value, or
raises an error that says exactly as much as the answer proves (unspecified behaviour 12). Any doubt
makes the outcome of a pay or refund *unknown*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from pydantic_core import to_json

from tillgate import money
from tillgate.errors import (
    AnswerNotUnderstood,
    InvalidRequest,
    OrderNotFound,
    OutcomeUnknown,
    Refused,
    SignatureMismatch,
    WrongCredentials,
)
from tillgate.money import WireNumber
from tillgate.wire import references, signing
from tillgate.wire.dialects import (
    Dialect,
    Encoding,
    RefundOutcome,
    SignatureRule,
    TransactionStatus,
)
from tillgate.wire.messages import (
    CreatedPayment,
    PaymentRequest,
    Refunded,
    RefundRequest,
    ReportedRefund,
    Transaction,
)
from tillgate.wire.methods import Method
from tillgate.wire.texts import masked, storable
from tillgate.wire.urls import is_https, is_web_address

__all__ = [
    "LARGEST_ANSWER_BYTES",
    "Credentials",
    "HttpAnswer",
    "HttpRequest",
    "find_refund",
    "read_pay",
    "read_query",
    "read_refund",
    "write_pay",
    "write_query",
    "write_refund",
]

LARGEST_ANSWER_BYTES: Final = 256 * 1024
"""An envelope is under 1 KB. Tillgate stops reading a longer answer at this bound."""

_OS_TYPES: Final = {"WAP": "ANDROID", "MWEB": "ANDROID"}
"""The osType that version 3 asks for beside a phone's browser: its SDK sends ANDROID for every
phone but those of Apple.
"""
_LONGEST_CODE = 40
_LONGEST_WORD = 64
_LONGEST_NUMBER = 255
_LONGEST_ADDRESS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The parts of an account that the wire needs. The repr hides the token (I11)."""

    base_url: str
    merchant_no: str
    token: str = field(repr=False)
    dialect: Dialect
    sandbox: bool
    currencies: tuple[str, ...] = ()
    methods: tuple[Method, ...] = ()
    store_no: str = ""
    settle_currency: str = ""


@dataclass(slots=True, kw_only=True)
class HttpRequest:
    """A signed POST. The repr hides the body, since it holds merchantNo and verifySign (I11)."""

    operation: str
    reference: str
    url: str
    content_type: str
    body: bytes = field(repr=False)

    @property
    def needs_fresh_connection(self) -> bool:
        """Whether the request must open a connection: the answer to a refund names no reference, so
        it must be the first one there.
        """
        return self.operation == "refund"


@dataclass(slots=True, kw_only=True)
class HttpAnswer:
    """The gateway's HTTP answer. `too_long` says that Tillgate cut the body off."""

    status: int
    body: bytes = field(repr=False)
    too_long: bool = False


class _Envelope(NamedTuple):
    ret_code: str
    ret_msg: str
    result: Mapping[str, Any]


class _Received(dict[str, Any]):
    """A JSON object of an answer. Its repr shows names only, since error reports print local
    variables (I11).
    """

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"


def write_pay(credentials: Credentials, request: PaymentRequest) -> HttpRequest:
    """Write a creation (1. Create payment)."""
    if not isinstance(request, PaymentRequest):
        raise InvalidRequest("request", type(request).__name__, "is not a PaymentRequest")
    _require_https(credentials, "ipn_url", request.ipn_url)
    _require_https(credentials, "callback_url", request.callback_url)
    _require_taken(credentials, request)
    parameters = {**request.parameters(), "osType": _OS_TYPES.get(request.terminal, "")}
    return _write("pay", credentials, credentials.dialect.pay_path, request.reference, parameters)


def write_query(credentials: Credentials, reference: str) -> HttpRequest:
    """Write a query (2. Query transaction)."""
    parameters = {"reference": references.any_reference(reference)}
    return _write("query", credentials, credentials.dialect.query_path, reference, parameters)


def write_refund(credentials: Credentials, request: RefundRequest) -> HttpRequest:
    """Write a refund (3. Refund)."""
    if not isinstance(request, RefundRequest):
        raise InvalidRequest("request", type(request).__name__, "is not a RefundRequest")
    if request.ipn_url:
        _require_https(credentials, "ipn_url", request.ipn_url)
    # the account may have left out a currency since the payment
    if request.currency not in credentials.dialect.currencies:
        raise _not_taken(request.currency, credentials.dialect.currencies)
    parameters = request.parameters()
    parameters |= {
        "refundAmount": parameters["amount"],
        "currency": request.currency,
        "refundReference": request.refund_id or "",
    }
    return _write(
        "refund",
        credentials,
        credentials.dialect.refund_path,
        request.reference,
        parameters,
    )


def _require_taken(credentials: Credentials, request: PaymentRequest) -> None:
    """Raise unless the account takes the currency, the method and the amount, and the dialect has
    the terminal.
    """
    if request.currency not in credentials.currencies:
        raise _not_taken(request.currency, credentials.currencies)
    method = next((method for method in credentials.methods if method.code == request.method), None)
    if method is None:
        codes = ", ".join(method.code for method in credentials.methods)
        raise InvalidRequest(
            "method",
            request.method,
            f"is not one of the account's payment methods: {codes}",
        )
    if fault := method.fault(request.amount, request.currency):
        raise InvalidRequest(
            "amount",
            f"{request.currency} {request.amount}",
            f"cannot be paid so: {fault}",
        )
    if request.terminal not in credentials.dialect.terminals:
        raise InvalidRequest(
            "terminal",
            request.terminal,
            f"is not one of {', '.join(credentials.dialect.terminals)}",
        )


def _not_taken(currency: str, taken: tuple[str, ...]) -> InvalidRequest:
    return InvalidRequest(
        "currency",
        currency,
        f"is not one of the account's currencies: {', '.join(taken)}",
    )


def _require_https(credentials: Credentials, name: str, url: str) -> None:
    if not (credentials.sandbox or is_https(url)):
        raise InvalidRequest(
            name,
            url,
            "is not https, which a live account requires: use https, or an account with "
            "sandbox=True",
        )


def _write(
    operation: str,
    credentials: Credentials,
    path: str,
    reference: str,
    parameters: dict[str, str],
) -> HttpRequest:
    """Sign the parameters that the dialect knows and that are not empty (unspecified behaviour
    1).
    """
    settle_currency = credentials.settle_currency or credentials.dialect.settle_currency(
        parameters.get("currency", ""),
    )
    known = {**parameters, "storeNo": credentials.store_no, "settleCurrency": settle_currency}
    sends = credentials.dialect.sends
    parameters = {name: text for name, text in known.items() if text and sends(operation, name)}
    parameters["merchantNo"] = credentials.merchant_no
    parameters[signing.SIGNATURE] = signing.sign(parameters, credentials.token)
    if credentials.dialect.encoding is Encoding.JSON:
        content_type, body = "application/json", to_json(parameters)
    else:
        content_type, body = "application/x-www-form-urlencoded", urlencode(parameters).encode()
    return HttpRequest(
        operation=operation,
        reference=reference,
        url=credentials.base_url + path,
        content_type=content_type,
        body=body,
    )


def read_pay(
    credentials: Credentials,
    request: PaymentRequest,
    answer: HttpAnswer,
) -> CreatedPayment:
    """Return the created payment; raise `Refused`, or `OutcomeUnknown` if the answer leaves any
    doubt (unspecified behaviour 12 and 13).
    """
    try:
        envelope = _read_envelope(credentials, answer)
        if not _succeeded(credentials, envelope, answer):
            raise _refusal(credentials, envelope, answer)
        return _read_created(credentials, request, envelope.result)
    except AnswerNotUnderstood as error:
        raise OutcomeUnknown("pay", request.reference, str(error), answer.status) from error


def read_query(credentials: Credentials, reference: str, answer: HttpAnswer) -> Transaction:
    """Return the transaction; raise `OrderNotFound` on HTTP 400 with 000022, and another error when
    the answer is inconclusive.
    """
    envelope = _read_envelope(credentials, answer)
    if _succeeded(credentials, envelope, answer):
        return _read_transaction(credentials, reference, envelope.result)
    if answer.status == 400 and envelope.ret_code == credentials.dialect.not_found_code:
        raise OrderNotFound(envelope.ret_code, envelope.ret_msg, answer.status)
    raise _refusal(credentials, envelope, answer)


def read_refund(credentials: Credentials, request: RefundRequest, answer: HttpAnswer) -> Refunded:
    """Return a successful refund; raise `Refused` for a known code of refusal alone, else
    `OutcomeUnknown` (unspecified behaviour 12).
    """
    try:
        envelope = _read_envelope(credentials, answer, has_result=False)
        if _succeeded(credentials, envelope, answer):
            return _read_refunded(credentials, request, envelope, answer)
        if not (
            _denies_account(credentials, envelope, answer)
            or envelope.ret_code in credentials.dialect.refund_refusal_codes
        ):
            raise AnswerNotUnderstood(
                f"ret_code {envelope.ret_code} ({envelope.ret_msg!r}) is not known to be a refusal",
                answer.status,
            )
        raise _refusal(credentials, envelope, answer)
    except AnswerNotUnderstood as error:
        raise OutcomeUnknown("refund", request.reference, str(error), answer.status) from error


def _read_refunded(
    credentials: Credentials,
    request: RefundRequest,
    envelope: _Envelope,
    answer: HttpAnswer,
) -> Refunded:
    """Return the refund; raise unless every fact in its result agrees. v1 documents none, v3 sends
    a status and the refund's amount.
    """
    result, outcome = envelope.result, RefundOutcome.SUCCEEDED
    word = _text(result, "status") or _text(result, "refundStatus")
    if word is not None:
        meaning = credentials.dialect.status(word)
        if meaning is TransactionStatus.FAILED:
            raise Refused(envelope.ret_code, f"the refund's status is {word}", answer.status)
        if meaning not in _REFUND_OUTCOMES:
            raise AnswerNotUnderstood(
                f"the refund's status is {word!r}, which is not known",
                answer.status,
            )
        outcome = _REFUND_OUTCOMES[meaning]
    if _text(result, "reference") not in (None, request.reference):
        raise AnswerNotUnderstood(
            f"it is about the reference {str(result['reference'])[:40]!r} instead of "
            f"{request.reference!r}",
        )
    if _text(result, "refundReference") not in (None, request.refund_id or ""):
        raise AnswerNotUnderstood(
            f"it is about the refund {str(result['refundReference'])[:40]!r} instead of "
            f"{request.refund_id!r}",
        )
    given = result.get("refundAmount")
    if given not in (None, "") and money.read_amount(given, request.currency) != request.amount:
        raise AnswerNotUnderstood(f"it refunds {str(given)[:40]!r} instead of {request.amount}")
    return Refunded(
        reference=request.reference,
        amount=request.amount,
        ret_msg=envelope.ret_msg,
        outcome=outcome,
        refund_no=_text(result, "refundTransactionNo", _LONGEST_NUMBER)
        or _text(result, "refundTransactionId", _LONGEST_NUMBER),
    )


def find_refund(
    found: Transaction,
    request: RefundRequest,
    refund_no: str | None,
) -> Refunded | None:
    """Return the listed refund that bears the number or the id of a refund, or None."""
    for one in found.refunds or ():
        is_named = (refund_no is not None and one.refund_no == refund_no) or (
            request.refund_id and one.refund_id == request.refund_id
        )
        if is_named and one.amount == request.amount:
            message = f"the answer to the query lists it as {one.outcome}"
            return Refunded(
                reference=request.reference,
                amount=one.amount,
                ret_msg=message,
                outcome=one.outcome,
                refund_no=one.refund_no or refund_no,
            )
    return None


_REFUND_OUTCOMES: Final = {
    TransactionStatus.PAID: RefundOutcome.SUCCEEDED,
    TransactionStatus.PENDING: RefundOutcome.PENDING,
    TransactionStatus.FAILED: RefundOutcome.FAILED,
}


def _succeeded(credentials: Credentials, envelope: _Envelope, answer: HttpAnswer) -> bool:
    if envelope.ret_code != credentials.dialect.success_code:
        return False
    if not 200 <= answer.status < 300:
        raise AnswerNotUnderstood(
            f"it says {envelope.ret_code}, success, under HTTP {answer.status}",
            answer.status,
        )
    return True


def _denies_account(credentials: Credentials, envelope: _Envelope, answer: HttpAnswer) -> bool:
    """Return whether an answer says that the token is wrong, by naming the signature, or that the
    account has no rights.
    """
    is_error = 400 <= answer.status < 500 or envelope.ret_code != credentials.dialect.success_code
    return is_error and (
        envelope.ret_code in credentials.dialect.rights_codes
        or signing.SIGNATURE.lower() in envelope.ret_msg.lower()
    )


def _refusal(credentials: Credentials, envelope: _Envelope, answer: HttpAnswer) -> Refused:
    if _denies_account(credentials, envelope, answer):
        return WrongCredentials(envelope.ret_code, envelope.ret_msg, answer.status)
    if envelope.ret_code in credentials.dialect.unknown_codes:
        raise AnswerNotUnderstood(
            f"it says {envelope.ret_code} {envelope.ret_msg!r}, which is no refusal",
            answer.status,
        )
    return Refused(envelope.ret_code, envelope.ret_msg, answer.status)


def _read_envelope(
    credentials: Credentials,
    answer: HttpAnswer,
    *,
    has_result: bool = True,
) -> _Envelope:
    if answer.status == 429 or not (200 <= answer.status < 300 or 400 <= answer.status < 500):
        raise AnswerNotUnderstood(
            f"it came with HTTP {answer.status}, which is neither success nor refusal",
            answer.status,
        )
    if answer.too_long:
        raise AnswerNotUnderstood(f"it is longer than {LARGEST_ANSWER_BYTES} bytes", answer.status)
    fault = None
    try:
        envelope, kept = _parse(answer.body)
    except (ValueError, RecursionError) as error:
        fault = str(error)
    if fault is not None:  # raised here, away from the frames that hold the body (I11)
        raise AnswerNotUnderstood(f"its body is not JSON ({fault})", answer.status)
    if not isinstance(kept, dict):
        raise AnswerNotUnderstood("its body is not a JSON object", answer.status)
    ret_code, ret_msg, result = (
        kept.get("ret_code"),
        kept.get("ret_msg") or kept.get("retMsg") or "",
        kept.get("result") or _Received(),
    )
    if (
        not isinstance(ret_code, str)
        or not 0 < len(ret_code) <= _LONGEST_CODE
        or not ret_code.isprintable()
    ):
        raise AnswerNotUnderstood("ret_code is missing or not a code", answer.status)
    if not isinstance(ret_msg, str) or not isinstance(result, dict):
        raise AnswerNotUnderstood("ret_msg is not text or result is not an object", answer.status)
    if fault := _signature_fault(credentials, envelope, has_result=has_result):
        raise SignatureMismatch(fault, answer.status)
    return _Envelope(masked(ret_code), masked(ret_msg.replace(credentials.token, "***")), result)


def _parse(body: bytes) -> tuple[Any, Any]:
    """Return the JSON of an answer as it came, and a copy that a caller may store: valid text
    without signatures at any depth (I11).
    """
    text = body.decode().strip(" \t\r\n")
    received, end = _ANSWERS.raw_decode(text)
    if end < len(text):
        raise ValueError("something follows it")
    # Only an escape can write invalid text, so most answers need no second walk.
    return received, _kept(received) if "\\u" in text or signing.SIGNATURE in text else received


def _members(pairs: list[tuple[str, Any]]) -> _Received:
    members = _Received(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name comes twice")
    return members


def _kept(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return _Received(
            (storable(name), _kept(member))
            for name, member in value.items()
            if name != signing.SIGNATURE
        )
    return [_kept(member) for member in value] if isinstance(value, list) else value


_ANSWERS = money.json_decoder(_members)


def _signature_fault(
    credentials: Credentials,
    envelope: Mapping[str, Any],
    *,
    has_result: bool,
) -> str | None:
    rule = credentials.dialect.answer_signature
    if rule is SignatureRule.IGNORED:
        return None
    result = envelope.get("result") or {}
    claimed = next(
        (
            claim
            for holder in (envelope, result)
            if (claim := holder.get(signing.SIGNATURE)) not in (None, "")
        ),
        None,
    )
    if claimed is None:
        return (
            "it carries no verifySign, which the dialect requires"
            if rule is SignatureRule.REQUIRED
            else None
        )
    proves_result = has_result and envelope["ret_code"] == credentials.dialect.success_code
    readings = _signed_readings(envelope, result, proves_result=proves_result)
    if isinstance(claimed, str) and any(
        signing.verify(reading, credentials.token, claimed) for reading in readings
    ):
        return None
    return "its verifySign does not belong to the account's token"


def _signed_readings(
    envelope: Mapping[str, Any],
    result: Mapping[str, Any],
    *,
    proves_result: bool,
) -> Iterator[dict[str, str]]:
    # The interface does not show how an answer's signature is checked (Authentication). Tillgate
    # applies the request's algorithm to the plain fields of the whole answer, or of its result
    # alone. One flat text must have one meaning, so no field of the result may share a name with a
    # field of the envelope. A signature over the result alone leaves ret_code unsigned. Tillgate
    # therefore accepts it only for a success with its facts in the result (never for a refund). The
    # result must also hold a transactionNo: no request holds one, so a signed request cannot pass
    # for an answer.
    outer, inner = _wire_texts(envelope), _wire_texts(result)
    shared = (outer.keys() & inner.keys()) - {signing.SIGNATURE}
    if not result.keys().isdisjoint(("ret_code", "ret_msg")) or any(
        outer[name] != inner[name] for name in shared
    ):
        return
    yield {**outer, **inner}
    if proves_result and inner.get("transactionNo"):
        yield inner


def _wire_texts(members: Mapping[str, Any]) -> dict[str, str]:
    texts = {}
    for name, value in members.items():
        if isinstance(value, str):
            texts[name] = value
        elif isinstance(value, WireNumber):
            texts[name] = value.text
        elif isinstance(value, bool):
            texts[name] = "true" if value else "false"
    return texts


def _text(result: Mapping[str, Any], name: str, longest: int = _LONGEST_WORD) -> str | None:
    text, fault = _text_of(result.get(name), longest)
    # raised here, away from the frame that holds the value: it may be a payment page's address with
    # its key (I11)
    if fault:
        raise AnswerNotUnderstood(f"{name} {fault}")
    return text


def _text_of(value: object, longest: int) -> tuple[str | None, str]:
    """Return a value as text, None if it is empty, or the fault of it."""
    if isinstance(value, WireNumber):
        value = value.text
    if value is None or value == "":
        return None, ""
    if not isinstance(value, str):
        return None, "is not text or a number"
    if len(value) > longest:  # it must fit into the column that stores it
        return None, f"is longer than {longest} characters"
    return value, ""


def _read_created(
    credentials: Credentials,
    request: PaymentRequest,
    result: Mapping[str, Any],
) -> CreatedPayment:
    created = CreatedPayment(
        transaction_no=_text(result, "transactionNo", _LONGEST_NUMBER) or "",
        payment_url=_text(result, "cashierUrl", _LONGEST_ADDRESS) or "",
        reference=_text(result, "reference") or "",
        amount=money.read_amount(result.get("amount"), request.currency),
        currency=_text(result, "currency"),
        settle_currency=_text(result, "settleCurrency"),
        raw=dict(result),
    )
    if not is_web_address(created.payment_url) or not (
        credentials.sandbox or is_https(created.payment_url)
    ):
        # The message shows only the beginning, and no variable of this frame holds the rest: it is
        # the key of the page (I11).
        raise AnswerNotUnderstood(
            f"cashierUrl begins with {created.payment_url[:8]!r} and is not an absolute https "
            "address",
        )
    if not created.transaction_no:
        raise AnswerNotUnderstood("transactionNo is missing")
    if created.reference != request.reference:
        raise AnswerNotUnderstood(
            f"it is about the reference {created.reference[:40]!r} "
            f"instead of {request.reference!r}",
        )
    if created.amount != request.amount and result.get("amount") not in (None, ""):
        raise AnswerNotUnderstood(
            f"it echoes the amount {str(result['amount'])[:40]!r} instead of {request.amount}",
        )
    if created.currency not in (None, request.currency):
        raise AnswerNotUnderstood(
            f"it echoes the currency {created.currency[:10]!r} instead of {request.currency}",
        )
    return created


def _read_transaction(
    credentials: Credentials,
    reference: str,
    result: Mapping[str, Any],
) -> Transaction:
    word = _text(result, "status")
    if word is None:
        raise AnswerNotUnderstood("status is missing")
    if _text(result, "reference") != reference:
        raise AnswerNotUnderstood(
            f"it is about the reference {str(result.get('reference'))[:40]!r} instead of "
            f"{reference!r}",
        )
    currency = _text(result, "currency")
    return Transaction(
        reference=reference,
        status=credentials.dialect.status(word),
        status_text=word,
        transaction_no=_text(result, "transactionNo", _LONGEST_NUMBER),
        # unreadable is None: a paid answer is then held for review (row 5)
        amount=money.read_amount(result.get("amount"), currency),
        currency=currency,
        settle_currency=_text(result, "settleCurrency"),
        raw=dict(result),
        refunds=_read_refunds(credentials, currency, result.get("refundInfo")),
    )


def _read_refunds(
    credentials: Credentials,
    currency: str | None,
    listed: object,
) -> tuple[ReportedRefund, ...] | None:
    """Return the refunds of a transaction, or None where the answer lists none or one of them
    cannot be read.

    The documented list has no status (docs.yuansfer.com, transaction-query): a refund that is
    listed without one counts as done.
    """
    listed = [listed] if isinstance(listed, Mapping) else listed
    if not isinstance(listed, list) or not listed:
        return None
    refunds = []
    for one in listed:
        amount = (
            money.read_amount(one.get("refundAmount"), currency)
            if isinstance(one, Mapping)
            else None
        )
        if not amount:
            return None
        word = _text(one, "status") or _text(one, "refundStatus")
        outcome = (
            RefundOutcome.SUCCEEDED
            if word is None
            else _REFUND_OUTCOMES.get(credentials.dialect.status(word))
        )
        if outcome is None:
            return None
        refunds.append(
            ReportedRefund(
                amount=amount,
                refund_no=_text(one, "refundTransactionNo", _LONGEST_NUMBER)
                or _text(one, "refundTransactionId", _LONGEST_NUMBER),
                refund_id=_text(one, "refundReference", _LONGEST_NUMBER),
                outcome=outcome,
            ),
        )
    return tuple(refunds)
