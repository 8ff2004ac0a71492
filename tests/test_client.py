"""Gateway and AsyncGateway: pay and refund are sent once, a query is repeated within bounds, and no
secret shows on any path (I11).
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
import stamina

from proving.processes import free_port
from tests.scripted_gateway import Cut, Received, ScriptedGateway, Step, always, http, in_turn
from tests.support import (
    GOOD_BODIES,
    KINDS,
    OPERATIONS,
    PAYMENT_PAGE,
    REFERENCE,
    TOKEN,
    TOKEN_DIGEST,
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
    run_async,
    signature,
    within,
)
from tillgate import (
    EXAMPLES,
    Account,
    AnswerNotUnderstood,
    AsyncGateway,
    ConfigurationError,
    CreatedPayment,
    Gateway,
    GatewayError,
    GatewayProfile,
    InvalidRequest,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    Refused,
    Transaction,
)

FAST: dict[str, Any] = {"sandbox": True, "deadline_seconds": 20.0}
SLOW: dict[str, Any] = {"sandbox": True, "deadline_seconds": 0.4}
GOOD = {operation: http(body) for operation, body in GOOD_BODIES.items()}
NEVER_LEFT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
UNKNOWN = (
    httpx.ReadError,
    httpx.ReadTimeout,
    httpx.WriteError,
    httpx.WriteTimeout,
    httpx.RemoteProtocolError,
    httpx.CloseError,
)
NOT_FOUND = http({"ret_code": "000022", "ret_msg": "order not found"}, 400)


@pytest.fixture
def scripted() -> Iterator[ScriptedGateway]:
    with ScriptedGateway(always(Cut.CLOSE)) as server:
        yield server


@pytest.fixture
def no_pauses() -> Iterator[None]:
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


# --- pay and refund are sent once (I6, I8)

FAILURES: dict[str, tuple[Step, ...]] = {
    "cut after the request": (Cut.CLOSE,),
    "reset after the request": (Cut.RESET,),
    "cut in the headers": (b"HTTP/1.1 200 OK\r\n", Cut.CLOSE),
    "429": (http(GOOD_BODIES["pay"], 429, {"Retry-After": "0"}),),
    "500": (http({"ret_code": "000100", "ret_msg": "success"}, 500),),
    "503": (http(b"", 503, {"Retry-After": "0"}),),
    "408": (http(b"", 408, {"Connection": "close"}), Cut.CLOSE),
    "no answer in time": (60.0,),
    "half an answer in time": (GOOD["pay"][:60], 60.0),
    "redirect": (http(b"", 307, {"Location": "/online/v1/refund"}),),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failure", FAILURES)
def test_i6_i8_pay_and_refund_never_resent(
    scripted: ScriptedGateway,
    kind: str,
    failure: str,
) -> None:
    scripted.script = always(*FAILURES[failure])
    # a busy machine may take a while to read a request
    patience = SLOW if "in time" in failure else FAST
    came = outcomes(
        kind,
        account(base_url=scripted.url, **patience, query_attempts=10),
        ["pay", "refund"],
    )
    assert sorted(request.operation for request in scripted.requests) == ["pay", "refund"]
    for operation, error in came.items():
        assert isinstance(error, OutcomeUnknown)
        assert (error.operation, error.reference, error.may_have_arrived) == (
            operation,
            REFERENCE,
            True,
        )
        assert error.http_status == (
            int(failure) if failure.isdigit() else 307 if failure == "redirect" else None
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", ["pay", "refund"])
@pytest.mark.parametrize("how", Cut)
def test_i6_i8_dropped_connection_is_not_retried(
    scripted: ScriptedGateway,
    kind: str,
    operation: str,
    how: Cut,
) -> None:
    """A kept connection dies during a payment or refund request."""
    scripted.script = in_turn([GOOD["query"]], [how], [GOOD[operation]])
    with pytest.raises(OutcomeUnknown):
        carry_out(kind, account(base_url=scripted.url, **FAST), "query", operation)
    assert (len(scripted.requests), scripted.connections) == (2, 1 if operation == "pay" else 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", ["pay", "refund"])
def test_a_refusal_is_final_and_sent_once(
    scripted: ScriptedGateway,
    kind: str,
    operation: str,
) -> None:
    scripted.script = always(http(envelope(code="000030", message="not enough"), 400))
    with pytest.raises(Refused, match="not enough"):
        carry_out(kind, account(base_url=scripted.url, **FAST), operation)
    assert len(scripted.requests) == 1


# --- a query is repeated within bounds


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "failure",
    [(Cut.CLOSE,), (Cut.RESET,), (http(b"", 429),), (http(b"", 500),), (http(b"<html>", 503),)],
)
def test_query_retries_after_transient_failures(
    scripted: ScriptedGateway,
    kind: str,
    failure: tuple[Step, ...],
) -> None:
    """These are a failed connection, status 429 and any 5xx status."""
    scripted.script = in_turn(failure, failure, [GOOD["query"]])
    assert (
        carry_out(kind, account(base_url=scripted.url, **FAST), "query")[0].reference == REFERENCE
    )
    assert len(scripted.requests) == 3
    assert len({request.body for request in scripted.requests}) == 1


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_query_reports_attempts_when_giving_up(
    scripted: ScriptedGateway,
    kind: str,
    attempts: int,
) -> None:
    scripted.script = always(http(b"", 503))
    with pytest.raises(AnswerNotUnderstood) as caught:
        carry_out(kind, account(base_url=scripted.url, **FAST, query_attempts=attempts), "query")
    assert caught.value.http_status == 503
    assert len(scripted.requests) == attempts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failure", [(http(b"", 503),), (Cut.CLOSE,), (60.0,)])
def test_a_query_stops_at_its_deadline(
    scripted: ScriptedGateway,
    kind: str,
    failure: tuple[Step, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    scripted.script = always(*failure)
    with within(5), pytest.raises((AnswerNotUnderstood, OutcomeUnknown)):
        carry_out(kind, account(base_url=scripted.url, **SLOW, query_attempts=10), "query")
    assert 1 <= len(scripted.requests) <= 4


@pytest.mark.parametrize("kind", KINDS)
def test_timed_out_query_counts_as_sent(
    scripted: ScriptedGateway,
    kind: str,
) -> None:
    scripted.script = always(60.0)
    with pytest.raises(OutcomeUnknown):
        carry_out(kind, account(base_url=scripted.url, **SLOW), "query")


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (NOT_FOUND, OrderNotFound),
        (http(envelope(code="000010"), 400), Refused),
        (http(envelope(code="000022"), 404), Refused),
        (http(b"<html>"), AnswerNotUnderstood),
        (http({**GOOD_BODIES["query"], "verifySign": "0" * 32}), AnswerNotUnderstood),
        (http(GOOD_BODIES["query"], 302, {"Location": "/"}), AnswerNotUnderstood),
    ],
)
def test_answered_query_is_not_repeated(
    scripted: ScriptedGateway,
    kind: str,
    answer: bytes,
    error: type[GatewayError],
) -> None:
    scripted.script = always(answer)
    with pytest.raises(error):
        carry_out(kind, account(base_url=scripted.url, **FAST), "query")
    assert len(scripted.requests) == 1


@pytest.mark.usefixtures("no_pauses")
def test_query_retries_when_connecting_fails() -> None:
    tried = []

    def handle(request: httpx.Request) -> httpx.Response:
        tried.append(request)
        raise httpx.ConnectError("refused", request=request)

    with (
        Gateway(account(), transport=httpx.MockTransport(handle)) as gateway,
        pytest.raises(NotSent, match="refused"),
    ):
        gateway.query(REFERENCE)
    assert len(tried) == 3


def test_pauses_grow_and_have_a_random_part(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", paused.append)
    transport = httpx.MockTransport(lambda _: httpx.Response(503))
    with Gateway(account(query_attempts=5), transport=transport) as gateway:
        for _ in range(20):
            with pytest.raises(AnswerNotUnderstood):
                gateway.query(REFERENCE)
    for number, shortest in enumerate((0.1, 0.2, 0.4, 0.8)):
        same = paused[number::4]
        assert shortest <= min(same) < max(same) <= shortest + 0.4
        assert max(same) - min(same) > 0.1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("given", "sent"), [(1, 1), (2, 2), (9, 3), (None, 3)])
@pytest.mark.usefixtures("no_pauses")
def test_query_can_limit_its_attempts(
    scripted: ScriptedGateway,
    kind: str,
    given: int | None,
    sent: int,
) -> None:
    """A call may use fewer attempts than the account allows."""
    scripted.script = always(http(b"", 503))
    with pytest.raises(AnswerNotUnderstood):
        query(kind, account(base_url=scripted.url, **FAST), attempts=given)
    assert len(scripted.requests) == sent


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("own", "given"), [(20.0, 0.3), (0.3, 20.0), (0.3, None)])
def test_query_can_shorten_its_deadline(
    scripted: ScriptedGateway,
    kind: str,
    own: float,
    given: float | None,
) -> None:
    scripted.script = always(60.0)
    with within(5), pytest.raises(OutcomeUnknown):
        query(
            kind,
            account(base_url=scripted.url, sandbox=True, deadline_seconds=own),
            deadline_seconds=given,
        )
    assert len(scripted.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "bounds",
    [{"attempts": 0}, {"deadline_seconds": 0}, {"deadline_seconds": float("nan")}],
)
def test_query_needs_an_attempt_and_time(
    kind: str,
    bounds: dict[str, Any],
) -> None:
    ((name, value),) = bounds.items()
    with pytest.raises(
        InvalidRequest,
        match=rf"^{name}: {value} must be .* or None for the account's",
    ) as caught:
        query(kind, account(), **bounds)
    assert caught.value.field == name


def query(kind: str, at: Account, **bounds: Any) -> Any:
    """Query with bounds of the call's own."""
    if kind == "sync":
        with Gateway(at) as gateway:
            return gateway.query(REFERENCE, **bounds)

    async def work(gateway: AsyncGateway) -> list[Any]:
        return [await gateway.query(REFERENCE, **bounds)]

    return run_async(kind, at, work)[0]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_cancelled_query_ends_without_retry(
    scripted: ScriptedGateway,
    kind: str,
) -> None:
    scripted.script = always(60.0)

    async def work(gateway: AsyncGateway) -> list[Any]:
        waiting = asyncio.create_task(gateway.query(REFERENCE))
        while not scripted.requests:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return []

    with within(5):
        run_async(kind, account(base_url=scripted.url, **FAST), work)
    assert len(scripted.requests) == 1


