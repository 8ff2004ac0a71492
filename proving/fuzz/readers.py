"""Targets without a database: the code that reads the gateway's answers, notifications, returns and
signatures, and the emulator.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from proving.fuzz import inputs
from proving.fuzz.targets import Target
from tests.support import (
    GOOD_BODIES,
    PAYMENT_PAGE,
    REFERENCE,
    TOKEN,
    TOKEN_DIGEST,
    account,
    credentials,
    payment,
    refund,
    signature,
)
from tillgate import (
    Gateway,
    OrderNotFound,
    Refused,
    SignatureRule,
    TillgateError,
    TransactionStatus,
    WrongCredentials,
)
from tillgate.money import Money
from tillgate.sandbox import (
    PUBLISHED_MERCHANT_NO,
    PUBLISHED_STORE_NO,
    PUBLISHED_TEST_TOKEN,
    Options,
)
from tillgate.sandbox.clock import Clock
from tillgate.sandbox.contract import PATHS
from tillgate.sandbox.service import Service
from tillgate.wire import exchange, signing
from tillgate.wire.dialects import REFERENCE as DIALECT
from tillgate.wire.exchange import HttpAnswer
from tillgate.wire.macros import read_callback
from tillgate.wire.notifications import NotificationSignature, confirms_refund, read_notification
from tillgate.wire.urls import is_web_address

SECRETS: Final = (TOKEN, TOKEN_DIGEST)
_STATUSES: Final = (
    200,
    200,
    200,
    200,
    201,
    204,
    301,
    400,
    400,
    401,
    404,
    422,
    429,
    500,
    502,
    503,
    100,
    999,
)
_NAMES: Final = (
    "ret_code",
    "ret_msg",
    "result",
    "verifySign",
    "status",
    "amount",
    "reference",
    "currency",
    "transactionNo",
    "cashierUrl",
)
_CODES: Final = ("000100", "000022", "000000", "000010", "000030", "000040", "999999", "")

RULES: Final = {
    rule: credentials(dialect=replace(DIALECT, answer_signature=rule)) for rule in SignatureRule
}


class Raw(str):
    """A JSON number as it stood on the wire."""


def plain(body: bytes) -> Any:
    """Read a body in other words than the code under test, or return None."""
    try:
        return json.loads(body, parse_float=Raw, parse_int=Raw, parse_constant=Raw)
    except (ValueError, RecursionError):
        return None


def texts(members: dict[str, Any]) -> dict[str, str]:
    """Return the members over which a signature is made, as texts."""
    kept = {
        name: ("true" if value else "false") if isinstance(value, bool) else value
        for name, value in members.items()
    }
    return {
        name: str(value)
        for name, value in kept.items()
        if isinstance(value, str) and name != "verifySign"
    }


def signed(
    envelope: dict[str, Any],
    token: str,
    *,
    inside: bool = False,
    keep_empty: bool = False,
) -> dict[str, Any]:
    """Return an answer with its signature, over all of its plain members or over those of its
    result.
    """
    result = envelope["result"] if isinstance(envelope.get("result"), dict) else {}
    flat = texts(result) if inside else {**texts(envelope), **texts(result)}
    with contextlib.suppress(UnicodeEncodeError):
        made = signature(flat, token=token, keep_empty=keep_empty)
        return (
            {**envelope, "result": {**result, "verifySign": made}}
            if inside and result
            else {**envelope, "verifySign": made}
        )
    return envelope


def is_signed(envelope: dict[str, Any], token: str) -> bool | None:
    """Tell whether an answer's signature is right under any reading at all, or None when it has
    none.
    """
    result: Any = envelope["result"] if isinstance(envelope.get("result"), dict) else {}
    claims = [
        claim
        for claim in (envelope.get("verifySign"), result.get("verifySign"))
        if claim not in (None, "")
    ]
    if not claims:
        return None
    made = set()
    flats = ({**texts(envelope), **texts(result)}, texts(result))
    for flat in (
        *flats,
        *({name: value for name, value in flat.items() if value != "0"} for flat in flats),
    ):
        with contextlib.suppress(UnicodeEncodeError):
            made |= {signature(flat, token=token, keep_empty=keep) for keep in (False, True)}
    return isinstance(claims[0], str) and claims[0] in made


def answer(r: Random, good: dict[str, Any], token: str) -> tuple[int, bytes]:
    """Draw the status and body of an answer: a good one that was spoilt and perhaps signed, before
    or after that.
    """
    envelope = good
    if inputs.chance(r, 3):
        envelope = signed(
            envelope,
            token,
            inside=inputs.chance(r, 2),
            keep_empty=inputs.chance(r, 2),
        )
    if inputs.chance(r, 4):
        envelope = {**envelope, "ret_code": r.choice(_CODES)}
    envelope = inputs.spoil(r, envelope, _NAMES)
    if inputs.chance(r, 3):
        envelope = signed(envelope, token, inside=inputs.chance(r, 2))
    body = inputs.json_text(r, envelope).encode("utf-8", "surrogatepass")
    if inputs.chance(r, 5):
        body = inputs.mutated(r, body)
    elif inputs.chance(r, 30):
        body = inputs.unusual(r, body.decode("utf-8", "replace"))
    return r.choice(_STATUSES) if inputs.chance(r, 3) else 200, body


def assert_says_no_secret(shown: str) -> None:
    assert not any(secret in shown for secret in SECRETS), "I11: a secret is shown"


def _draw_answer(operation: str) -> Callable[[Random], tuple[SignatureRule, int, bytes]]:
    return lambda r: (r.choice(tuple(SignatureRule)), *answer(r, GOOD_BODIES[operation], TOKEN))


def _proven(rule: SignatureRule, status: int, body: bytes) -> dict[str, Any]:
    """Return an answer that was taken for a success, after making sure that it is one."""
    said = plain(body)
    assert said["ret_code"] == "000100", "a success without the code of success"
    assert 200 <= status < 300, "a success under another status"
    if rule is not SignatureRule.IGNORED:
        proof = is_signed(said, TOKEN)
        assert proof or (proof is None and rule is SignatureRule.CHECKED), (
            "a success with a wrong signature or none"
        )
    result = said.get("result")
    return result if isinstance(result, dict) else {}


def _check_pay(drawn: tuple[SignatureRule, int, bytes]) -> str:
    rule, status, body = drawn
    try:
        made = exchange.read_pay(RULES[rule], payment(), HttpAnswer(status=status, body=body))
    except TillgateError as error:
        return _failed(error, "OutcomeUnknown", "Refused", "WrongCredentials", "OrderNotFound")
    result = _proven(rule, status, body)
    assert made.payment_url == result["cashierUrl"]
    _check_redirect(made.payment_url)
    assert result.get("reference") in (None, "", REFERENCE)
    if result.get("amount") not in (None, ""):
        assert Decimal(result["amount"]) == Decimal("12.50")
    return "created"


def _check_redirect(url: str) -> None:
    """A shopper may be sent there: https, a host, no user name before it, and nothing that a
    browser would read in another way.
    """
    parts = urlsplit(url)
    assert parts.scheme == "https"
    assert parts.hostname
    assert "@" not in parts.netloc
    assert "\\" not in url
    assert url.isascii()
    assert url.isprintable()
    assert " " not in url


def _check_query(drawn: tuple[SignatureRule, int, bytes]) -> str:
    rule, status, body = drawn
    try:
        told = exchange.read_query(RULES[rule], REFERENCE, HttpAnswer(status=status, body=body))
    except OrderNotFound:
        assert (status, plain(body)["ret_code"]) == (400, "000022")
        return "not found"
    except TillgateError as error:
        return _failed(
            error,
            "AnswerNotUnderstood",
            "SignatureMismatch",
            "Refused",
            "WrongCredentials",
        )
    result = _proven(rule, status, body)
    assert result["reference"] == REFERENCE, "news of another payment"
    assert (told.status is TransactionStatus.PAID) == (result["status"] == "success")
    if told.amount is not None:
        assert told.amount == Decimal(result["amount"])
    kept = json.dumps(told.raw, default=str)
    assert '"verifySign":' not in kept, "I11: a signature is kept"
    kept.encode()
    return str(told.status)


def _check_refund(drawn: tuple[SignatureRule, int, bytes]) -> str:
    rule, status, body = drawn
    try:
        exchange.read_refund(RULES[rule], refund(), HttpAnswer(status=status, body=body))
    except TillgateError as error:
        if isinstance(error, Refused):
            said: Any = plain(body)
            result = said["result"] if isinstance(said.get("result"), dict) else {}
            is_failed = bool(
                {str(result.get(name)) for name in ("status", "refundStatus")}
                & DIALECT.failed_words,
            )
            is_refusal = (
                said["ret_code"] in DIALECT.refund_refusal_codes
                or isinstance(error, WrongCredentials)
                or is_failed
            )
            assert is_refusal, "I6: money that may have gone out was called refused"
        return _failed(error, "OutcomeUnknown", "Refused", "WrongCredentials", "OrderNotFound")
    _proven(rule, status, body)
    return "succeeded"


def _failed(error: TillgateError, *allowed: str) -> str:
    assert type(error).__name__ in allowed, (
        f"{type(error).__name__} is not how such an answer is told"
    )
    assert_says_no_secret(f"{error} {error!r} {vars(error)}")
    f"{error}".encode()  # a log must be able to write it
    return type(error).__name__


# The client: the same answers with headers and encodings, through httpx ---------------------------

_ANSWER_HEADERS: Final = (
    *(
        ("Content-Type", "application/json"),
        ("Content-Encoding", "gzip"),
        ("Content-Encoding", "identity"),
        ("Content-Encoding", "x"),
    ),
    *(
        ("Location", "https://evil.example/"),
        ("Set-Cookie", "a=b"),
        ("Content-Length", "5"),
        ("Content-Type", "text/html; charset=utf-7"),
    ),
    *(
        ("Retry-After", "99999999"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "upgrade"),
        ("X-\u00e9", "\u00e9"),
    ),
)


def _draw_call(r: Random) -> tuple[str, int, list[tuple[str, str]], bytes]:
    operation = r.choice(("pay", "query", "refund"))
    status, body = answer(r, GOOD_BODIES[operation], TOKEN)
    return operation, status, [r.choice(_ANSWER_HEADERS) for _ in range(r.randrange(3))], body


class _Client:
    """One gateway over a transport that gives the prepared answer."""

    def __init__(self) -> None:
        self.sent = 0
        self.answer = httpx.Response(200)
        self.gateway = Gateway(
            account(query_attempts=1),
            transport=httpx.MockTransport(self._handle),
        )

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.sent += 1
        return self.answer

    def check(self, drawn: tuple[str, int, list[tuple[str, str]], bytes]) -> str:
        operation, status, headers, body = drawn
        self.sent = 0
        pieces = [(name.encode(), value.encode()) for name, value in headers]
        self.answer = httpx.Response(status, headers=pieces, stream=httpx.ByteStream(body))
        calls: dict[str, Callable[[], Any]] = {
            "pay": lambda: self.gateway.pay(payment()),
            "query": lambda: self.gateway.query(REFERENCE),
            "refund": lambda: self.gateway.refund(refund()),
        }
        try:
            calls[operation]()
        except TillgateError as error:
            said = _failed(
                error,
                "OutcomeUnknown",
                "AnswerNotUnderstood",
                "SignatureMismatch",
                "Refused",
                "WrongCredentials",
                "OrderNotFound",
            )
        else:
            _proven(SignatureRule.CHECKED, status, body)
            said = "succeeded"
        assert self.sent == 1, "repeated or redirected"
        return said


# Notifications, returns, signatures, addresses ----------------------------------------------------

NOTIFICATION: Final = {
    "transactionNo": "297553575",
    "reference": REFERENCE,
    "amount": "12.50",
    "currency": "USD",
    "status": "success",
}


def notification_members(r: Random, good: dict[str, Any], token: str) -> dict[str, Any]:
    """Draw a notification's members: signed, signed and then changed, forged, or not signed."""
    members: dict[str, Any] = inputs.spoil(r, good, _NAMES) if inputs.chance(r, 2) else dict(good)
    kind = r.randrange(4)
    if kind < 2:
        members = signed(members, token, keep_empty=kind == 1)
    elif kind == 2:
        members["verifySign"] = r.choice(("0" * 32, "", inputs.text(r)))
    return inputs.spoil(r, members, _NAMES) if inputs.chance(r, 3) else members


