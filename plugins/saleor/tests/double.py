"""A small Saleor in this process, built after the recorded run: it installs the App, signs its
webhooks, and keeps books.

Its API answers over HTTP; it calls the App's addresses through `send`, by default Django's test
client.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from django.test import Client
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.schema import faults, faults_of_variables
from tests.shapes import faults_of
from tillgate_saleor.documents import Event

FAILURE = "_FAILURE"
DASHBOARD = """<!doctype html><html lang="en"><title>Dashboard</title><h1>Dashboard</h1>
<iframe title="App" src="%s" width="100%%" height="600" sandbox="allow-same-origin allow-scripts allow-forms allow-popups"></iframe>
<script>
  const frame = document.querySelector("iframe");
  frame.addEventListener("load", () => {
    frame.contentWindow.postMessage({ type: "handshake", payload: { token: "%s", version: 1 } }, new URL(frame.src).origin);
  });
</script></html>"""

Send = Callable[[str, str, Mapping[str, str], bytes], tuple[int, Any]]


def through_client(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
) -> tuple[int, Any]:
    """Call the App in this process."""
    path = urlsplit(url).path
    answer = Client().generic(
        method,
        path,
        body,
        content_type="application/json",
        headers=dict(headers),
    )
    return answer.status_code, json.loads(answer.content)


class Refused(Exception):
    """A mutation of the storefront or the staff was answered with an error."""


@dataclass
class Noted:
    """An event of a transaction, as Saleor keeps it."""

    type: str
    psp_reference: str
    amount: Decimal
    time: datetime
    message: str = ""
    external_url: str = ""


@dataclass
class DoubleTransaction:
    """A transaction as Saleor keeps it."""

    id: str
    source: Source
    key: str
    amount: Decimal
    action_type: str
    data: Any
    created_at: str
    psp_reference: str = ""
    actions: list[str] = field(default_factory=list)
    events: list[Noted] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    method: dict[str, Any] = field(default_factory=dict)
    """The method that paid it, as the App reported."""

    @property
    def is_pending(self) -> bool:
        """Whether money for it is on its way."""
        kinds = {event.type for event in self.events}
        return "CHARGE_REQUEST" in kinds and not kinds & {"CHARGE_SUCCESS", "CHARGE_FAILURE"}

    @property
    def pending(self) -> Decimal:
        """The amount on its way."""
        return self.amount if self.is_pending else Decimal(0)

    @property
    def _last(self) -> list[Noted]:
        return [event for event in self.events if event.type != "INFO"][-1:]

    def counted(self, kind: str) -> Decimal:
        """Return the money of successes, by pspReference; the last report of each counts."""
        total = Decimal(0)
        for reference in {
            event.psp_reference for event in self.events if event.type.startswith(kind)
        }:
            ours = [event for event in self.events if event.psp_reference == reference]
            successes = [event for event in ours if event.type == f"{kind}_SUCCESS"]
            failures = [event for event in ours if event.type == f"{kind}_FAILURE"]
            if successes and (
                not failures or max(e.time for e in failures) < max(e.time for e in successes)
            ):
                total += successes[-1].amount
        return total

    @property
    def charged(self) -> Decimal:
        """The charged amount."""
        return self.counted("CHARGE") - self.counted("REFUND")

    @property
    def references_charged(self) -> int:
        """Under how many pspReferences it was charged: more than one is money counted twice."""
        return len({event.psp_reference for event in self.events if event.type == "CHARGE_SUCCESS"})

    @property
    def has_failed(self) -> bool:
        """Whether its last event says that it was not paid."""
        return bool(self._last) and self._last[-1].type == "CHARGE_FAILURE"


@dataclass
class Source:
    """A checkout or an order."""

    id: str
    total: Decimal
    currency: str = "USD"
    status: str = "open"
    transactions: list[DoubleTransaction] = field(default_factory=list)
    ledger: list[str] = field(default_factory=list)
    attempts: int = 0
    """How many are over, as the storefront counts them."""
    keys: set[str] = field(default_factory=set)
    """The keys that the storefront has given its attempts."""
    checkout: Source | None = None
    """The checkout that became this order."""
    order_status: str = "UNFULFILLED"

    @property
    def charged(self) -> Decimal:
        """The amount charged for it."""
        return sum((one.charged for one in self.transactions), Decimal(0))

    @property
    def charge_status(self) -> str:
        """How much of an order is paid."""
        if self.charged <= 0:
            return "NONE"
        return (
            "PARTIAL"
            if self.charged < self.total
            else "FULL"
            if self.charged == self.total
            else "OVERCHARGED"
        )


class SaleorDouble:
    """A Saleor."""

    strategy = "CHARGE"
    version = "3.23.28"
    tells_costs = True
    """Whether it has installed an App that asks for a checkout's price."""
    identifier: str | None = "tillgate"
    """Of the App that a token belongs to."""

    def __init__(self, send: Send = through_client) -> None:
        self.send = send
        self.keys = [RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, private=True)]
        self.keys[0].ensure_kid()
        self.tokens: dict[str, str] = {}
        self.app_id = ""
        self.targets: dict[Event, str] = {}
        self.sources: dict[str, Source] = {}
        self.transactions: dict[str, DoubleTransaction] = {}
        self.requests: list[tuple[str, str]] = []
        self.faults: list[str] = []
        self.is_down = False
        self.page_url = ""
        """The address of the page that its dashboard shows in a frame."""
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def origin(self) -> str:
        """Its origin."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def api_url(self) -> str:
        """The address of its API."""
        return f"{self.origin}/graphql/"

    def headers(self, **more: str) -> dict[str, str]:
        """Return the headers of everything that it sends."""
        domain = self.origin.removeprefix("http://")
        return {
            "Saleor-Domain": domain,
            "Saleor-Api-Url": self.api_url,
            "Saleor-Schema-Version": "3.23",
            **more,
        }

    # The staff ------------------------------------------------------------------------------------

    def install(self, base_url: str = "http://testserver") -> tuple[int, Any]:
        """Install the App: a new id, and a new token in place of the last."""
        _, manifest = self.send("GET", f"{base_url}/api/manifest", self.headers(), b"")
        self.targets = {
            Event(webhook["syncEvents"][0].lower()): webhook["targetUrl"]
            for webhook in manifest["webhooks"]
        }
        self.app_id, token = _global_id("App", next(self._numbers)), f"token-{uuid.uuid4().hex}"
        self.tokens = {token: self.app_id}
        return self.register(token, manifest["tokenTargetUrl"])

    def register(
        self,
        token: str,
        url: str = "http://testserver/api/register",
        **headers: str,
    ) -> tuple[int, Any]:
        """Hand over a token."""
        return self.send(
            "POST",
            url,
            self.headers(**headers),
            json.dumps({"auth_token": token}).encode(),
        )

    def request_refund(self, transaction: DoubleTransaction, amount: object) -> tuple[int, Any]:
        """Ask for money back, as the staff do in the dashboard."""
        return self._request(Event.REFUND, transaction, amount)

    def request_charge(self, transaction: DoubleTransaction, amount: object) -> tuple[int, Any]:
        """Ask for authorized money to be charged."""
        return self._request(Event.CHARGE, transaction, amount)

    def request_cancel(self, transaction: DoubleTransaction) -> tuple[int, Any]:
        """Ask for a transaction to be canceled."""
        return self._request(Event.CANCEL, transaction, transaction.amount)

    def _request(
        self,
        event: Event,
        transaction: DoubleTransaction,
        amount: object,
    ) -> tuple[int, Any]:
        action = {
            "actionType": event.value.split("_")[1].upper().replace("CANCELATION", "CANCEL"),
            "amount": _number(amount),
            "currency": "USD",
        }
        status, said = self.call(
            event,
            {
                "action": action,
                "transaction": {"id": transaction.id, "pspReference": transaction.psp_reference},
            },
        )
        if "result" in said:
            self._note(transaction, said, Decimal(str(amount)))
        return status, said

    # The storefront -------------------------------------------------------------------------------

    def checkout(self, total: Decimal, currency: str = "USD") -> Source:
        """Make a checkout."""
        source = Source(_global_id("Checkout", uuid.uuid4()), total, currency)
        self.sources[source.id] = source
        return source

    def order(self, checkout: Source) -> Source:
        """Make an order of a checkout, as a channel does that allows unpaid ones: its transactions
        are the order's from now on.
        """
        order = Source(
            _global_id("Order", uuid.uuid4()),
            checkout.total,
            checkout.currency,
            checkout=checkout,
        )
        order.transactions, checkout.status = checkout.transactions, "completed"
        for one in order.transactions:
            one.source = order
        self.sources[order.id] = order
        return order

    def charge_by_another_app(self, source: Source, amount: Decimal) -> None:
        """Take money for a source by another App of the same Saleor, for example a gift card's."""
        theirs, _ = self.initialize(source, f"another App's {amount}", {"method": "none of ours"})
        theirs.events = [Noted("CHARGE_SUCCESS", "theirs", amount, datetime.now(UTC))]

    def gateway_initialize(self, source: Source, amount: Decimal | None = None) -> tuple[int, Any]:
        """Ask for the ways to pay: Saleor names the rest of the price, or the storefront's
        amount.
        """
        left = max(source.total - source.charged, Decimal(0)) if amount is None else amount
        return self.call(
            Event.GATEWAY_INITIALIZE,
            {"amount": _number(left), "data": {}, "sourceObject": self._source(source)},
        )

    def initialize(
        self,
        source: Source,
        key: str,
        data: Any,
        amount: Decimal | None = None,
    ) -> tuple[DoubleTransaction, Any]:
        """Begin a transaction; with the same key, the same one."""
        with self.lock:
            if source.status != "open":
                raise Refused("NOT_FOUND")
            transaction = next((one for one in source.transactions if one.key == key), None)
            if transaction is None:
                pending = sum((one.pending for one in source.transactions), Decimal(0))
                wanted = source.total - source.charged - pending if amount is None else amount
                identifier = _global_id("TransactionItem", uuid.uuid4())
                now = datetime.now(UTC).isoformat()
                transaction = DoubleTransaction(
                    identifier,
                    source,
                    key,
                    wanted,
                    self.strategy,
                    data,
                    now,
                )
                source.transactions.append(transaction)
                self.transactions[identifier] = transaction
        body = self.session_body(transaction) | {"idempotencyKey": key, "data": data}
        return transaction, self._session(Event.INITIALIZE, transaction, body)

    def process(self, transaction: DoubleTransaction) -> Any:
        """Ask how a transaction stands. Of a pending charge it asks no App."""
        if transaction.is_pending:
            return {"result": "CHARGE_REQUEST", "pspReference": transaction.psp_reference}
        return self._session(
            Event.PROCESS,
            transaction,
            self.session_body(transaction) | {"data": None},
        )

    def session_body(self, transaction: DoubleTransaction) -> dict[str, Any]:
        """Return the members that the bodies of both have."""
        return {
            "action": {
                "amount": _number(transaction.amount),
                "currency": transaction.source.currency,
                "actionType": transaction.action_type,
            },
            "transaction": {
                "id": transaction.id,
                "pspReference": transaction.psp_reference,
                "chargedAmount": {"amount": _number(transaction.charged)},
            },
            "sourceObject": self._source(transaction.source),
        }

    def _session(self, event: Event, transaction: DoubleTransaction, body: dict[str, Any]) -> Any:
        _, said = self.call(event, body)
        if "result" in said:
            self._note(transaction, said, transaction.amount)
        return said

    def _source(self, source: Source) -> dict[str, Any]:
        channel = {"slug": "default-channel", "currencyCode": source.currency}
        pending = sum((one.pending for one in source.transactions), Decimal(0))
        balance = {"amount": _number(source.charged + pending - source.total)}
        names = ("authorizedAmount", "authorizePendingAmount")
        held = [
            {
                "id": one.id,
                "chargedAmount": {"amount": _number(one.charged)},
                "chargePendingAmount": {"amount": _number(one.pending)},
                **{name: {"amount": 0.0} for name in names},
            }
            for one in source.transactions
        ]
        if source.checkout:
            told: dict[str, Any] = {
                "number": "7",
                "status": source.order_status,
                "chargeStatus": source.charge_status,
                "checkoutId": source.checkout.id,
            }
            costs = {"totalBalance": balance, "transactions": held} if self.tells_costs else {}
            return {"__typename": "Order", "id": source.id, **told, **costs, "channel": channel}
        costs = {"totalBalance": balance, "begun": held} if self.tells_costs else {}
        return {"__typename": "Checkout", "id": source.id, "channel": channel, **costs}

    # Webhooks -------------------------------------------------------------------------------------

    def body(self, event: Event, fields: Mapping[str, Any], **more: Any) -> bytes:
        """Return the raw body of a webhook."""
        common = {
            "__typename": event.typename,
            "issuedAt": datetime.now(UTC).isoformat(),
            "version": self.version,
        }
        return json.dumps({**common, "recipient": {"id": self.app_id}, **fields, **more}).encode()

    def sign(self, raw: bytes, key: RSAKey | None = None) -> str:
        """Return the detached signature over a body."""
        key = key or self.keys[-1]
        head = {"alg": "RS256", "b64": False, "crit": ["b64"], "kid": key.kid, "typ": "JWT"}
        header = base64.urlsafe_b64encode(json.dumps(head).encode()).rstrip(b"=")
        signature = key.get_op_key("sign").sign(header + b"." + raw, PKCS1v15(), SHA256())
        return f"{header.decode()}..{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    def call(self, event: Event, fields: Mapping[str, Any]) -> tuple[int, Any]:
        """Send a webhook, signed, and return its answer, which must be as Saleor requires."""
        raw = self.body(event, fields)
        status, said = self.post(event, raw, self.sign(raw))
        if status == 200:
            self.faults += [f"{event}: {fault}: {said}" for fault in faults_of(event, said)]
        return status, said

    def post(
        self,
        event: Event,
        raw: bytes,
        signature: str | None,
        **headers: str,
    ) -> tuple[int, Any]:
        """Send a webhook as it is."""
        signed = {"Saleor-Signature": signature} if signature is not None else {}
        return self.send(
            "POST",
            self.targets[event],
            self.headers(**{"Saleor-Event": event.value, **signed, **headers}),
            raw,
        )

    def page_token(self, key: RSAKey | None = None, **changes: Any) -> str:
        """Return the token that the dashboard hands to the App's page."""
        key = key or self.keys[-1]
        claims = {
            "iat": int(time.time()),
            "owner": "saleor",
            "iss": self.api_url,
            "exp": int(time.time()) + 300,
            "email": "ann@shop.example",
            "type": "thirdparty",
            "is_staff": True,
            "app": self.app_id,
            "permissions": ["HANDLE_PAYMENTS"],
            "user_permissions": ["HANDLE_PAYMENTS", "MANAGE_APPS"],
        }
        claims = {name: value for name, value in {**claims, **changes}.items() if value is not None}
        return jwt.encode(
            {"alg": "RS256", "kid": key.kid, "typ": "JWT"},
            claims,
            key,
            algorithms=["RS256"],
        )

    # Ledger ---------------------------------------------------------------------------------------

    def _note(
        self,
        transaction: DoubleTransaction,
        said: Mapping[str, Any],
        amount: Decimal,
    ) -> None:
        """Keep the content of the App's answer."""
        transaction.answers.append(dict(said))
        transaction.psp_reference = said.get("pspReference") or transaction.psp_reference
        transaction.actions = said.get("actions", transaction.actions)
        exact = Decimal(str(said.get("amount", amount)))
        # It looks at no offset.
        moment = (
            datetime.fromisoformat(said["time"]).replace(tzinfo=UTC)
            if "time" in said
            else datetime.now(UTC)
        )
        self._keep(
            transaction,
            Noted(
                said["result"],
                said.get("pspReference", ""),
                exact,
                moment,
                said.get("message", ""),
                said.get("externalUrl", ""),
            ),
        )

    def _keep(self, transaction: DoubleTransaction, event: Noted) -> bool:
        """Keep an event, unless it is there already; raise `Refused` when it is there with another
        amount.
        """
        with self.lock:
            same = [
                one
                for one in transaction.events
                if (one.type, one.psp_reference) == (event.type, event.psp_reference)
            ]
            # those without a pspReference are one to it, too
            if same and not event.type.endswith("ACTION_REQUIRED"):
                if same[-1].amount != event.amount:
                    raise Refused("INCORRECT_DETAILS")
                return False
            transaction.events.append(event)
            source = transaction.source
            if source.status == "open" and not source.ledger and source.charged >= source.total > 0:
                source.ledger.append("paid")
            return True

    def _expire(self, source: Source) -> None:
        """Expire an order that awaits payment too long, as the channel's setting says."""
        if (
            source.status == "open"
            and not source.charged
            and all(one.has_failed for one in source.transactions if one.events)
        ):
            source.status = "expired"

    def _paid_for(self, transaction: DoubleTransaction, *, is_about_costs: bool) -> dict[str, Any]:
        source = transaction.source
        told = None if source.status == "deleted" else self._source(source)
        about = {
            "order": told if source.checkout else None,
            "checkout": None if source.checkout else told,
        }
        return (
            about
            if is_about_costs
            else {"chargedAmount": {"amount": float(transaction.charged)}, **about}
        )

    def graphql(self, token: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request to the API."""
        query, variables = request["query"], request["variables"]
        self.requests.append(
            (query.split("(")[0].split("{")[0].strip() or "app", json.dumps(variables)),
        )
        version = self.version.rpartition(".")[0]
        found = faults(query, version) or faults_of_variables(query, variables, version)
        self.faults += [f"{query.split('(')[0]}: {fault}" for fault in found]
        if found:
            return {"errors": [{"message": "; ".join(found)}]}
        app_id = self.tokens.get(token)
        if app_id is None:  # a token that is not taken is an answer like any other, with HTTP 200
            return json.loads(_recorded("005-charge-success-bad-token")["response"]["body_raw"])  # type: ignore[no-any-return]
        if "transaction" not in query:
            return {"data": {"app": {"id": app_id, "identifier": self.identifier}}}
        transaction = self.transactions.get(variables["id"])
        if "transactionEventReport" not in query:
            return {
                "data": {
                    "transaction": transaction
                    and self._paid_for(transaction, is_about_costs="query Costs" in query),
                },
            }
        if transaction is None:
            return _reported(error=("id", "NOT_FOUND"))
        moment = datetime.fromisoformat(variables["time"])
        assert moment.utcoffset() == timedelta(), "the time is not in UTC"
        event = Noted(
            variables["type"],
            variables["pspReference"],
            Decimal(variables["amount"]),
            moment,
            variables.get("message") or "",
            variables.get("externalUrl") or "",
        )
        if "externalUrl" in variables and not 0 < len(event.external_url) <= 200:
            self.faults.append(f"externalUrl is {event.external_url!r}")
        was_pending = transaction.is_pending
        with self.lock:
            try:
                is_new = self._keep(transaction, event)
            except Refused:
                return _reported(error=("pspReference", "INCORRECT_DETAILS"))
            if is_new:  # of events that it knows already it takes nothing
                transaction.actions = variables["availableActions"]
            transaction.method = variables.get("paymentMethodDetails") or transaction.method
            # After a pending charge that failed, the order's time to be paid goes on.
            if event.type == "CHARGE_FAILURE" and not was_pending:
                self._expire(transaction.source)
        return _reported(already=not is_new)


def forged_key(double: SaleorDouble, name: str = "") -> RSAKey:
    """Return a key that is not the Saleor's, under the name of one that is, or another."""
    return RSAKey.generate_key(2048, {"kid": name or double.keys[-1].kid or ""}, private=True)


def _recorded(name: str) -> Any:
    return json.loads(
        (Path(__file__).parent / "recordings" / "graphql" / f"{name}.json").read_text("utf-8"),
    )


def _reported(
    *,
    already: bool | None = None,
    error: tuple[str, str] | None = None,
) -> dict[str, Any]:
    errors = (
        [{"field": error[0], "code": error[1], "message": "as the double says"}] if error else []
    )
    return {"data": {"transactionEventReport": {"alreadyProcessed": already, "errors": errors}}}


def _number(amount: object) -> Any:
    return float(amount) if isinstance(amount, Decimal) else amount


def _global_id(kind: str, key: object) -> str:
    return base64.b64encode(f"{kind}:{key}".encode()).decode()


def _handler(double: SaleorDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # head and body leave together; the answer would wait for an acknowledgement otherwise
        wbufsize = 1 << 16

        def do_GET(self) -> None:
            if self.path == "/dashboard/":
                self._say(
                    200,
                    DASHBOARD % (double.page_url, double.page_token()),
                    "text/html; charset=utf-8",
                )
                return
            keys = {"keys": [key.as_dict(private=False) for key in double.keys]}
            self._say(
                200 if self.path == "/.well-known/jwks.json" and not double.is_down else 503,
                keys,
            )

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            self._say(
                503 if double.is_down else 200,
                {} if double.is_down else double.graphql(token, json.loads(raw)),
            )

        def _say(self, status: int, body: object, content_type: str = "application/json") -> None:
            text = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler


def running() -> Iterator[SaleorDouble]:
    """Give a double that answers, and close it."""
    double = SaleorDouble()
    try:
        yield double
    finally:
        double.close()
