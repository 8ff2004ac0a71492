"""Calls of Stripe's API over Tillgate's transport: one attempt, one deadline, Tillgate's errors.

Frameworks such as pretix pin another version of Stripe's own package, so the plugin does without.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlencode

from tillgate import Account, ConfigurationError, GatewayError, OrderNotFound, Refused
from tillgate.gateways import http

API_VERSION: Final = "2026-10-28.endive"
"""The version of Stripe's API that every request names, instead of the account's own default."""

_NO_ANSWER: Final = frozenset({"", "idempotency_error"})
"""Codes of refusals that prove nothing: none, since it may not be Stripe's, and that of a key that
was used for another request before.
"""
_MISSING: Final = "resource_missing"


class Record(dict[str, Any]):
    """An object of Stripe's answer, whose fields are attributes; a missing one raises
    `AttributeError`.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _recorded(found: Any) -> Any:
    if isinstance(found, dict):
        return Record({name: _recorded(one) for name, one in found.items()})
    return [_recorded(one) for one in found] if isinstance(found, list) else found


def _pairs(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield a value as Stripe's forms have it: `a[b][0]=c`."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _pairs(one, f"{name}[{key}]" if name else key)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _pairs(one, f"{name}[{number}]")
    else:
        yield name, str(value).lower() if isinstance(value, bool) else str(value)


def is_test_key(account: Account) -> bool:
    """Return whether the account's key moves play money."""
    return "_live_" not in account.token.get_secret_value()[:9]


class Call(http.Call):
    """One call of a hook, until the deadline. `refused_parameter` is the one that Stripe refused
    last, and `version` that of the API by Stripe's last answer.
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
        self.version = ""

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return what is at a path."""
        query = urlencode(list(_pairs(params or {})), safe="[]")
        return self._exchange_record("GET", f"{path}?{query}" if query else path)

    def post(self, path: str, params: Mapping[str, Any], key: str = "") -> Any:
        """Create or change something. A repeated key has no second effect."""
        return self._exchange_record("POST", path, dict(_pairs(params)), key)

    def pages(self, path: str, params: Mapping[str, Any]) -> Iterator[Any]:
        """Yield all that a list has, page by page."""
        after: dict[str, str] = {}
        while True:
            page = self.get(path, {**params, **after})
            yield from page.data
            if not page.has_more or not page.data:
                return
            after = {"starting_after": page.data[-1].id}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise errors without the frames below, whose variables hold the key. An answer that is
        not as documented proves nothing.
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

    def _exchange_record(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | None = None,
        key: str = "",
    ) -> Any:
        """Send one request, and return an answer that is a JSON object."""
        headers = {
            "Authorization": f"Bearer {self.account.token.get_secret_value()}",
            "Stripe-Version": API_VERSION,
            **({"Idempotency-Key": key} if key else {}),
        }
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
            found = json.loads(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self.unknown("the answer is no JSON object", answer.status)
        self.version = answer.headers.get("stripe-version", "")
        return _recorded(found)