def _draw_notification(r: Random) -> tuple[str, str, bytes]:
    members = notification_members(r, r.choice((NOTIFICATION, _CONFIRMING)), TOKEN)
    content_type, content = inputs.body(r, members)
    return content_type, inputs.form(r, members) if inputs.chance(r, 4) else "", content


_CONFIRMING: Final = {"transactionNo": "297553575", "status": "success", "reference": REFERENCE}
"""The fields of a notification that confirms the refund, each with its only value."""


def _check_notification(drawn: tuple[str, str, bytes]) -> str:
    notification = read_notification(*drawn)
    for name, value in notification.parameters.items():
        assert "\0" not in f"{name}{value}"
        f"{name}{value}".encode()
    assert "verifySign" not in notification.evidence()
    said = notification.signature(TOKEN)
    if said is NotificationSignature.MATCHES:
        claimed = notification.parameters["verifySign"]
        signed = (notification.parameters, notification.body)
        without_zero = [
            {name: value for name, value in one.items() if value != "0"} for one in signed
        ]
        assert claimed in {
            signature(one, keep_empty=keep)
            for one in (*signed, *without_zero)
            for keep in (False, True)
        }
        assert not notification.repeated
    is_confirmed = confirms_refund(
        notification,
        DIALECT,
        reference=REFERENCE,
        transaction_no="297553575",
        refund_id="F-1",
        refund_no=None,
        refunded=Money("1.00", "USD"),
    )
    if is_confirmed:
        assert notification.evidence() == _CONFIRMING
        assert "verifySign" in notification.parameters
    assert_says_no_secret(repr(notification))
    return str(said)


