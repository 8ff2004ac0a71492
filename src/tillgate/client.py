"""Gateway and AsyncGateway: two thin shells that carry the wire's requests over a transport.

`pay` and `refund` send once in every case. `query` changes nothing, so stamina tries it again after
a failed connection, HTTP 429 and 5xx. The pauses grow and have a random part, until the attempts or
the call's deadline are used up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar

from tillgate.account import Account
from tillgate.dispatch import moving_money
from tillgate.errors import (
    AnswerNotUnderstood,
    ConfigurationError,
    InvalidRequest,
    NotSent,
    OutcomeUnknown,
)
from tillgate.wire import exchange
from tillgate.wire.messages import (
    CreatedPayment,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Transaction,
)

if TYPE_CHECKING:
    import httpx

__all__ = ["AsyncGateway", "Gateway"]

_FIRST_PAUSE_SECONDS: Final = 0.1
_JITTER_SECONDS: Final = 0.4
"""The random part of each pause: it spreads the clients that lost the gateway at the same time."""
_LONGEST_PAUSE_SECONDS: Final = 2.0

# its warnings reach the handlers of the program, and not a bare stderr
logging.getLogger("stamina").addHandler(logging.NullHandler())

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _retrying(
    account: Account,
    attempts: int | None,
    deadline: float,
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Return the decorator that tries a function or a coroutine function again: the one policy of
    both clients.

    A pause never outlasts the deadline: while less time is left than the longest pause, no further
    attempt is made.
    """
    import stamina  # imported late, like httpx: many processes never query

    if attempts is not None and attempts < 1:
        raise InvalidRequest(
            "attempts",
            attempts,
            "must be 1 or more, or None for the account's query_attempts",
        )
    longest_pause = min(_LONGEST_PAUSE_SECONDS, (deadline - time.monotonic()) / 4)

    def is_worth_another(error: Exception) -> bool:
        is_passing = isinstance(error, NotSent | OutcomeUnknown) or (
            isinstance(error, AnswerNotUnderstood) and error.is_overload
        )
        return is_passing and time.monotonic() + longest_pause < deadline

    return stamina.retry(
        on=is_worth_another,
        attempts=min(attempts or account.query_attempts, account.query_attempts),
        timeout=None,  # stamina would start a pause that outlasts it
        wait_initial=_FIRST_PAUSE_SECONDS,
        wait_jitter=_JITTER_SECONDS,
        wait_max=longest_pause,
    )


def _deadline(account: Account, seconds: float | None = None) -> float:
    """Return when a call must end, on the clock of `time.monotonic`. `seconds` can only lower the
    account's.
    """
    if seconds is None:
        return time.monotonic() + account.deadline_seconds
    if not seconds > 0:
        raise InvalidRequest(
            "deadline_seconds",
            seconds,
            "must be above 0, or None for the account's deadline_seconds",
        )
    return time.monotonic() + min(seconds, account.deadline_seconds)


