"""Gateway and AsyncGateway: two thin shells that carry the wire's requests over a transport.

`pay` and `refund` send once in every case. `query` changes nothing, so it is tried again after a failed connection, HTTP 429 and
5xx. The pauses are random and grow, until the attempts or the call's deadline are used up.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tillgate.account import Account
from tillgate.dispatch import moving_money
from tillgate.errors import ConfigurationError, NotSent, OutcomeUnknown
from tillgate.wire import exchange
from tillgate.wire.messages import CreatedPayment, PaymentRequest, Refunded, RefundRequest, Transaction

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncGateway", "Gateway"]

_FIRST_PAUSE_SECONDS = 0.2


def _pauses(attempts: int, deadline: float) -> Iterator[float]:
    """Yield the seconds to wait before each further attempt that the deadline allows.

    "Full jitter" spreads the clients that lost the gateway at the same time.
    """
    for attempt in range(attempts - 1):
        pause = random.uniform(0, _FIRST_PAUSE_SECONDS * 2**attempt)  # noqa: S311  # spreads load, guards nothing
        if time.monotonic() + pause >= deadline:
            return
        yield pause


class Gateway:
    """Take, query and refund payments of one account. Threads may share it; it keeps its connections until closed.

    `transport` is any httpx transport: a proxy, a mock, a WSGI application.
    """

    def __init__(self, account: Account, *, transport: httpx.BaseTransport | None = None) -> None:
        # Imported here because httpx takes as long to import as everything else together, and many processes never send.
        from tillgate.transport import SyncTransport

        self.account = account
        self._credentials = account.credentials
        self._transport = SyncTransport(account, transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.account!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def pay(self, request: PaymentRequest) -> CreatedPayment:
        """Create a payment and return where to send the shopper (1. Create payment).

        Raises `InvalidRequest`, `NotSent`, `Refused` or `OutcomeUnknown`. After the last, use a new reference (unspecified behaviour 13).
        """
        credentials = self._credentials
        sent = exchange.write_pay(credentials, request)
        with moving_money(sent):
            return exchange.read_pay(credentials, request, self._transport.send(sent, self._deadline()))

    def query(self, reference: str) -> Transaction:
        """Query a payment (2. Query transaction).

        Raises `OrderNotFound`; any other `GatewayError` is inconclusive and proves nothing.
        """
        credentials = self._credentials
        request = exchange.write_query(credentials, reference)
        deadline = self._deadline()
        circuit_breaker = _pauses(self.account.query_attempts, deadline)
        while True:
            try:
                answer = self._transport.send(request, deadline)
            except (NotSent, OutcomeUnknown):
                if (pause := next(circuit_breaker, None)) is None:
                    raise
            else:
                if not answer.is_overload or (pause := next(circuit_breaker, None)) is None:
                    return exchange.read_query(credentials, reference, answer)
            time.sleep(pause)

    def refund(self, request: RefundRequest) -> Refunded:
        """Refund part or all of a payment (3. Refund).

        Raises `InvalidRequest`, `NotSent`, `Refused` or `OutcomeUnknown`. After the last, never send it again: money could go out twice.
        """
        credentials = self._credentials
        sent = exchange.write_refund(credentials, request)
        with moving_money(sent):
            return exchange.read_refund(credentials, request, self._transport.send(sent, self._deadline()))

    def _deadline(self) -> float:
        return time.monotonic() + self.account.deadline_seconds


class AsyncGateway:
    """`Gateway` for asyncio, for one event loop until closed. Uses aiohttp where `tillgate[async]` is installed, httpx otherwise."""

    def __init__(self, account: Account, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        from tillgate.transport import async_transport  # imported late, for the same reason as in Gateway

        self.account = account
        self._credentials = account.credentials
        self._transport = async_transport(account, transport)
        self._is_bound = transport is None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.account!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()
        self._loop = None

    async def pay(self, request: PaymentRequest) -> CreatedPayment:
        """Create a payment; see `Gateway.pay`."""
        credentials = self._credentials
        sent = exchange.write_pay(credentials, request)
        with moving_money(sent):
            return exchange.read_pay(credentials, request, await self._send(sent, self._deadline()))

    async def query(self, reference: str) -> Transaction:
        """Query a payment; see `Gateway.query`."""
        credentials = self._credentials
        request = exchange.write_query(credentials, reference)
        deadline = self._deadline()
        circuit_breaker = _pauses(self.account.query_attempts, deadline)
        while True:
            try:
                answer = await self._send(request, deadline)
            except (NotSent, OutcomeUnknown):
                if (pause := next(circuit_breaker, None)) is None:
                    raise
            else:
                if not answer.is_overload or (pause := next(circuit_breaker, None)) is None:
                    return exchange.read_query(credentials, reference, answer)
            await asyncio.sleep(pause)

    async def refund(self, request: RefundRequest) -> Refunded:
        """Refund part or all of a payment; see `Gateway.refund`."""
        credentials = self._credentials
        sent = exchange.write_refund(credentials, request)
        with moving_money(sent):
            return exchange.read_refund(credentials, request, await self._send(sent, self._deadline()))

    async def _send(self, request: exchange.HttpRequest, deadline: float) -> exchange.HttpAnswer:
        # A connection works only in the loop that opened it. In another loop it fails after the request has left.
        loop = asyncio.get_running_loop()
        if self._is_bound and self._loop not in (None, loop):
            raise ConfigurationError("gateway", type(self).__name__, "belongs to the event loop that first used it: make one for each loop")
        self._loop = loop
        return await self._transport.send(request, deadline)

    def _deadline(self) -> float:
        return time.monotonic() + self.account.deadline_seconds