def _check_callback(query: str) -> str:
    came = read_callback(query)
    assert set(came) == {"amount", "status", "transactionNo", "reference", "time", "note"}
    for value in came.values():
        assert value is None or (
            value
            and not (
                value.startswith("{")
                and value.endswith("}")
                and value[1:-1].isalpha()
                and value.isascii()
            )
        )
    return f"{sum(value is not None for value in came.values())} given"


def _draw_signed(r: Random) -> tuple[dict[str, str], str, int]:
    parameters = {inputs.text(r): inputs.text(r) for _ in range(r.randrange(1, 6))}
    parameters["merchantNo"] = "200043"  # every request has it, and so something to sign
    return parameters, inputs.text(r), r.randrange(4)


def _check_signing(drawn: tuple[dict[str, str], str, int]) -> str:
    parameters, other, kind = drawn
    parameters.pop("verifySign", None)
    try:
        expected, other_reading = signature(parameters), signature(parameters, keep_empty=True)
    except UnicodeEncodeError:
        with contextlib.suppress(TillgateError):
            signing.sign(parameters, TOKEN)
        assert not signing.verify(parameters, TOKEN, "0" * 32)
        return "not Unicode"
    assert signing.sign(parameters, TOKEN) == expected
    assert signing.verify(parameters, TOKEN, expected)
    assert signing.verify({**parameters, "verifySign": other_reading}, TOKEN)
    wrong = (
        other,
        expected.upper() if expected.upper() != expected else "",
        expected[:-1],
        f"{expected}0",
    )[kind]
    assert wrong == expected or not signing.verify(parameters, TOKEN, wrong)
    return "signed"