# --- requests on the wire


@pytest.mark.parametrize("kind", KINDS)
def test_operation_is_one_signed_post(
    scripted: ScriptedGateway,
    kind: str,
) -> None:
    scripted.script = lambda request: [GOOD[request.operation]]
    made, seen, done = carry_out(
        kind,
        account(base_url=f"{scripted.url}/gate/", dialect=EXAMPLES, **FAST),
        *OPERATIONS,
    )
    assert [request.head.split(" HTTP")[0] for request in scripted.requests] == [
        "POST /gate/online/v1/secure-pay",
        "POST /gate/app-data-search/v1/tran-query",
        "POST /gate/app-data-search/v1/refund",
    ]
    for request in scripted.requests:
        assert request.headers["content-type"] == "application/json"
        assert request.headers["accept-encoding"] == "identity"
        assert request.headers["user-agent"] == "tillgate"
        assert request.parameters["verifySign"] == signature(request.parameters)
        assert not {"cookie", "authorization", "transfer-encoding"} & set(request.headers)
    assert isinstance(made, CreatedPayment)
    assert isinstance(seen, Transaction)
    assert (made.payment_url, seen.amount, done.amount) == (
        PAYMENT_PAGE,
        Decimal("12.50"),
        Decimal("2.50"),
    )


def test_public_interface_works_as_documented() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        operation = {"secure-pay": "pay", "tran-query": "query", "refund": "refund"}[
            request.url.path.split("/")[-1]
        ]
        return httpx.Response(200, json=GOOD_BODIES[operation])

    with Gateway(account(), transport=httpx.MockTransport(handle)) as gateway:
        made = gateway.pay(payment())
        assert (made.transaction_no, made.payment_url) == ("297553575", PAYMENT_PAGE)
        seen = gateway.query(REFERENCE)
        assert (seen.status, seen.amount, seen.transaction_no) == (
            "paid",
            Decimal("12.50"),
            "297553575",
        )
        assert seen.raw == found()
        gateway.refund(refund())