class Gateway:
    """Take, query and refund payments of one account. Threads may share it; it keeps its
    connections until closed.

    `transport` is any httpx transport: a proxy, a mock, a WSGI application.
    """

    def __init__(self, account: Account, *, transport: httpx.BaseTransport | None = None) -> None:
        # Imported here because httpx takes as long to import as everything else together, and many
        # processes never send.
        from tillgate.transport import SyncTransport

        self.account = account
        self._credentials = account.credentials
        self._transport = SyncTransport(account, transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.account!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def pay(
        self,
        request: PaymentRequest,
        *,
        deadline_seconds: float | None = None,
    ) -> CreatedPayment:
        """Create a payment and return where to send the shopper (1. Create payment).

        `deadline_seconds` can lower the account's `deadline_seconds` for this call.

        Raises `InvalidRequest`, `NotSent`, `Refused` or `OutcomeUnknown`. After the last, use a new
        reference (unspecified behaviour 13).
        """
        credentials = self._credentials
        sent, deadline = (
            exchange.write_pay(credentials, request),
            _deadline(self.account, deadline_seconds),
        )
        with moving_money(sent):
            return exchange.read_pay(credentials, request, self._transport.send(sent, deadline))

    def query(
        self,
        reference: str,
        *,
        deadline_seconds: float | None = None,
        attempts: int | None = None,
    ) -> Transaction:
        """Query a payment (2. Query transaction).

        `deadline_seconds` and `attempts` can lower the account's `deadline_seconds` and
        `query_attempts` for this call. Raises `OrderNotFound`; any other `GatewayError` is
        inconclusive and proves nothing.
        """
        credentials = self._credentials
        request = exchange.write_query(credentials, reference)
        deadline = _deadline(self.account, deadline_seconds)

        @_retrying(self.account, attempts, deadline)
        def query() -> Transaction:
            return exchange.read_query(
                credentials,
                reference,
                self._transport.send(request, deadline),
            )

        return query()

    def refund(self, request: RefundRequest) -> Refunded:
        """Refund part or all of a payment (3. Refund).

        Raises `InvalidRequest`, `NotSent`, `Refused` or `OutcomeUnknown`. After the last, never
        send it again: money could go out twice.
        """
        credentials = self._credentials
        sent = exchange.write_refund(credentials, request)
        with moving_money(sent):
            return exchange.read_refund(
                credentials,
                request,
                self._transport.send(sent, _deadline(self.account)),
            )

    def query_refund(self, request: RefundRequest, refund_no: str | None = None) -> Refunded | None:
        """Find a refund in the answer to a query of its payment; None where the answer lists no
        refunds. Raises as `query` does.
        """
        return exchange.find_refund(self.query(request.reference), request, refund_no)


class AsyncGateway:
    """`Gateway` for asyncio, for one event loop until closed. Uses aiohttp where `tillgate[async]`
    is installed, httpx otherwise.
    """

    def __init__(
        self,
        account: Account,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        # imported late, for the same reason as in Gateway
        from tillgate.transport import (
            async_transport,
        )

        self.account = account
        self._credentials = account.credentials
        self._transport = async_transport(account, transport)
        self._is_bound = transport is None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.account!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()
        self._loop = None

    async def pay(
        self,
        request: PaymentRequest,
        *,
        deadline_seconds: float | None = None,
    ) -> CreatedPayment:
        """Create a payment; see `Gateway.pay`."""
        credentials = self._credentials
        sent, deadline = (
            exchange.write_pay(credentials, request),
            _deadline(self.account, deadline_seconds),
        )
        with moving_money(sent):
            return exchange.read_pay(credentials, request, await self._send(sent, deadline))

    async def query(
        self,
        reference: str,
        *,
        deadline_seconds: float | None = None,
        attempts: int | None = None,
    ) -> Transaction:
        """Query a payment; see `Gateway.query`."""
        credentials = self._credentials
        request = exchange.write_query(credentials, reference)
        deadline = _deadline(self.account, deadline_seconds)

        @_retrying(self.account, attempts, deadline)
        async def query() -> Transaction:
            return exchange.read_query(credentials, reference, await self._send(request, deadline))

        return await query()

    async def refund(self, request: RefundRequest) -> Refunded:
        """Refund part or all of a payment; see `Gateway.refund`."""
        credentials = self._credentials
        sent = exchange.write_refund(credentials, request)
        with moving_money(sent):
            return exchange.read_refund(
                credentials,
                request,
                await self._send(sent, _deadline(self.account)),
            )

    async def query_refund(
        self,
        request: RefundRequest,
        refund_no: str | None = None,
    ) -> Refunded | None:
        """Find a refund in the answer to a query of its payment; see `Gateway.query_refund`."""
        return exchange.find_refund(await self.query(request.reference), request, refund_no)

    async def _send(self, request: exchange.HttpRequest, deadline: float) -> exchange.HttpAnswer:
        # A connection works only in the loop that opened it. In another loop it fails after the
        # request has left.
        loop = asyncio.get_running_loop()
        if self._is_bound and self._loop not in (None, loop):
            raise ConfigurationError(
                "gateway",
                type(self).__name__,
                "belongs to the event loop that first used it: make one for each loop",
            )
        self._loop = loop
        return await self._transport.send(request, deadline)
