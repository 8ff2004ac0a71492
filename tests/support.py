"""Helpers that the tests of the core share: an account, its requests, the answers to them, and a
search for secrets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import md5
from pathlib import Path
from typing import Any, NoReturn, Protocol

import httpx
import hypothesis

from tillgate import Account, AsyncGateway, Gateway, PaymentRequest, RefundRequest, TillgateError
from tillgate.transport import AsyncTransport
from tillgate.wire.exchange import Credentials, HttpAnswer

TOKEN = "5cbfb079f15b150122261c8537086d77a"
TOKEN_DIGEST = "186abea4b8610d7ff03768255588597a"
REFERENCE = "100017-7Q2MZK4RXW3DA"
PAYMENT_PAGE = "https://pay.example/cashier/1"

# A busy machine is no failure. A second look, as on another Python, may be brief.
hypothesis.settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "brief",
    hypothesis.settings.get_profile("unhurried"),
    max_examples=15,
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unhurried"))

KINDS = ("sync", "aiohttp", "plain httpx")
"""The three ways a request travels: Gateway, AsyncGateway, and AsyncGateway where aiohttp is not
installed.
"""
OPERATIONS = ("pay", "query", "refund")
_HERE = str(Path(__file__).parent)


def account(**changes: Any) -> Account:
    return Account(
        **{"base_url": "https://pay.example", "merchant_no": "200043", "token": TOKEN, **changes},
    )


def credentials(**changes: Any) -> Credentials:
    return account(**changes).credentials


def payment(**changes: Any) -> PaymentRequest:
    fields = {
        "reference": REFERENCE,
        "amount": "12.50",
        "currency": "USD",
        "method": "alipay",
        "terminal": "ONLINE",
        "ipn_url": "https://shop.example/ipn/x",
        "callback_url": "https://shop.example/back?amount={amount}",
    }
    return PaymentRequest(**{**fields, **changes})


def refund(**changes: Any) -> RefundRequest:
    return RefundRequest(**{"reference": REFERENCE, "amount": "2.50", "currency": "USD", **changes})


def envelope(
    result: Mapping[str, Any] | None = None,
    code: object = "000100",
    message: str = "success",
    **more: object,
) -> dict[str, Any]:
    body: dict[str, Any] = {"ret_code": code, "ret_msg": message, **more}
    return body if result is None else {**body, "result": result}


def created(**changes: Any) -> dict[str, Any]:
    """Return the result of a creation; a change to None leaves a member out."""
    return _members(changes, cashierUrl=PAYMENT_PAGE)


def found(**changes: Any) -> dict[str, Any]:
    """Return the result of a query; a change to None leaves a member out."""
    return _members(changes, status="success")


def _members(changes: Mapping[str, Any], **own: str) -> dict[str, Any]:
    common = {
        "transactionNo": "297553575",
        "reference": REFERENCE,
        "amount": "12.50",
        "currency": "USD",
        "settleCurrency": "USD",
    }
    return {
        name: value for name, value in {**common, **own, **changes}.items() if value is not None
    }


GOOD_BODIES: dict[str, dict[str, Any]] = {
    "pay": envelope(created(), message="prepay success"),
    "query": envelope(found()),
    "refund": envelope(message="refund success"),
}


def answered(body: object, status: int = 200) -> HttpAnswer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpAnswer(status=status, body=content)


def signature(
    parameters: Mapping[str, str],
    *,
    token: str = TOKEN,
    keep_empty: bool = False,
) -> str:
    """Sign as Authentication tells, in other words than the code under test."""
    kept = [
        f"{name}={parameters[name]}"
        for name in sorted(parameters)
        if name != "verifySign" and (parameters[name] or keep_empty)
    ]
    return md5("&".join([*kept, md5(token.encode()).hexdigest()]).encode()).hexdigest()


class NothingMayBeSent(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A transport that fails the test when it is asked to send."""

    def handle_request(self, request: httpx.Request) -> NoReturn:
        raise AssertionError(f"something was sent to {request.url}")

    async def handle_async_request(self, request: httpx.Request) -> NoReturn:
        raise AssertionError(f"something was sent to {request.url}")


class Calls(Protocol):
    """The three calls of either gateway."""

    def pay(self, request: PaymentRequest) -> Any: ...

    def query(self, reference: str) -> Any: ...

    def refund(self, request: RefundRequest) -> Any: ...


def call(gateway: Calls, operation: str) -> Any:
    """Start one of the three operations; on an AsyncGateway the answer has to be awaited."""
    if operation == "pay":
        return gateway.pay(payment())
    return gateway.query(REFERENCE) if operation == "query" else gateway.refund(refund())


def carry_out(kind: str, at: Account, *operations: str) -> list[Any]:
    """Carry operations out one after another through one gateway, over the transport of that
    kind.
    """
    if kind == "sync":
        with Gateway(at) as gateway:
            return [call(gateway, operation) for operation in operations]

    async def all_of_them(gateway: AsyncGateway) -> list[Any]:
        return [await call(gateway, operation) for operation in operations]

    return run_async(kind, at, all_of_them)


def run_async(
    kind: str,
    at: Account,
    work: Callable[[AsyncGateway], Awaitable[list[Any]]],
) -> list[Any]:
    """Run work with an AsyncGateway, over aiohttp or its replacement where that is not
    installed.
    """

    async def run() -> list[Any]:
        gateway = AsyncGateway(at)
        if kind == "plain httpx":
            gateway._transport = AsyncTransport(at, None)
        async with gateway:
            done = await work(gateway)
        await asyncio.sleep(0.02)  # asyncio ends TLS connections a moment after they were closed
        return done

    return asyncio.run(run())


def outcomes(kind: str, at: Account, operations: Sequence[str] = OPERATIONS) -> dict[str, Any]:
    """Carry operations out at the same time, each through a gateway of its own, and return the
    outcome of each: a value or its error.
    """

    def outcome(operation: str) -> Any:
        try:
            return carry_out(kind, at, operation)[0]
        except TillgateError as error:
            return error

    with ThreadPoolExecutor(len(operations)) as threads:
        return dict(zip(operations, threads.map(outcome, operations), strict=True))


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail when the block takes longer: a generous bound, to see that a deadline is kept at all."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and everything it was raised from or while."""
    if error is not None:
        yield error
        yield from chain(error.__cause__)
        if error.__context__ is not error.__cause__:
            yield from chain(error.__context__)


def everything_shown(error: BaseException) -> str:
    """Return all that a log or an error report could print of an error: its text and every frame's
    local variables.

    The frames of the tests are left out, since tests know the secrets.
    """
    reports = []
    for link in chain(error):
        frames = [
            step
            for step in traceback.walk_tb(link.__traceback__)
            if not step[0].f_code.co_filename.startswith(_HERE)
        ]
        reports += traceback.StackSummary.extract(frames, capture_locals=True).format()
        reports += [
            str(link),
            repr(link),
            repr(vars(link)),
            repr(link.args),
            *getattr(link, "__notes__", ()),
        ]
    return "\n".join(reports)