def test_injected_transport_serves_async_gateway() -> None:
    async def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200,
            json=GOOD_BODIES["query"]
            if request.url.path.endswith("tran-query")
            else envelope(code="000030"),
        )

    async def run() -> None:
        async with AsyncGateway(account(), transport=httpx.MockTransport(handle)) as gateway:
            assert (await gateway.query(REFERENCE)).reference == REFERENCE
            with pytest.raises(Refused):
                await gateway.refund(refund())

    asyncio.run(run())


@pytest.mark.parametrize(
    "error",
    [
        httpx.ReadError,
        httpx.ReadTimeout,
        httpx.WriteError,
        httpx.WriteTimeout,
        httpx.RemoteProtocolError,
        httpx.CloseError,
    ],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_late_transport_error_leaves_outcome_unknown(
    error: type[httpx.TransportError],
    operation: str,
) -> None:
    """An injected transport fails after the connection was made."""

    def handle(request: httpx.Request) -> httpx.Response:
        raise error("broken", request=request)

    with (
        Gateway(account(query_attempts=1), transport=httpx.MockTransport(handle)) as gateway,
        pytest.raises(OutcomeUnknown) as caught,
    ):
        call(gateway, operation)
    assert caught.value.may_have_arrived == (error not in (httpx.WriteError, httpx.WriteTimeout))


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError,
        httpx.ConnectTimeout,
        httpx.PoolTimeout,
        httpx.ProxyError,
        httpx.UnsupportedProtocol,
    ],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_early_transport_error_was_not_sent(
    error: type[httpx.TransportError],
    operation: str,
) -> None:
    """An injected transport fails before it has a connection."""

    def handle(request: httpx.Request) -> httpx.Response:
        raise error("broken", request=request)

    with (
        Gateway(account(query_attempts=1), transport=httpx.MockTransport(handle)) as gateway,
        pytest.raises(NotSent),
    ):
        call(gateway, operation)


