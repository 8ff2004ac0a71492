"""The transport of `tillgate[async]`: aiohttp, behind the same two methods as httpx's. The only
module that imports aiohttp.

The package httpx-aiohttp cannot take its place: it reports a connection that was cut after the
request had arrived as a `ConnectTimeout`, which means here that nothing was sent.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import time

import aiohttp
from aiohttp.abc import ResolveResult
from multidict import CIMultiDict

from tillgate.account import Account
from tillgate.errors import NotSent, OutcomeUnknown
from tillgate.wire.exchange import LARGEST_ANSWER_BYTES, HttpAnswer, HttpRequest
from tillgate.wire.texts import described
from tillgate.wire.urls import is_public_address

__all__ = ["AiohttpTransport"]

_NEVER_LEFT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)


class _Body(bytes):
    """A signed body, kept out of the reports of errors in aiohttp's frames (I11)."""

    __repr__ = object.__repr__


class _PublicResolver(aiohttp.ThreadedResolver):
    """Drops every address that is not public. aiohttp does not ask it about a host that is an
    address: `Account` refuses those.
    """

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        if public := [one for one in found if is_public_address(one["host"])]:
            return public
        raise OSError(
            None,
            f"{host} has no public address, and public_addresses_only allows no other",
        )


class AiohttpTransport:
    """Send over aiohttp sessions, opened on first use in the running loop: one keeps its
    connections, one opens a new one for each refund.

    aiohttp itself repeats no POST.
    """

    def __init__(self, account: Account, *, verification: ssl.SSLContext | bool) -> None:
        self._account = account
        self._verification = verification
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    def _open(self, *, is_fresh: bool) -> aiohttp.ClientSession:
        account = self._account
        # "connect" includes the wait for a free connection: after too long a wait for one, nothing
        # was sent.
        timeouts = aiohttp.ClientTimeout(
            connect=account.connect_timeout_seconds,
            sock_read=account.read_timeout_seconds,
        )
        connector = aiohttp.TCPConnector(
            limit=account.max_connections,
            keepalive_timeout=None if is_fresh else 15,
            force_close=is_fresh,
            ssl=self._verification,
            resolver=_PublicResolver() if account.public_addresses_only else None,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeouts,
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def send(self, request: HttpRequest, deadline: float) -> HttpAnswer:
        """Send once and read the answer before the deadline, which is on the clock of
        `time.monotonic`.
        """
        is_fresh = request.needs_fresh_connection
        if not (session := self._sessions.get(is_fresh)):
            session = self._sessions[is_fresh] = self._open(is_fresh=is_fresh)
        failure: NotSent | OutcomeUnknown
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                response = await session.post(
                    request.url,
                    data=_Body(request.body),
                    headers=_headers(request.content_type),
                    allow_redirects=False,
                )
                try:
                    return await _read(response)
                finally:
                    response.close()  # cuts the connection unless the answer was read to its end
        except _NEVER_LEFT as error:
            failure = NotSent(request.operation, request.reference, described(error))
        except TimeoutError as error:
            failure = OutcomeUnknown(
                request.operation,
                request.reference,
                f"{described(error)} before the answer was whole",
            )
        except aiohttp.ClientError as error:
            failure = OutcomeUnknown(request.operation, request.reference, described(error))
        raise failure


@functools.lru_cache(maxsize=8)
def _headers(content_type: str) -> CIMultiDict[str]:
    return CIMultiDict(
        {
            "Content-Type": content_type,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "tillgate",
        },
    )


async def _read(response: aiohttp.ClientResponse) -> HttpAnswer:
    content = response.content
    body = bytearray()
    while not content.at_eof():
        body += await content.readany()
        if len(body) > LARGEST_ANSWER_BYTES:
            return HttpAnswer(status=response.status, body=b"", too_long=True)
    return HttpAnswer(status=response.status, body=bytes(body))
