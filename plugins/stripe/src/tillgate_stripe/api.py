"""Calls of Stripe's API by its own package: one attempt, a deadline, and errors of Tillgate in
place of Stripe's.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import httpx
import stripe

from tillgate import (
    Account,
    AnswerNotUnderstood,
    ConfigurationError,
    GatewayError,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    Refused,
    WrongCredentials,
)

API_VERSION: Final = "2026-10-28.endive"
"""The version of Stripe's API that every request names, whatever the account's own default is."""

_LARGEST_ANSWER_BYTES: Final = 4 * 1024 * 1024
_NEVER_LEFT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


def is_test_key(account: Account) -> bool:
    """Return whether the account's key moves play money."""
    return "_live_" not in account.token.get_secret_value()[:9]


class Call:
    """One call of a hook: the client to call Stripe with, until the deadline. `moves_money` decides
    what a broken answer means.
    """

    def __init__(
        self,
        account: Account,
        operation: str,
        reference: str,
        *,
        seconds: float | None = None,
        moves_money: bool = False,
    ) -> None:
        if is_test_key(account) != account.sandbox:
            kind, remedy = (
                ("test", "set SANDBOX to True in a test shop")
                if is_test_key(account)
                else ("live", "remove SANDBOX")
            )
            raise ConfigurationError(
                "token",
                "***",
                f"is a {kind} key of Stripe: {remedy}, or give the other key",
            )
        self.account, self.operation, self.reference, self.moves_money = (
            account,
            operation,
            reference,
            moves_money,
        )
        self._until = time.monotonic() + min(
            seconds or account.deadline_seconds,
            account.deadline_seconds,
        )
        self.client = stripe.StripeClient(
            account.token.get_secret_value(),
            stripe_version=API_VERSION,
            base_addresses={"api": account.base_url},
            max_network_retries=0,
            http_client=_Http(self._send),
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise errors of Tillgate in place of Stripe's."""
        try:
            yield
        except stripe.StripeError as error:
            fault = self._fault(error)
        else:
            return
        raise fault  # outside the block: Stripe's error holds the whole request

    def unknown(self, detail: str, http_status: int | None = None) -> GatewayError:
        """Return the error of an answer that proves nothing."""
        if self.moves_money:
            return OutcomeUnknown(self.operation, self.reference, detail, http_status)
        return AnswerNotUnderstood(detail, http_status)

    def _fault(self, error: stripe.StripeError) -> GatewayError:
        code = error.code or (error.error.code if error.error else None) or type(error).__name__
        status = error.http_status or 0
        said = (error.user_message or "no message").replace(
            self.account.token.get_secret_value(),
            "***",
        )
        if isinstance(error, stripe.AuthenticationError):
            return WrongCredentials(code, "Stripe does not know the key", status)
        if isinstance(error, stripe.PermissionError):
            return WrongCredentials(code, f"the key lacks a permission: {said}", status)
        if code == "resource_missing" and not self.moves_money:
            return OrderNotFound(code, said, status)
        if isinstance(error, stripe.InvalidRequestError | stripe.CardError) and status not in (
            409,
            429,
        ):
            return Refused(code, said, status)
        return self.unknown(f"HTTP {status}, {code}: {said}", status or None)

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: str | None,
    ) -> tuple[str, int, Mapping[str, str]]:
        left = self._until - time.monotonic()
        if left <= 0:
            raise NotSent(self.operation, self.reference, "the deadline passed")
        read, connect = (
            min(left, self.account.read_timeout_seconds),
            min(left, self.account.connect_timeout_seconds),
        )
        timeout = httpx.Timeout(read, connect=connect, pool=connect)
        try:
            with _client(os.getpid()).stream(
                method,
                url,
                headers=dict(headers),
                content=body,
                timeout=timeout,
            ) as response:
                answer = bytearray()
                for chunk in response.iter_bytes():
                    answer += chunk
                    if len(answer) > _LARGEST_ANSWER_BYTES or time.monotonic() > self._until:
                        raise self.unknown(
                            "the answer was too long, or too slow",
                            response.status_code,
                        )
                return answer.decode("utf-8", "replace"), response.status_code, response.headers
        except _NEVER_LEFT as error:
            failure: GatewayError = NotSent(self.operation, self.reference, type(error).__name__)
        except httpx.HTTPError as error:
            failure = OutcomeUnknown(self.operation, self.reference, type(error).__name__)
        raise failure


@functools.lru_cache(maxsize=1)
def _client(process_id: int) -> httpx.Client:
    """Return the process's connections: a forked child opens its own."""
    del process_id
    return httpx.Client(follow_redirects=False, trust_env=False)


class _Http(stripe.HTTPClient):
    """The way out for Stripe's package: its own clients know no deadline, and do not say whether a
    request has left.
    """

    name = "httpx"

    def __init__(
        self,
        send: Callable[
            [str, str, Mapping[str, str], str | None],
            tuple[str, int, Mapping[str, str]],
        ],
    ) -> None:
        super().__init__()
        self._sender = send

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        *,
        _usage: list[str] | None = None,
    ) -> tuple[str, int, Mapping[str, str]]:
        """Send one request."""
        return self._sender(method, url, headers or {}, post_data)

    def request_stream(self, *_arguments: Any, **_options: Any) -> NoReturn:
        """Refuse: no call streams."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the connections open for the next call."""
