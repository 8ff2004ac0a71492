"""The App's requests to a Saleor: the App's id, the keys of webhook signatures, a transaction's
state, and the report of an event.

The App calls only a Saleor of the settings. It uses only the requested fields of an answer, and no
error contains the token (I11).
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
from pydantic import SecretStr, ValidationError

from tillgate.shop import money
from tillgate.shop.http import DeadlineTransport, keep_to
from tillgate_saleor.bodies import PaidTransaction, Source
from tillgate_saleor.conf import get_settings
from tillgate_saleor.documents import APP_ID, COSTS, PAID_FOR, REPORT, REPORT_WITH_METHOD
from tillgate_saleor.models import LONGEST_ID

_SECONDS: Final = 5.0
"""The time limit for a whole answer, however slowly it arrives."""
_KEYS_SECONDS: Final = 2.5
"""The time limit for the keys, which a webhook needs before everything else."""
_TIMEOUT: Final = httpx.Timeout(_SECONDS, connect=2.0)
_CONNECTIONS: Final = 20
_LARGEST_ANSWER: Final = 256 * 1024
_KEYS_PATH: Final = "/.well-known/jwks.json"


class SaleorError(Exception):
    """A request to a Saleor failed; the message says why and contains no secret."""


class Unreachable(SaleorError):
    """The Saleor is unreachable, or its answer is unreadable: the result is unknown."""


class Silent(Unreachable):
    """The Saleor did not answer, or is overloaded: other requests to it may wait a moment."""


class TokenRefused(SaleorError):
    """The Saleor rejects the App's token: the App was uninstalled, or installed again elsewhere."""


class ReportRefused(SaleorError):
    """The Saleor rejects the report as wrong, and a repetition will not change that: staff must
    decide.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """An event to report to a Saleor. `amount` is text in the transaction's currency, `time` an ISO
    8601 moment with its offset, `external_url` the gateway's own page, or empty, and `method` the
    card or wallet that paid, as Saleor 3.22 and later take it, or None.
    """

    transaction_id: str
    type: str
    psp_reference: str
    amount: str
    time: str
    message: str
    available_actions: tuple[str, ...]
    external_url: str = ""
    method: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidFor:
    """The checkout or order of a transaction, as its Saleor describes it. A checkout has no
    status.
    """

    is_charged: bool
    """Whether the Saleor knows of money of the transaction."""
    is_there: bool
    """Whether its order or checkout still exists."""
    status: str | None = None
    charge_status: str | None = None


@functools.cache
def client() -> httpx.Client:
    """Return the process's client: its connections to the Saleors are kept."""
    # No redirects: they could lead to a Saleor outside the settings.
    return httpx.Client(
        transport=DeadlineTransport(_CONNECTIONS),
        timeout=_TIMEOUT,
        follow_redirects=False,
    )


class _Bearer(httpx.Auth):
    """The App's token, as a header: only the outgoing request contains it."""

    def __init__(self, token: SecretStr) -> None:
        self._token = token

    # nothing is sent to it
    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]
        request.headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        yield request


def ask_app_id(api_url: str, token: SecretStr) -> str:
    """Return the App's id with a token; raise `TokenRefused` if the token is invalid or another
    App's, or `Unreachable`.
    """
    app = _asked(api_url, token, APP_ID, {}).get("app")
    if (
        not isinstance(app, Mapping)
        or not isinstance(app.get("id"), str)
        or not 0 < len(app["id"]) <= LONGEST_ID
    ):
        raise TokenRefused(f"{api_url} knows no App by this token")
    # The token of any other App works as well, and in place of ours it would end every payment.
    if app.get("identifier") != get_settings().app_id:
        raise TokenRefused(f"{api_url} knows another App by this token")
    return str(app["id"])


def ask_paid_for(api_url: str, token: SecretStr, transaction_id: str) -> PaidFor:
    """Return the target of a transaction; raise a `SaleorError` when the query fails."""
    found = _transaction(api_url, token, PAID_FOR, transaction_id)
    order = found.get("order")
    said = order if isinstance(order, Mapping) else {}
    try:
        transaction = PaidTransaction.model_validate({"id": transaction_id, **found})
    except ValidationError:
        transaction = None
    if transaction is None or transaction.charged is None:
        raise Unreachable(f"{api_url} did not say whether a transaction is charged")
    is_there = bool(order or found.get("checkout"))
    told = {"status": said.get("status"), "charge_status": said.get("chargeStatus")}
    return PaidFor(is_charged=transaction.is_charged, is_there=is_there, **told)