class Closable(httpx.MockTransport):
    """Remembers that it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


def test_gateway_exit_always_closes_transport() -> None:
    transport = Closable(lambda _: httpx.Response(500))
    with pytest.raises(OutcomeUnknown), Gateway(account(), transport=transport) as gateway:
        gateway.pay(payment())
    assert transport.closed == 1

    async def run() -> None:
        async with AsyncGateway(account(), transport=transport) as gateway:
            await gateway.pay(payment())

    with pytest.raises(OutcomeUnknown):
        asyncio.run(run())
    assert transport.closed == 2


# --- I11

SITUATIONS: dict[str, Callable[[Received], Any]] = {
    "success": lambda request: [GOOD[request.operation]],
    "cut": always(Cut.CLOSE),
    "refused": always(http(envelope(code="000030", message="no"), 400)),
    "unknown code": always(http(envelope(code="999999", message="no"), 400)),
    "not found": always(NOT_FOUND),
    "5xx": always(http(b"", 500)),
    "not JSON": always(http(b"<html>")),
    "not HTTP": always(b"SSH-2.0\r\n", Cut.CLOSE),
    "late": always(60.0),
    "half": always(GOOD["pay"][:80], 60.0),
    "wrong signature": lambda request: [
        http({**GOOD_BODIES["pay"], "verifySign": request.parameters["verifySign"]}),
    ],
    "signature in the message": lambda request: [
        http(envelope(code="000010", message=f"bad sign {request.parameters['verifySign']}"), 400),
    ],
    "echo in the result": lambda request: [
        http(envelope({**created(), **found(), **request.parameters})),
    ],
    "echo under an error": lambda request: [
        http(
            {
                "ret_code": "000000",
                "debug": {"post": request.parameters},
                "result": [request.parameters],
            },
        ),
    ],
    "echo as HTML": lambda request: [http(b"<pre>" + request.body)],
}


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_i11_calls_reveal_no_secret(
    scripted: ScriptedGateway,
    kind: str,
    situation: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No outcome, traceback or log entry shows a secret."""
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore", "aiohttp", "asyncio", "anyio"):
        caplog.set_level(logging.DEBUG, logger=name)
    scripted.script = SITUATIONS[situation]
    shown = ""
    # only callers that must wait may need it, even on a busy machine
    deadline = 0.8 if situation in ("late", "half") else 10.0
    for outcome in outcomes(
        kind,
        account(base_url=scripted.url, sandbox=True, deadline_seconds=deadline),
    ).values():
        if isinstance(outcome, GatewayError):
            shown += everything_shown(outcome) + repr(pickle.loads(pickle.dumps(outcome)))
        else:
            shown += f"{outcome!r} {outcome} {getattr(outcome, 'raw', '')}"
    shown += caplog.text + "".join(f"{vars(record)}" for record in caplog.records)
    secrets = {
        TOKEN,
        TOKEN_DIGEST,
        *(request.parameters["verifySign"] for request in scripted.requests),
    }
    assert len(secrets) >= 5
    assert not [secret for secret in secrets if secret in shown]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_i11_connection_failure_reveals_no_secret(kind: str, operation: str) -> None:
    with pytest.raises(NotSent) as caught:
        carry_out(kind, account(base_url=f"http://127.0.0.1:{free_port()}", **FAST), operation)
    shown = everything_shown(caught.value)
    assert TOKEN not in shown
    assert TOKEN_DIGEST not in shown
    assert "verifySign" not in shown


