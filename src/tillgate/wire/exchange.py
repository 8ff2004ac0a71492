"""One exchange with the gateway: the request's bytes, and the meaning of the answer's bytes. No I/O.

`write_*` turns a message into an `HttpRequest`. `read_*` turns an `HttpAnswer` into a value, or raises an error that says exactly as much
as the answer proves (unspecified behaviour 12). Any doubt makes the outcome of a pay or refund *unknown*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from pydantic_core import to_json

from tillgate.errors import AnswerNotUnderstood, InvalidRequest, OrderNotFound, OutcomeUnknown, Refused, SignatureMismatch, WrongCredentials
from tillgate.wire import money, references, signing
from tillgate.wire.dialects import Dialect, Encoding, SignatureRule, TransactionStatus
from tillgate.wire.messages import CreatedPayment, PaymentRequest, Refunded, RefundRequest, Transaction
from tillgate.wire.money import WireNumber
from tillgate.wire.texts import masked, storable
from tillgate.wire.urls import is_https, is_web_address

__all__ = [
    "LARGEST_ANSWER_BYTES",
    "Credentials",
    "HttpAnswer",
    "HttpRequest",
    "read_pay",
    "read_query",
    "read_refund",
    "write_pay",
    "write_query",
    "write_refund",
]

LARGEST_ANSWER_BYTES: Final = 256 * 1024
"""An envelope is under 1 KB. Tillgate stops reading a longer answer at this bound."""

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
        """Whether the request must open a connection: the answer to a refund names no reference, so it must be the first one there."""
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
    """A JSON object of an answer. Its repr shows names only, since error reports print local variables (I11)."""

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"


def write_pay(credentials: Credentials, request: PaymentRequest) -> HttpRequest:
    """Write a creation (1. Create payment)."""
    if not isinstance(request, PaymentRequest):
        raise InvalidRequest("request", type(request).__name__, "is not a PaymentRequest")
    _require_https(credentials, "ipn_url", request.ipn_url)
    _require_https(credentials, "callback_url", request.callback_url)
    for vendor, minimum in credentials.dialect.vendor_minimums:
        if vendor == request.method and request.amount < minimum:
            raise InvalidRequest("amount", request.amount, f"is below the least that {vendor} takes, {minimum}")
    return _write("pay", credentials, credentials.dialect.pay_path, request.reference, request.parameters())


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
    return _write("refund", credentials, credentials.dialect.refund_path, request.reference, request.parameters())


def _require_https(credentials: Credentials, name: str, url: str) -> None:
    if not (credentials.sandbox or is_https(url)):
        raise InvalidRequest(name, url, "is not https, which a live account requires: use https, or an account with sandbox=True")


def _write(operation: str, credentials: Credentials, path: str, reference: str, parameters: dict[str, str]) -> HttpRequest:
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


def read_pay(credentials: Credentials, request: PaymentRequest, answer: HttpAnswer) -> CreatedPayment:
    """Return the created payment; raise `Refused`, or `OutcomeUnknown` if the answer leaves any doubt (unspecified behaviour 12 and 13)."""
    try:
        envelope = _read_envelope(credentials, answer)
        if not _succeeded(credentials, envelope, answer):
            raise _refusal(credentials, envelope, answer)
        return _read_created(credentials, request, envelope.result)
    except AnswerNotUnderstood as error:
        raise OutcomeUnknown("pay", request.reference, str(error), answer.status) from error


def read_query(credentials: Credentials, reference: str, answer: HttpAnswer) -> Transaction:
    """Return the transaction; raise `OrderNotFound` on HTTP 400 with 000022, and another error when the answer is inconclusive."""
    envelope = _read_envelope(credentials, answer)
    if _succeeded(credentials, envelope, answer):
        return _read_transaction(credentials, reference, envelope.result)
    if answer.status == 400 and envelope.ret_code == credentials.dialect.not_found_code:
        raise OrderNotFound(envelope.ret_code, envelope.ret_msg, answer.status)
    raise _refusal(credentials, envelope, answer)


def read_refund(credentials: Credentials, request: RefundRequest, answer: HttpAnswer) -> Refunded:
    """Return a successful refund; raise `Refused` for a known code of refusal alone, else `OutcomeUnknown` (unspecified behaviour 12)."""
    try:
        envelope = _read_envelope(credentials, answer, has_result=False)
        if _succeeded(credentials, envelope, answer):
            _check_refund(credentials, request, envelope, answer)
            return Refunded(reference=request.reference, amount=request.amount, ret_msg=envelope.ret_msg)
        if not (_denies_account(credentials, envelope, answer) or envelope.ret_code in credentials.dialect.refund_refusal_codes):
            raise AnswerNotUnderstood(f"ret_code {envelope.ret_code} ({envelope.ret_msg!r}) is not known to be a refusal", answer.status)
        raise _refusal(credentials, envelope, answer)
    except AnswerNotUnderstood as error:
        raise OutcomeUnknown("refund", request.reference, str(error), answer.status) from error


def _check_refund(credentials: Credentials, request: RefundRequest, envelope: _Envelope, answer: HttpAnswer) -> None:
    """Raise unless every fact in a refund's result agrees; v1 documents none, and newer versions send a status and the refund's amount."""
    result = envelope.result
    word = _text(result, "status") or _text(result, "refundStatus")
    if word is not None and (meaning := credentials.dialect.status(word)) is not TransactionStatus.PAID:
        if meaning is TransactionStatus.FAILED:
            raise Refused(envelope.ret_code, f"the refund's status is {word}", answer.status)
        raise AnswerNotUnderstood(f"the refund's status is {word!r}: it is not finished", answer.status)
    if _text(result, "reference") not in (None, request.reference):
        raise AnswerNotUnderstood(f"it is about the reference {str(result['reference'])[:40]!r} instead of {request.reference!r}")
    given = result.get("refundAmount")
    if given not in (None, "") and money.read_amount(given) != request.amount:
        raise AnswerNotUnderstood(f"it refunds {str(given)[:40]!r} instead of {request.amount}")


def _succeeded(credentials: Credentials, envelope: _Envelope, answer: HttpAnswer) -> bool:
    if envelope.ret_code != credentials.dialect.success_code:
        return False
    if not 200 <= answer.status < 300:
        raise AnswerNotUnderstood(f"it says {envelope.ret_code}, success, under HTTP {answer.status}", answer.status)
    return True


def _denies_account(credentials: Credentials, envelope: _Envelope, answer: HttpAnswer) -> bool:
    """Return whether an answer says that the token is wrong, by naming the signature, or that the account has no rights."""
    is_error = 400 <= answer.status < 500 or envelope.ret_code != credentials.dialect.success_code
    return is_error and (envelope.ret_code in credentials.dialect.rights_codes or signing.SIGNATURE.lower() in envelope.ret_msg.lower())


def _refusal(credentials: Credentials, envelope: _Envelope, answer: HttpAnswer) -> Refused:
    if _denies_account(credentials, envelope, answer):
        return WrongCredentials(envelope.ret_code, envelope.ret_msg, answer.status)
    if envelope.ret_code in credentials.dialect.unknown_codes:
        raise AnswerNotUnderstood(f"it says {envelope.ret_code} {envelope.ret_msg!r}, which is no refusal", answer.status)
    return Refused(envelope.ret_code, envelope.ret_msg, answer.status)


def _read_envelope(credentials: Credentials, answer: HttpAnswer, *, has_result: bool = True) -> _Envelope:
    if answer.status == 429 or not (200 <= answer.status < 300 or 400 <= answer.status < 500):
        raise AnswerNotUnderstood(f"it came with HTTP {answer.status}, which is neither success nor refusal", answer.status)
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
    ret_code, ret_msg, result = kept.get("ret_code"), kept.get("ret_msg") or kept.get("retMsg") or "", kept.get("result") or _Received()
    if not isinstance(ret_code, str) or not 0 < len(ret_code) <= _LONGEST_CODE or not ret_code.isprintable():
        raise AnswerNotUnderstood("ret_code is missing or not a code", answer.status)
    if not isinstance(ret_msg, str) or not isinstance(result, dict):
        raise AnswerNotUnderstood("ret_msg is not text or result is not an object", answer.status)
    if fault := _signature_fault(credentials, envelope, has_result=has_result):
        raise SignatureMismatch(fault, answer.status)
    return _Envelope(masked(ret_code), masked(ret_msg.replace(credentials.token, "***")), result)


def _parse(body: bytes) -> tuple[Any, Any]:
    """Return the JSON of an answer as it came, and a copy that a caller may store: valid text without signatures at any depth (I11)."""
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
        return _Received((storable(name), _kept(member)) for name, member in value.items() if name != signing.SIGNATURE)
    return [_kept(member) for member in value] if isinstance(value, list) else value


_ANSWERS = money.json_decoder(_members)


def _signature_fault(credentials: Credentials, envelope: Mapping[str, Any], *, has_result: bool) -> str | None:
    rule = credentials.dialect.answer_signature
    if rule is SignatureRule.IGNORED:
        return None
    result = envelope.get("result") or {}
    claimed = next((claim for holder in (envelope, result) if (claim := holder.get(signing.SIGNATURE)) not in (None, "")), None)
    if claimed is None:
        return "it carries no verifySign, which the dialect requires" if rule is SignatureRule.REQUIRED else None
    proves_result = has_result and envelope["ret_code"] == credentials.dialect.success_code
    readings = _signed_readings(envelope, result, proves_result=proves_result)
    if isinstance(claimed, str) and any(signing.verify(reading, credentials.token, claimed) for reading in readings):
        return None
    return "its verifySign does not belong to the account's token"


def _signed_readings(envelope: Mapping[str, Any], result: Mapping[str, Any], *, proves_result: bool) -> Iterator[dict[str, str]]:
    # "The algorithm for checking response signatures is not shown" (Authentication). Tillgate applies the request's algorithm to
    # the plain fields of the whole answer, or of its result alone. One flat text must have one meaning, so no field of the result
    # may share a name with a field of the envelope. A signature over the result alone leaves ret_code unsigned. Tillgate therefore
    # accepts it only for a success whose facts are in the result (never for a refund). The result must also hold a transactionNo:
    # no request holds one, so a signed request cannot pass for an answer.
    outer, inner = _wire_texts(envelope), _wire_texts(result)
    shared = (outer.keys() & inner.keys()) - {signing.SIGNATURE}
    if not result.keys().isdisjoint(("ret_code", "ret_msg")) or any(outer[name] != inner[name] for name in shared):
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
    value = result.get(name)
    if isinstance(value, WireNumber):
        value = value.text
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise AnswerNotUnderstood(f"{name} is neither text nor a number")
    if len(value) > longest:  # it must fit into the column that stores it
        raise AnswerNotUnderstood(f"{name} is longer than {longest} characters")
    return value


def _read_created(credentials: Credentials, request: PaymentRequest, result: Mapping[str, Any]) -> CreatedPayment:
    created = CreatedPayment(
        transaction_no=_text(result, "transactionNo", _LONGEST_NUMBER) or "",
        payment_url=_text(result, "cashierUrl", _LONGEST_ADDRESS) or "",
        reference=_text(result, "reference") or "",
        amount=money.read_amount(result.get("amount")),
        currency=_text(result, "currency"),
        settle_currency=_text(result, "settleCurrency"),
        raw=dict(result),
    )
    url = created.payment_url
    if not is_web_address(url) or not (credentials.sandbox or is_https(url)):
        # The message shows only the beginning: the rest holds the key of the page (I11).
        raise AnswerNotUnderstood(f"cashierUrl begins with {url[:8]!r} and is not an absolute https address")
    if not created.transaction_no:
        raise AnswerNotUnderstood("transactionNo is missing")
    if created.reference != request.reference:
        raise AnswerNotUnderstood(f"it is about the reference {created.reference[:40]!r} instead of {request.reference!r}")
    if created.amount != request.amount and result.get("amount") not in (None, ""):
        raise AnswerNotUnderstood(f"it echoes the amount {str(result['amount'])[:40]!r} instead of {request.amount}")
    if created.currency not in (None, request.currency):
        raise AnswerNotUnderstood(f"it echoes the currency {created.currency[:10]!r} instead of {request.currency}")
    return created


def _read_transaction(credentials: Credentials, reference: str, result: Mapping[str, Any]) -> Transaction:
    word = _text(result, "status")
    if word is None:
        raise AnswerNotUnderstood("status is missing")
    if _text(result, "reference") != reference:
        raise AnswerNotUnderstood(f"it is about the reference {str(result.get('reference'))[:40]!r} instead of {reference!r}")
    return Transaction(
        reference=reference,
        status=credentials.dialect.status(word),
        status_text=word,
        transaction_no=_text(result, "transactionNo", _LONGEST_NUMBER),
        amount=money.read_amount(result.get("amount")),  # unreadable is None: a paid answer is then held for review (row 5)
        currency=_text(result, "currency"),
        settle_currency=_text(result, "settleCurrency"),
        raw=dict(result),
    )