def ask_costs(api_url: str, token: SecretStr, transaction_id: str) -> Source | None:
    """Return the checkout or order of a transaction, with its total, or None; raise a `SaleorError`
    when the query fails.
    """
    found = _transaction(api_url, token, COSTS, transaction_id)
    said = found.get("order") or found.get("checkout")
    try:
        return Source.model_validate(said) if said else None
    except ValidationError:
        raise Unreachable(
            f"{api_url} did not say what a transaction's checkout or order costs",
        ) from None


def _transaction(
    api_url: str,
    token: SecretStr,
    query: str,
    transaction_id: str,
) -> Mapping[str, Any]:
    found = _asked(api_url, token, query, {"id": transaction_id}).get("transaction")
    if not isinstance(found, Mapping):
        raise Unreachable(f"{api_url} did not say what a transaction pays")
    return found


def report(api_url: str, token: SecretStr, event: Reported) -> None:
    """Report an event of a transaction. A repeated report counts as success; raises a `SaleorError`
    if Saleor does not accept it.
    """
    variables: dict[str, Any] = {
        "id": event.transaction_id,
        "type": event.type,
        "pspReference": event.psp_reference,
        "amount": event.amount,
        "time": event.time,
        "message": event.message,
        "availableActions": list(event.available_actions),
    }
    if event.external_url:
        variables["externalUrl"] = event.external_url
    if event.method:
        variables["paymentMethodDetails"] = event.method
    document = REPORT_WITH_METHOD if event.method else REPORT
    answer = _asked(api_url, token, document, variables).get("transactionEventReport")
    if not isinstance(answer, Mapping) or not isinstance(answer.get("errors"), list):
        raise Unreachable(f"{api_url} did not say what became of the report")
    for error in answer["errors"]:
        code, message = (
            (str(error.get(name, ""))[:200] for name in ("code", "message"))
            if isinstance(error, Mapping)
            else ("?", "")
        )
        raise ReportRefused(
            f"{event.type} of {event.psp_reference}, {event.amount}: {code}: {message}",
        )


def fetch_keys(origin: str) -> dict[str, Any]:
    """Return the JSON Web Key Set of a Saleor; raise `Unreachable` when there is none."""
    answer = _read("GET", origin + _KEYS_PATH, _KEYS_SECONDS)
    if not isinstance(answer.get("keys"), list):
        raise Unreachable(f"{origin}{_KEYS_PATH} holds no keys")
    return answer


def _asked(
    api_url: str,
    token: SecretStr,
    query: str,
    variables: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the data of an answer. Errors come with HTTP 200, and so does a rejected token."""
    answer = _read(
        "POST",
        api_url,
        _SECONDS,
        auth=_Bearer(token),
        json={"query": query, "variables": variables},
    )
    if errors := answer.get("errors"):
        # Complete messages may contain a traceback of Saleor's own code, and people read this.
        is_refused = any(
            code in json.dumps(errors) for code in ("PermissionDenied", "InvalidToken")
        )
        raise (TokenRefused if is_refused else Unreachable)(
            f"{api_url} answered: {_messages(errors)}",
        )
    data = answer.get("data")
    if not isinstance(data, Mapping):
        raise Unreachable(f"{api_url} answered without data")
    return data


def _messages(errors: object) -> str:
    said = (
        [str(error.get("message")) for error in errors if isinstance(error, Mapping)]
        if isinstance(errors, list)
        else []
    )
    return "; ".join(said)[:400] or "an error without a message"


def _read(method: str, url: str, seconds: float, **request: Any) -> dict[str, Any]:
    keep_to(time.monotonic() + seconds)
    # Uncompressed: a compressed answer could swell past every bound.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    try:
        with client().stream(method, url, headers=headers, **request) as response:
            body = bytearray()
            for part in response.iter_raw():
                body += part
                if len(body) > _LARGEST_ANSWER:
                    raise Unreachable(f"{url} answered with more than {_LARGEST_ANSWER} bytes")
            status = response.status_code
    except httpx.HTTPError as error:
        fault = Silent(f"{url} could not be reached: {type(error).__name__}")
    else:
        if status == httpx.codes.UNAUTHORIZED:
            raise TokenRefused(f"{url} answered HTTP {status}")
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise Silent(f"{url} answered HTTP {status}")
        if status != httpx.codes.OK:
            raise Unreachable(f"{url} answered HTTP {status}")
        return _object(url, bytes(body))
    # Outside the except block: error reports print local variables, and httpx keeps the token in
    # its own (I11).
    raise fault


def _object(url: str, body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body, parse_float=money.WireNumber)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Unreachable(f"{url} answered no JSON object")
    return answer
