"""Tillgate's transport for the authors of gateway plugins: one deadline over everything, and one
classification of errors by their outcome.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

import httpx
from pydantic import SecretStr

from tillgate.account import Account
from tillgate.errors import (
    AnswerNotUnderstood,
    GatewayError,
    InvalidRequest,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    Refused,
    WrongCredentials,
)
from tillgate.transport import DeadlineTransport, keep_to
from tillgate.wire.urls import is_https

__all__ = ["Answer", "Call"]

_LARGEST_BYTES: Final = 4 * 1024 * 1024
_LONGEST_MESSAGE: Final = 200
_NEVER_LEFT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_PROVES_NOTHING: Final = frozenset({408, 409, 425, 429})
"""Statuses of the client's kind that do not say whether the request was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer: its status, headers with names in small letters, and body."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """Return the body as JSON, numbers with a point as `Decimal`; raise ValueError."""
        return json.loads(self.body, parse_float=Decimal)


def _refusal(answer: Answer) -> tuple[str, str]:
    return str(answer.status), answer.body.decode("utf-8", "replace")


class Call:
    """One call of a hook, which may send several requests until its one deadline.

    `operation` is pay, query or refund, as in the errors. Where it moves money, which pay and
    refund do, an answer that proves nothing is an `OutcomeUnknown`. `secrets` are hidden in errors
    beside those of the account, such as an access token: add derived secrets to it.
    """

    def __init__(
        self,
        account: Account,
        operation: str,
        reference: str,
        *,
        seconds: float | None = None,
        moves_money: bool | None = None,
        secrets: Collection[str] = (),
    ) -> None:
        self.account, self.operation, self.reference = account, operation, reference
        self.moves_money = operation != "query" if moves_money is None else moves_money
        most = account.deadline_seconds
        self._until = time.monotonic() + min(seconds or most, most)
        hidden = (account.token, *account.webhook_secrets, *account.options.values())
        self.secrets = [one.get_secret_value() for one in hidden if isinstance(one, SecretStr)]
        self.secrets += secrets

    def __repr__(self) -> str:
        return f"<Call {self.operation} of {self.reference}>"

    def send(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        basic: tuple[str, str] | None = None,
        moves_money: bool | None = None,
        accept: Collection[int] = (),
        refusal: Callable[[Answer], tuple[str, str]] = _refusal,
    ) -> Answer:
        """Send one request, once, to a path below the account's address, and return its answer.

        `moves_money=False` is for a request before the one that moves money, such as that for an
        access token: after any fault of it nothing was sent. `accept` are statuses that are an
        answer beside 2xx, and `refusal` reads the gateway's code and message.

        Raises `NotSent`, `WrongCredentials` (401, 403), `OrderNotFound` (404 of a query), `Refused`
        (other 4xx), and for all that proves nothing, such as 429, 5xx, a redirect and a page of
        HTML, `OutcomeUnknown` where money may have moved, else `AnswerNotUnderstood`.
        """
        is_ahead = self.moves_money and moves_money is False
        try:
            answer = self._exchange(method, path, _content(json, form), headers or {}, basic)
            if 200 <= answer.status < 300 or answer.status in accept:
                return answer
            fault = self._fault(answer, refusal)
        except GatewayError as error:
            fault = error
        if is_ahead and not isinstance(fault, Refused):
            fault = NotSent(self.operation, self.reference, f"{method} failed before it: {fault}")
        raise fault from None

    def json(self, method: str, path: str, **request: Any) -> Any:
        """Send one request as `send` does, and return the JSON of its answer; JSON that is broken
        proves nothing.
        """
        answer = self.send(method, path, **request)
        try:
            return answer.json()
        except ValueError:
            fault = self.unknown("the answer is no JSON", answer.status)
        if self.moves_money and request.get("moves_money") is False:
            fault = NotSent(self.operation, self.reference, "the answer before it is no JSON")
        raise fault

    def unknown(self, detail: str, http_status: int | None = None) -> GatewayError:
        """Return the error of an answer that proves nothing."""
        detail = self.hide(detail)
        if self.moves_money:
            return OutcomeUnknown(self.operation, self.reference, detail, http_status)
        return AnswerNotUnderstood(detail, http_status)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn an error over an answer that lacks a field, or has a strange one, into that of an
        answer that proves nothing.
        """
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, InvalidRequest) as error:
            shown = str(error)[:_LONGEST_MESSAGE]
            fault = self.unknown(
                f"the answer is not as documented: {type(error).__name__}: {shown}",
            )
        else:
            return
        raise fault from None  # the first error may hold a secret

    def hide(self, text: str) -> str:
        """Return a text with `***` in place of every secret."""
        for secret in sorted(filter(None, self.secrets), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _fault(
        self,
        answer: Answer,
        refusal: Callable[[Answer], tuple[str, str]],
    ) -> GatewayError:
        status = answer.status
        if not 400 <= status < 500 or status in _PROVES_NOTHING:
            return self.unknown(f"HTTP {status}", status)
        is_page = answer.body.lstrip()[:1] == b"<"
        if is_page and status not in (401, 403):
            # A proxy's: the gateway's interface speaks JSON, and may know the payment.
            return self.unknown(f"HTTP {status} with a page", status)
        try:
            said = refusal(answer)
        except Exception:  # noqa: BLE001  # an answer may be anything
            said = _refusal(answer)
        code, message = (self.hide(str(text))[:_LONGEST_MESSAGE] for text in said)
        if status in (401, 403):
            return WrongCredentials(code, message, status)
        if status == 404 and self.operation == "query":
            return OrderNotFound(code, message, status)
        return Refused(code, message, status)

    def _exchange(
        self,
        method: str,
        path: str,
        content: tuple[str, bytes],
        headers: Mapping[str, str],
        basic: tuple[str, str] | None,
    ) -> Answer:
        left = self._until - time.monotonic()
        if left <= 0:
            raise NotSent(self.operation, self.reference, "the deadline passed")
        names = {"accept": "application/json", "accept-encoding": "identity"}
        names |= {"user-agent": "tillgate"} | ({"content-type": content[0]} if content[0] else {})
        names |= {name.lower(): value for name, value in headers.items()}
        if basic:
            encoded = base64.b64encode(":".join(basic).encode()).decode()
            self.secrets.append(encoded)
            names["authorization"] = f"Basic {encoded}"
        account, read = self.account, min(left, self.account.read_timeout_seconds)
        connect = min(left, account.connect_timeout_seconds)
        timeouts = {"connect": connect, "pool": connect, "read": read, "write": read}
        keep_to(self._until)
        transport = _transport(
            os.getpid(),
            is_https(account.base_url),
            account.public_addresses_only,
            not self.moves_money,
        )
        try:
            response = transport.handle_request(
                httpx.Request(
                    method,
                    account.base_url + path,
                    headers=names,
                    content=content[1],
                    extensions={"timeout": timeouts},
                ),
            )
            try:
                return self._read(response)
            finally:
                response.close()
        except _NEVER_LEFT as error:
            fault: GatewayError = NotSent(self.operation, self.reference, type(error).__name__)
        except httpx.HTTPError as error:
            fault = self.unknown(type(error).__name__)
        raise fault  # outside the block: the error of httpx holds the request

    def _read(self, response: httpx.Response) -> Answer:
        assert isinstance(response.stream, Iterable)
        body = bytearray()
        for chunk in response.stream:
            body += chunk
            if len(body) > _LARGEST_BYTES or time.monotonic() > self._until:
                raise self.unknown("the answer was too long, or too slow", response.status_code)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(status=response.status_code, headers=headers, body=bytes(body))


def _content(value: object, form: Mapping[str, str] | None) -> tuple[str, bytes]:
    if form is not None:
        return "application/x-www-form-urlencoded", urlencode(form).encode()
    if value is not None:
        return "application/json", json.dumps(value).encode()
    return "", b""


@functools.lru_cache(maxsize=16)
def _transport(
    process_id: int,
    is_secure: bool,  # noqa: FBT001  # a cache takes no keywords apart
    public_only: bool,  # noqa: FBT001
    keeps: bool,  # noqa: FBT001
) -> DeadlineTransport:
    """Return the process's connections: a forked child opens its own. A request that moves money
    has a new one, since a kept one may break after the request has left.
    """
    del process_id
    return DeadlineTransport(
        64,
        is_secure=is_secure,
        keeps_connections=keeps,
        public_only=public_only,
    )
