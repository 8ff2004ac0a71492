"""How bytes travel: the only module that imports httpx, so that a successor can take its place.

`SyncTransport` and `AsyncTransport` send one `HttpRequest` and return one `HttpAnswer`, or raise
`NotSent` when no byte of the request left and `OutcomeUnknown` when one may have. Neither repeats,
follows a redirect, keeps a cookie or reads a proxy from the environment.

A refund opens a connection of its own. A kept connection may still hold an answer to an earlier
request, and the answer to a refund names no reference to tell the two apart.

The errors are raised outside the `except` blocks that saw the cause: error reports print the local
variables of a traceback, and those of httpx hold the signed body (I11).
"""

from __future__ import annotations

import contextvars
import functools
import os
import socket
import ssl
import time
from collections.abc import AsyncIterable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Protocol

import anyio
import httpcore
import httpx

from tillgate.account import Account
from tillgate.errors import NotSent, OutcomeUnknown
from tillgate.wire.exchange import LARGEST_ANSWER_BYTES, HttpAnswer, HttpRequest
from tillgate.wire.texts import described
from tillgate.wire.urls import is_https, is_public_address

__all__ = [
    "AsyncTransport",
    "DeadlineTransport",
    "SyncTransport",
    "async_transport",
    "keep_to",
    "post",
]

_USER_AGENT = "tillgate"
_NEVER_LEFT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
# of blocking sockets; asyncio's keep a buffer that may still be sent
_NEVER_WHOLE = (
    httpx.WriteError,
    httpx.WriteTimeout,
)
_NOT_PUBLIC = "{} has no public address, and public_addresses_only allows no other"
_KEEPALIVE_SECONDS = 15.0

_deadline: contextvars.ContextVar[float] = contextvars.ContextVar("deadline")


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    # Reading the certificates takes some 20 ms, so all gateways share one context.
    return httpx.create_ssl_context()


def _verification(account: Account) -> ssl.SSLContext | bool:
    return _ssl_context() if is_https(account.base_url) else False


class SyncTransport:
    """Send over httpx and httpcore. Threads share the pools, one of them for refunds; a forked
    child opens its own.
    """

    def __init__(self, account: Account, transport: httpx.BaseTransport | None) -> None:
        self._account = account
        self._given = transport
        self._open()

    def _open(self) -> None:
        most = self._account.max_connections
        options = {
            "is_secure": is_https(self._account.base_url),
            "public_only": self._account.public_addresses_only,
        }
        self._kept = self._given or DeadlineTransport(most, **options)
        self._fresh = self._given or DeadlineTransport(most, keeps_connections=False, **options)
        self._process_id = os.getpid()

    def _open_in_a_child(self) -> None:
        if self._given is None and self._process_id != os.getpid():
            self._open()  # a socket shared with the parent process would mix up two conversations

    def close(self) -> None:
        """Close the connections."""
        self._open_in_a_child()
        for transport in {self._kept, self._fresh}:
            transport.close()

    def send(self, request: HttpRequest, deadline: float) -> HttpAnswer:
        """Send once and read the answer before the deadline, which is on the clock of
        `time.monotonic`.
        """
        self._open_in_a_child()
        transport = self._fresh if request.needs_fresh_connection else self._kept
        keep_to(deadline)
        try:
            response = transport.handle_request(_httpx_request(request, self._account, deadline))
            try:
                return _read(response, deadline)
            finally:
                response.close()
        except httpx.TransportError as error:
            failure = _failure(request, error, may_have_arrived=not isinstance(error, _NEVER_WHOLE))
        raise failure