def test_i11_neither_gateway_shows_the_token() -> None:
    with Gateway(account()) as gateway:
        shown = repr(gateway) + str(gateway) + repr(vars(gateway))

    async def run(some: AsyncGateway) -> list[Any]:
        return [repr(some), str(some), repr(vars(some))]

    shown += "".join(
        run_async("aiohttp", account(), run) + run_async("plain httpx", account(), run),
    )
    assert TOKEN not in shown
    assert TOKEN_DIGEST not in shown
    assert "Gateway(Account(base_url='https://pay.example'" in shown


def test_i1_answer_must_match_requested_reference(scripted: ScriptedGateway) -> None:
    scripted.script = always(http(envelope(found(reference="OTHER-1"))))
    with (
        Gateway(account(base_url=scripted.url, **FAST)) as gateway,
        pytest.raises(AnswerNotUnderstood, match="OTHER-1"),
    ):
        gateway.query(REFERENCE)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_account_of_gateway_plugin_is_refused(kind: str, operation: str) -> None:
    foreign = GatewayProfile(name="other-gateway", currencies=("USD",))
    with ScriptedGateway(always(GOOD[operation])) as gateway:
        with pytest.raises(
            ConfigurationError,
            match=r"plugin 'other-gateway': call tillgate\.hooks\.pay",
        ):
            carry_out(kind, account(base_url=gateway.url, dialect=foreign, **FAST), operation)
        assert gateway.requests == []
