"""The issue's list of bad input, both halves: a clear error without a secret, nothing sent, and
never a wrong success.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from proving.processes import free_port
from tests.scripted_gateway import Cut, Received, ScriptedGateway, Step, always, http
from tests.support import (
    GOOD_BODIES,
    KINDS,
    OPERATIONS,
    REFERENCE,
    TOKEN,
    NothingMayBeSent,
    account,
    call,
    carry_out,
    created,
    envelope,
    everything_shown,
    found,
    outcomes,
    payment,
    refund,
    signature,
    within,
)
from tillgate import (
    AnswerNotUnderstood,
    AsyncGateway,
    ConfigurationError,
    Gateway,
    Goods,
    InvalidRequest,
    NotSent,
    OutcomeUnknown,
    Refunded,
    TransactionStatus,
)

INCONCLUSIVE: dict[str, Any] = {
    "pay": OutcomeUnknown,
    "query": (AnswerNotUnderstood, OutcomeUnknown),
    "refund": OutcomeUnknown,
}
FAST: dict[str, Any] = {"sandbox": True, "deadline_seconds": 20.0, "query_attempts": 1}
SLOW: dict[str, Any] = {"sandbox": True, "deadline_seconds": 0.4, "query_attempts": 1}

# --- from the shop

BAD_PAYMENTS: list[tuple[str, Any]] = [
    *(("currency", value) for value in ("EUR", "usd", "", None)),
    *(
        ("amount", value)
        for value in (
            "0",
            0,
            "-1.00",
            Decimal(-1),
            "1.005",
            12.5,
            float("nan"),
            "NaN",
            "1e3",
            "١٢",
            "\uff11\uff12",
            " 1.1 ",
            "1_000",
        )
    ),
    *(("method", value) for value in ("stripe", "", None)),
    *(("terminal", value) for value in ("online", "DESKTOP", None)),
    *(("reference", value) for value in ("", "A" * 65, "A&B", "A B", "A\U0001f600")),
    *(
        (field, value)
        for field in ("ipn_url", "callback_url")
        for value in ("/ipn", "shop.example", "ftp://shop.example/", "http://shop.example/")
    ),
    ("goods_info", [{"goods_name": "\u2605!!\u2605"}]),
]
BAD_REFUNDS: list[tuple[str, Any]] = [
    *(("amount", value) for value in ("0", "-1.00", "1.005", 2.5, "NaN", "1e3", "١٢")),
    *(("reference", value) for value in ("", "A" * 65, "A&B", "A B", "A\U0001f600")),
    *(("ipn_url", value) for value in ("/ipn", "ftp://shop.example/", "http://shop.example/")),
]


def assert_is_clear(error: InvalidRequest, field: str, value: object) -> None:
    assert error.field in (field, "goods_name")
    assert error.value == value or error.value is value or field == "goods_info"
    assert error.remedy
    assert error.field in str(error)
    assert TOKEN not in everything_shown(error)


@pytest.mark.parametrize(("field", "value"), BAD_PAYMENTS)
def test_bad_payment_is_refused_unsent(field: str, value: Any) -> None:
    with (
        Gateway(account(), transport=NothingMayBeSent()) as gateway,
        pytest.raises(InvalidRequest) as caught,
    ):
        gateway.pay(payment(**{field: value}))
    assert_is_clear(caught.value, field, value)


@pytest.mark.parametrize(("field", "value"), BAD_REFUNDS)
def test_bad_refund_is_refused_unsent(field: str, value: Any) -> None:
    with (
        Gateway(account(), transport=NothingMayBeSent()) as gateway,
        pytest.raises(InvalidRequest) as caught,
    ):
        gateway.refund(refund(**{field: value}))
    assert_is_clear(caught.value, field, value)


@pytest.mark.parametrize("reference", ["", "A" * 65, "A&B", "A B", "A\U0001f600", None])
def test_bad_query_reference_is_refused_unsent(reference: Any) -> None:
    with (
        Gateway(account(), transport=NothingMayBeSent()) as gateway,
        pytest.raises(InvalidRequest) as caught,
    ):
        gateway.query(reference)
    assert_is_clear(caught.value, "reference", reference)


def test_async_gateway_refuses_bad_input_unsent() -> None:
    async def run() -> None:
        async with AsyncGateway(account(), transport=NothingMayBeSent()) as gateway:
            with pytest.raises(InvalidRequest):
                await gateway.pay(payment(ipn_url="http://shop.example/"))
            with pytest.raises(InvalidRequest):
                await gateway.query("A&B")
            with pytest.raises(InvalidRequest):
                await gateway.refund(refund(ipn_url="http://shop.example/"))

    asyncio.run(run())


@pytest.mark.parametrize("name", ["***", "\u2605", "\U0001f600", "-.,"])
def test_special_character_goods_name_is_refused(name: str) -> None:
    """A goods name needs more than special characters."""
    with pytest.raises(InvalidRequest, match="goods_name"):
        Goods(goods_name=name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            ("base_url", value)
            for value in ("", "pay.example", "/pay", "ftp://pay.example", "http://pay.example")
        ),
        ("token", ""),
        ("token", None),
    ],
)
def test_a_bad_account_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        account(**{field: value})
    assert caught.value.field == field
    assert TOKEN not in everything_shown(caught.value)


# --- from the gateway


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedGateway]:
    with ScriptedGateway(always(Cut.CLOSE)) as server:
        yield server


def bad_answers(operation: str) -> Iterator[tuple[str, bytes]]:
    good = GOOD_BODIES[operation]
    yield "not JSON", http(b"<html>It works!</html>")
    yield "no body", http(b"")
    yield "a list", http([good])
    yield "missing ret_code", http({"ret_msg": "success", "result": good.get("result", {})})
    yield "ret_code as number", http({**good, "ret_code": 100})
    yield (
        "another reference",
        http({**good, "result": {**good.get("result", {}), "reference": "100017-OTHER"}}),
    )
    yield "10 MB", http(json.dumps({**good, "padding": "x" * 10_000_000}).encode())
    yield (
        "10 MB in chunks",
        http(b"", headers={"Transfer-Encoding": "chunked"}).replace(b"Content-Length: 0\r\n", b"")
        + chunked(json.dumps({**good, "padding": "x" * 10_000_000}).encode()),
    )
    yield "compressed", http(b"\x1f\x8b" + b"0" * 100, headers={"Content-Encoding": "gzip"})
    for status in (301, 302, 303, 307, 308):
        yield f"redirect {status}", http(good, status, {"Location": "/online/v1/secure-pay"})
    for status in (429, 500, 502, 503, 504):
        yield f"HTTP {status}", http(good, status)


def chunked(body: bytes) -> bytes:
    pieces = (body[start : start + 65536] for start in range(0, len(body), 65536))
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


CASES = [
    pytest.param(operation, answer, id=f"{operation}, {name}")
    for operation in OPERATIONS
    for name, answer in bad_answers(operation)
    if (operation, name)
    != ("refund", "another reference")  # "ret_code and ret_msg only": a refund's answer has none
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("operation", "answer"), CASES)
def test_bad_answer_proves_nothing(
    scripted: ScriptedGateway,
    kind: str,
    operation: str,
    answer: bytes,
) -> None:
    """No request is sent again after a bad answer."""
    scripted.script, scripted.requests = always(answer), []
    with pytest.raises(INCONCLUSIVE[operation]) as caught:
        carry_out(kind, account(base_url=scripted.url, **FAST), operation)
    assert len(scripted.requests) == 1, "neither repeated nor redirected"
    sent = scripted.requests[0].parameters["verifySign"]
    shown = everything_shown(caught.value)
    assert TOKEN not in shown
    assert sent not in shown


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_status_is_not_paid(scripted: ScriptedGateway, kind: str) -> None:
    """The caller gets to know the status."""
    scripted.script = always(http(envelope(found(status="teleported"))))
    [answer] = carry_out(kind, account(base_url=scripted.url, **FAST), "query")
    assert (answer.status, answer.status_text) == (TransactionStatus.UNRECOGNISED, "teleported")


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_amount_is_told_as_missing(scripted: ScriptedGateway, kind: str) -> None:
    scripted.script = always(http(envelope(found(amount=None))))
    [answer] = carry_out(kind, account(base_url=scripted.url, **FAST), "query")
    assert (answer.status, answer.amount) == (TransactionStatus.PAID, None)
    scripted.script = always(http(envelope(created(amount=None))))
    [made] = carry_out(kind, account(base_url=scripted.url, **FAST), "pay")
    assert made.amount is None


# --- slow and cut answers

GOOD_ANSWERS = {operation: http(body) for operation, body in GOOD_BODIES.items()}


def dripping(start: bytes, rest: bytes) -> Callable[[Received], Iterator[Step]]:
    """Return a script that sends a start immediately and the rest a byte at a time, each well
    within a read's time-out.
    """

    def script(_request: Received) -> Iterator[Step]:
        yield start
        for place in range(len(rest)):
            yield 0.04
            yield rest[place : place + 1]

    return script


SLOWNESS: dict[str, Callable[[bytes], Callable[[Received], Any]]] = {
    "in the headers": lambda answer: dripping(b"", answer),
    "in the body": lambda answer: dripping(
        answer[: answer.index(b"\r\n\r\n") + 8],
        answer[answer.index(b"\r\n\r\n") + 8 :],
    ),
    "before the first byte": lambda answer: always(60.0, answer),
    "interim answers without end": lambda answer: (
        lambda _request: (
            step for _ in range(1000) for step in (b"HTTP/1.1 100 Continue\r\n\r\n", 0.02)
        )
    ),
}


def assert_each_was_sent_once_and_is_unknown(
    scripted: ScriptedGateway,
    came: dict[str, Any],
) -> None:
    assert sorted(request.operation for request in scripted.requests) == sorted(OPERATIONS)
    assert {operation: type(error) for operation, error in came.items()} == dict.fromkeys(
        OPERATIONS,
        OutcomeUnknown,
    )
    assert all(error.may_have_arrived for error in came.values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", SLOWNESS)
def test_slow_drip_ends_at_deadline(
    scripted: ScriptedGateway,
    kind: str,
    where: str,
) -> None:
    scripted.script, scripted.requests = (
        lambda request: SLOWNESS[where](GOOD_ANSWERS[request.operation])(request),
        [],
    )
    with within(5):
        came = outcomes(kind, account(base_url=scripted.url, **SLOW))
    assert_each_was_sent_once_and_is_unknown(scripted, came)


@pytest.mark.parametrize("kind", KINDS)
def test_long_pause_in_answer_ends_reading(
    scripted: ScriptedGateway,
    kind: str,
) -> None:
    """Reading ends when an answer pauses for longer than the read timeout."""
    scripted.script, scripted.requests = (
        lambda request: (GOOD_ANSWERS[request.operation][:-5], 60.0),
        [],
    )
    with within(5):
        came = outcomes(
            kind,
            account(base_url=scripted.url, **{**FAST, "read_timeout_seconds": 0.2}),
        )
    assert_each_was_sent_once_and_is_unknown(scripted, came)


def cut(answer: bytes, place: int, how: Cut) -> Callable[[Received], Any]:
    return always(answer[:place], how)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_answer_cut_anywhere_is_no_success(
    scripted: ScriptedGateway,
    operation: str,
) -> None:
    """No request is sent again, wherever the answer ends."""
    answer = GOOD_ANSWERS[operation]
    scripted.requests = []
    with Gateway(account(base_url=scripted.url, **FAST)) as gateway:
        for place in range(len(answer)):
            scripted.script = cut(answer, place, Cut.CLOSE)
            with pytest.raises(OutcomeUnknown) as caught:
                call(gateway, operation)
            assert caught.value.reference == REFERENCE
        assert len(scripted.requests) == len(answer), "each was sent once"
        scripted.script = cut(answer, len(answer), Cut.CLOSE)
        assert call(gateway, operation).reference == REFERENCE


@pytest.mark.parametrize("how", Cut)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_cut_or_reset_is_no_success(
    scripted: ScriptedGateway,
    kind: str,
    operation: str,
    how: Cut,
) -> None:
    answer = GOOD_ANSWERS[operation]
    body = answer.index(b"\r\n\r\n")
    places = {
        0,
        1,
        9,
        15,
        20,
        body,
        body + 2,
        body + 3,
        body + 4,
        body + 5,
        len(answer) - 1,
        *range(0, len(answer), 41),
    }
    for place in sorted(places):
        scripted.script, scripted.requests = cut(answer, place, how), []
        with pytest.raises(OutcomeUnknown):
            carry_out(kind, account(base_url=scripted.url, **FAST), operation)
        assert len(scripted.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("framing", ["until the end", "chunked"])
def test_cut_unsized_answer_is_no_success(
    scripted: ScriptedGateway,
    kind: str,
    operation: str,
    framing: str,
) -> None:
    """The answer does not state its length."""
    body = json.dumps(GOOD_BODIES[operation]).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    answer = head + (
        b"\r\n" + body
        if framing == "until the end"
        else b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body)
    )
    at = account(base_url=scripted.url, **FAST)
    for place in [
        *range(len(head), len(answer), 29),
        len(answer) - (1 if framing == "until the end" else 6),
    ]:
        scripted.script = cut(answer, place, Cut.CLOSE)
        with pytest.raises(INCONCLUSIVE[operation]):
            carry_out(kind, at, operation)
    scripted.script = cut(answer, len(answer), Cut.CLOSE)
    assert carry_out(kind, at, operation)[0].reference == REFERENCE


MALFORMED = [
    b"",
    b"\r\n",
    b"\x00" * 50,
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/1.1 99999 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nA: " + b"x" * 200_000 + b"\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 50_000 + b"\r\n{}",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n{}",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b'{"ret_code":"000100","ret_msg":"success"}',
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("answer", MALFORMED, ids=lambda answer: repr(answer[:40]))
def test_what_is_not_http_is_no_news(
    scripted: ScriptedGateway,
    kind: str,
    operation: str,
    answer: bytes,
) -> None:
    scripted.script, scripted.requests = always(answer, Cut.CLOSE), []
    with pytest.raises(INCONCLUSIVE[operation]) as caught:
        carry_out(kind, account(base_url=scripted.url, **FAST), operation)
    assert len(str(caught.value)) < 600
    assert len(scripted.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 ",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: ",
    ],
)
def test_i11_echoed_request_leaks_no_signature(
    scripted: ScriptedGateway,
    kind: str,
    operation: str,
    start: bytes,
) -> None:
    scripted.script, scripted.requests = (
        lambda request: (start + request.body + b"\r\n\r\n", Cut.CLOSE),
        [],
    )
    with pytest.raises(INCONCLUSIVE[operation]) as caught:
        carry_out(kind, account(base_url=scripted.url, **FAST), operation)
    sent = scripted.requests[0].parameters
    assert sent["verifySign"] == signature(sent)
    assert sent["verifySign"] not in everything_shown(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_closed_port_means_not_sent(kind: str, operation: str) -> None:
    with pytest.raises(NotSent) as caught:
        carry_out(kind, account(base_url=f"http://127.0.0.1:{free_port()}", **FAST), operation)
    assert (caught.value.operation, caught.value.reference) == (operation, REFERENCE)


def test_reported_refund_success_is_accepted(scripted: ScriptedGateway) -> None:
    scripted.script = always(http({"ret_code": "000100", "ret_msg": "refund success"}))
    for kind in KINDS:
        assert carry_out(kind, account(base_url=scripted.url, **FAST), "refund") == [
            Refunded(reference=REFERENCE, amount=Decimal("2.50"), ret_msg="refund success"),
        ]