def _draw_address(r: Random) -> str:
    good = r.choice(
        (
            PAYMENT_PAGE,
            "https://[2001:db8::1]:8443/a?b=c#d",
            "http://127.0.0.1:1/",
            "https://xn--bcher-kva.example/",
        ),
    )
    for _ in range(r.randrange(1, 4)):
        good = inputs.mutated_text(r, good)
    return good


def _check_address(url: str) -> str:
    if not is_web_address(url):
        return "refused"
    if url[:8].lower() == "https://":
        _check_redirect(url)
    return "taken"


# The emulator -------------------------------------------------------------------------------------

_PATHS: Final = tuple(PATHS["all"])
_ORDER: Final = {
    "merchantNo": PUBLISHED_MERCHANT_NO,
    "currency": "USD",
    "amount": "12.50",
    "vendor": "alipay",
    "reference": REFERENCE,
    "terminal": "WAP",
    "storeNo": PUBLISHED_STORE_NO,
    "settleCurrency": "USD",
    "osType": "IOS",
    "refundAmount": "2.50",
    "refundReference": "R-1",
    "ipnUrl": "https://shop.example/",
    "callbackUrl": "https://shop.example/back?amount={amount}",
    "timeout": "120",
    "description": "Tea",
    "goodsInfo": '[{"goods_name":"Tea","quantity":"1"}]',
}


