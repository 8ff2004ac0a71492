"""Calls of Stripe's API by its own package over Tillgate's transport: one attempt, one deadline,
and Tillgate's errors in place of Stripe's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

import stripe

from tillgate import Account, ConfigurationError, GatewayError, OrderNotFound, Refused
from tillgate.gateways import http

API_VERSION: Final = "2026-10-28.endive"
"""The version of Stripe's API that every request names, instead of the account's own default."""

_NO_ANSWER: Final = frozenset({"", "idempotency_error"})
"""Codes of refusals that prove nothing: none, since it may not be Stripe's, and that of a key that
was used for another request before.
"""
_MISSING: Final = "resource_missing"


def is_test_key(account: Account) -> bool:
    """Return whether the account's key moves play money."""
    return "_live_" not in account.token.get_secret_value()[:9]


class Call(http.Call):
    """One call of a hook: the client to call Stripe with, until the deadline. `refused_parameter`
    is the one that Stripe refused last.
    """

    def __init__(self, account: Account, operation: str, reference: str, **more: Any) -> None:
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
        super().__init__(account, operation, reference, **more)
        self.refused_parameter = ""
        self.client = stripe.StripeClient(
            account.token.get_secret_value(),
            stripe_version=API_VERSION,
            base_addresses={"api": account.base_url},
            max_network_retries=0,
            http_client=_Http(self),
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise errors without the frames of Stripe's package: their variables hold the key. An
        answer that is not as documented proves nothing.
        """
        try:
            with self.reading():
                yield
        except GatewayError as error:
            fault = error.with_traceback(None)
        else:
            return
        raise fault from None

    def _read_refusal(self, answer: http.Answer) -> tuple[str, str]:
        """Return the code and the message of a refusal; no code for one that is not Stripe's."""
        try:
            error = answer.json()["error"]
            self.refused_parameter = str(error.get("param") or "")
            code = str(error.get("code") or error.get("type") or "")
        except (ValueError, TypeError, KeyError, AttributeError):
            return "", ""
        is_key = answer.status == 401
        return code, "Stripe does not know the key" if is_key else str(error.get("message") or "")

    def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: str | None,
    ) -> http.Answer:
        """Send one request of Stripe's package, and return an answer that is a JSON object."""
        form = None if body is None else dict(parse_qsl(body, keep_blank_values=True))
        path = url.removeprefix(self.account.base_url)
        try:
            answer = self.send(
                method,
                path,
                form=form,
                headers=headers,
                refusal=self._read_refusal,
            )
        except Refused as error:
            is_other = isinstance(error, OrderNotFound) and error.ret_code != _MISSING
            if is_other or error.ret_code in _NO_ANSWER:
                raise self.unknown(f"HTTP {error.http_status}", error.http_status) from None
            raise
        try:
            is_object = isinstance(answer.json(), dict)
        except ValueError:
            is_object = False
        if not is_object:
            raise self.unknown("the answer is no JSON object", answer.status)
        return answer


class _Http(stripe.HTTPClient):
    """The way out for Stripe's package: its own clients know no deadline, and do not say whether a
    request has left.
    """

    name = "tillgate"

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call

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
        answer = self._call.exchange(method, url, headers or {}, post_data)
        return answer.body.decode("utf-8", "replace"), answer.status, answer.headers

    def request_stream(self, *_arguments: Any, **_options: Any) -> NoReturn:
        """Refuse: no call streams."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the connections open for the next call."""