class AsyncTransport:
    """Send over httpx's own transport, where aiohttp is not installed; refunds over one that keeps
    no connection.
    """

    def __init__(self, account: Account, transport: httpx.AsyncBaseTransport | None) -> None:
        self._account = account
        self._kept = transport or _plain_transport(account, kept=account.max_connections)
        self._fresh = transport or _plain_transport(account, kept=0)

    async def close(self) -> None:
        """Close the connections."""
        for transport in {self._kept, self._fresh}:
            await transport.aclose()

    async def send(self, request: HttpRequest, deadline: float) -> HttpAnswer:
        """Send once and read the answer before the deadline."""
        transport = self._fresh if request.needs_fresh_connection else self._kept
        failure: NotSent | OutcomeUnknown
        try:
            with anyio.fail_after(deadline - time.monotonic()):
                response = await transport.handle_async_request(
                    _httpx_request(request, self._account, deadline),
                )
                try:
                    return await _read_async(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            failure = OutcomeUnknown(
                request.operation,
                request.reference,
                "the deadline passed before the answer was whole",
            )
        except (
            httpx.TransportError,
            OSError,
        ) as error:  # httpcore lets TLS errors after the handshake through
            failure = _failure(request, error)
        raise failure


def _plain_transport(account: Account, *, kept: int) -> httpx.AsyncHTTPTransport:
    limits = httpx.Limits(
        max_connections=account.max_connections,
        max_keepalive_connections=kept,
        keepalive_expiry=_KEEPALIVE_SECONDS,
    )
    transport = httpx.AsyncHTTPTransport(
        verify=_verification(account),
        limits=limits,
        trust_env=False,
    )
    if account.public_addresses_only:
        transport._pool._network_backend = _PublicBackend()  # httpx takes none
    return transport


class _PublicBackend(httpcore.AnyIOBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> httpcore.AsyncNetworkStream:
        """Try the host's public addresses one after another. The caller's deadline bounds them
        all.
        """
        try:
            found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failure: httpcore.NetworkError | httpcore.TimeoutException = httpcore.ConnectError(
            _NOT_PUBLIC.format(host),
        )
        for address in _public([str(sockaddr[0]) for *_, sockaddr in found]):
            try:
                return await super().connect_tcp(address, port, timeout, *args, **kwargs)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class AsyncSender(Protocol):
    """The transport of an `AsyncGateway`."""

    async def send(self, request: HttpRequest, deadline: float) -> HttpAnswer:
        """Send once and read the answer before the deadline."""

    async def close(self) -> None:
        """Close the connections."""


def async_transport(account: Account, transport: httpx.AsyncBaseTransport | None) -> AsyncSender:
    """Return the transport given, else aiohttp's where it is installed (`tillgate[async]`), else
    httpx's own.
    """
    if transport is None and find_spec("aiohttp"):
        from tillgate.aiohttp_transport import AiohttpTransport

        return AiohttpTransport(account, verification=_verification(account))
    return AsyncTransport(account, transport)


@functools.lru_cache(maxsize=64)
def _url(text: str) -> httpx.URL:
    return httpx.URL(text)


@functools.lru_cache(maxsize=8)
def _headers(content_type: str) -> httpx.Headers:
    # Answers are asked for uncompressed: they are short, and a compressed one could swell past
    # every bound.
    names = {
        "content-type": content_type,
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": _USER_AGENT,
    }
    return httpx.Headers(names)


def _httpx_request(request: HttpRequest, account: Account, deadline: float) -> httpx.Request:
    left = deadline - time.monotonic()
    if left <= 0:
        raise httpx.PoolTimeout("the deadline passed")
    connect, read = (
        min(account.connect_timeout_seconds, left),
        min(account.read_timeout_seconds, left),
    )
    timeouts = {"connect": connect, "pool": connect, "read": read, "write": read}
    return httpx.Request(
        "POST",
        _url(request.url),
        headers=_headers(request.content_type),
        content=request.body,
        extensions={"timeout": timeouts},
    )


def _read(response: httpx.Response, deadline: float) -> HttpAnswer:
    assert isinstance(response.stream, Iterable)
    body = bytearray()
    for chunk in response.stream:
        body += chunk
        if len(body) > LARGEST_ANSWER_BYTES:
            return HttpAnswer(status=response.status_code, body=b"", too_long=True)
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("the deadline passed before the answer was whole")
    return HttpAnswer(status=response.status_code, body=bytes(body))


async def _read_async(response: httpx.Response) -> HttpAnswer:
    assert isinstance(response.stream, AsyncIterable)
    body = bytearray()
    async for chunk in response.stream:
        body += chunk
        if len(body) > LARGEST_ANSWER_BYTES:
            return HttpAnswer(status=response.status_code, body=b"", too_long=True)
    return HttpAnswer(status=response.status_code, body=bytes(body))


def _failure(
    request: HttpRequest,
    error: httpx.TransportError | OSError,
    *,
    may_have_arrived: bool = True,
) -> NotSent | OutcomeUnknown:
    if isinstance(error, _NEVER_LEFT):
        return NotSent(request.operation, request.reference, described(error))
    return OutcomeUnknown(
        request.operation,
        request.reference,
        described(error),
        may_have_arrived=may_have_arrived,
    )


def post(url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> str:
    """Send a message to an address of the owner's; return "" when it was taken, else the error. It
    follows no redirect.
    """
    deadline = time.monotonic() + seconds
    keep_to(deadline)
    try:
        with DeadlineTransport(1, is_secure=is_https(url), keeps_connections=False) as transport:
            names = {**headers, "accept-encoding": "identity", "user-agent": _USER_AGENT}
            response = transport.handle_request(
                httpx.Request("POST", url, headers=names, content=body),
            )
            try:
                status = _read(response, deadline).status
            finally:
                response.close()
    except httpx.TransportError as error:
        return described(error)
    return "" if response.is_success else f"HTTP status {status}"


def keep_to(deadline: float) -> None:
    """Bind all that this thread sends over a `DeadlineTransport` from now on; `deadline` is on the
    clock of `time.monotonic`.
    """
    _deadline.set(deadline)


class DeadlineTransport(httpx.HTTPTransport):
    """httpx's own transport over a pool of sockets that also keep to the deadline of `keep_to`.

    A read time-out alone bounds the wait for each byte, so that a server dripping a byte now and
    then would hold a worker for hours.
    """

    def __init__(
        self,
        max_connections: int,
        *,
        is_secure: bool = True,
        keeps_connections: bool = True,
        public_only: bool = False,
    ) -> None:
        # In place of the parent's, which would build an SSL context of its own and cannot be given
        # a network backend.
        self._pool = httpcore.ConnectionPool(
            ssl_context=_ssl_context() if is_secure else None,
            max_connections=max_connections,
            max_keepalive_connections=max_connections if keeps_connections else 0,
            keepalive_expiry=_KEEPALIVE_SECONDS,
            network_backend=_DeadlineBackend(public_only=public_only),
        )


class _DeadlineBackend(httpcore.SyncBackend):
    def __init__(self, *, public_only: bool) -> None:
        self._public_only = public_only

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> httpcore.NetworkStream:
        """Try the host's addresses one after another: the socket module would go on with the next
        one after any time.
        """
        detail = _NOT_PUBLIC.format(host) if self._public_only else f"{host} has no address"
        failure: httpcore.NetworkError | httpcore.TimeoutException = httpcore.ConnectError(detail)
        found = _addresses(host, port)
        # Judged here and not when the settings are saved: a name may lead elsewhere by now. The
        # same answer is then connected to.
        for address in _public(found) if self._public_only else found:
            left = _time_left(timeout, httpcore.ConnectTimeout)
            try:
                return _DeadlineStream(super().connect_tcp(address, port, left, *args, **kwargs))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


def _addresses(host: str, port: int) -> list[str]:
    try:
        return [
            str(sockaddr[0])
            for *_, sockaddr in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        ]
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error


def _public(addresses: Iterable[str]) -> list[str]:
    return [address for address in addresses if is_public_address(address)]


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self.close = stream.close  # type: ignore[method-assign]  # the rest needs no deadline
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _time_left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # the end of a request is an empty write, and nothing must time out when all has left
        if buffer:
            self._stream.write(buffer, _time_left(timeout, httpcore.WriteTimeout))

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _time_left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left))


def _time_left(timeout: float | None, too_late: type[httpcore.TimeoutException]) -> float:
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise too_late("the deadline passed")
    return left if timeout is None else min(left, timeout)