def _draw_merchant(r: Random) -> tuple[str, str, bytes]:
    members: dict[str, Any] = inputs.spoil(r, _ORDER, (*_ORDER, "verifySign"))
    if not inputs.chance(r, 4):
        members = signed(members, PUBLISHED_TEST_TOKEN)
    path = (
        r.choice(_PATHS) if not inputs.chance(r, 10) else inputs.mutated_text(r, r.choice(_PATHS))
    )
    return (path, *inputs.body(r, members))


class _Emulator:
    """The gateway's emulator, replaced now and then to keep its books small."""

    def __init__(self) -> None:
        self._calls = 0
        self._service = self._new()

    @staticmethod
    def _new() -> Service:
        return Service(Options(seed=1), clock=Clock.standing(), random=Random(1))

    def check(self, drawn: tuple[str, str, bytes]) -> str:
        self._calls += 1
        if self._calls % 2000 == 0:
            self._service = self._new()
        came = self._service.handle(*drawn)
        assert came.http_status < 500 or came.http_status == 0 or dict(came.headers), (
            "an answer of no kind"
        )
        assert PUBLISHED_TEST_TOKEN.encode() not in came.body
        assert all(one.status in ("pending", "expired") for one in self._service.transactions()), (
            "a call paid a transaction"
        )
        said = plain(came.body)
        return str(said["ret_code"]) if isinstance(said, dict) and "ret_code" in said else came.fate


def readers() -> Iterator[Target]:
    """Yield the targets that need no database."""
    yield Target("answers to pay, read", 140, _draw_answer("pay"), _check_pay)
    yield Target("answers to query, read", 180, _draw_answer("query"), _check_query)
    yield Target("answers to refund, read", 120, _draw_answer("refund"), _check_refund)
    yield Target("answers over HTTP", 40, _draw_call, _Client().check)
    yield Target("notifications, read", 150, _draw_notification, _check_notification)
    yield Target(
        "callback macros",
        30,
        lambda r: inputs.form(r, inputs.spoil(r, NOTIFICATION)),
        _check_callback,
    )
    yield Target("signing", 60, _draw_signed, _check_signing)
    yield Target("addresses", 50, _draw_address, _check_address)
    yield Target("the emulator", 57, _draw_merchant, _Emulator().check)
