"""A small Stripe in this process: its HTTP API for payments by Checkout, and the people that pay,
dispute and use the dashboard.

It speaks API version `2026-10-28.endive`, and refuses the same as that version. The shop's side is
HTTP at `FakeStripe.url`; the methods of `FakeStripe` are the shopper, the bank and the dashboard. A
payment is named by its reference: the session's `client_reference_id`, or `reference` in its
metadata. Webhooks are not sent: `event` and `signed` build them.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import re
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from stripe_emulator import objects as stripe_objects
from stripe_emulator.objects import Json

API_VERSION = "2026-10-28.endive"
MINIMA = {"usd": 50, "eur": 50, "gbp": 30, "jpy": 50}
THREE_DECIMALS = {"bhd", "jod", "kwd", "omr", "tnd"}
WHOLE_UNITS = {"isk", "ugx"}  # they have no decimals, but Stripe counts them in hundredths
LARGEST = 99_999_999
HALF_AN_HOUR, A_DAY = 1800, 86400
LOCALES = """auto bg cs da de el en en-GB es es-419 et fi fil fr fr-CA hi-IN hr hu id it ja ko lt lv ms mt nb nl pl pt pt-BR ro ru sk sl sv
    th tr vi zh zh-HK zh-TW"""
REASONS = {"duplicate", "fraudulent", "requested_by_customer"}
# the statuses of refunds with money that has left the charge
COUNTED = {
    "pending",
    "requires_action",
    "succeeded",
}
PAGING = "limit starting_after ending_before expand"
RefundStatus = Literal["succeeded", "pending", "requires_action", "failed", "canceled"]


@dataclass(frozen=True)
class Operation:
    """An endpoint, the permission that a restricted key needs for it, and the parameters that it
    knows.
    """

    name: str
    method: str
    path: str
    permission: str
    parameters: str


OPERATIONS = (
    Operation(
        "create_session",
        "POST",
        "/v1/checkout/sessions",
        "checkout_session_write",
        """adaptive_pricing allowed_payment_method_types cancel_url client_reference_id customer_email excluded_payment_method_types expand
        expires_at line_items locale metadata mode payment_intent_data payment_method_options submit_type success_url ui_mode""",
    ),
    Operation(
        "list_sessions",
        "GET",
        "/v1/checkout/sessions",
        "checkout_session_read",
        f"{PAGING} created payment_intent status",
    ),
    Operation(
        "retrieve_session",
        "GET",
        "/v1/checkout/sessions/{id}",
        "checkout_session_read",
        "expand",
    ),
    Operation(
        "expire_session",
        "POST",
        "/v1/checkout/sessions/{id}/expire",
        "checkout_session_write",
        "expand",
    ),
    Operation(
        "search_intents",
        "GET",
        "/v1/payment_intents/search",
        "payment_intent_read",
        "query limit page expand",
    ),
    Operation(
        "retrieve_intent",
        "GET",
        "/v1/payment_intents/{id}",
        "payment_intent_read",
        "expand",
    ),
    Operation(
        "create_refund",
        "POST",
        "/v1/refunds",
        "refund_write",
        "amount charge expand metadata payment_intent reason",
    ),
    Operation(
        "list_refunds",
        "GET",
        "/v1/refunds",
        "refund_read",
        f"{PAGING} created payment_intent charge",
    ),
    Operation("retrieve_refund", "GET", "/v1/refunds/{id}", "refund_read", "expand"),
    Operation(
        "list_disputes",
        "GET",
        "/v1/disputes",
        "dispute_read",
        f"{PAGING} created payment_intent charge",
    ),
    Operation("retrieve_review", "GET", "/v1/reviews/{id}", "review_read", "expand"),
    Operation("retrieve_account", "GET", "/v1/account", "accounts_kyc_basic_read", "expand"),
    Operation("list_endpoints", "GET", "/v1/webhook_endpoints", "webhook_read", PAGING),
    Operation("retrieve_balance", "GET", "/v1/balance", "balance_read", "expand"),
)
EXPANDABLE = {
    "checkout.session": {"payment_intent"},
    "payment_intent": {"latest_charge"},
    "charge": {"payment_intent", "refunds", "balance_transaction"},
    "refund": {"payment_intent", "charge"},
    "dispute": {"payment_intent", "charge"},
}
EXPANDING = {"payment_intent": "payment_intent_read", "balance_transaction": "balance_read"}
"""The permissions that a restricted key needs to expand a property; the others are a charge's."""
ROUTES = [
    (operation, re.compile(operation.path.replace("{id}", r"(\w+)"))) for operation in OPERATIONS
]


@dataclass(frozen=True)
class Request:
    """A request that arrived; the journal keeps it without its key."""

    operation: str
    method: str
    path: str
    parameters: Json
    headers: dict[str, str]


@dataclass
class Answer:
    """An answer to a request."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """The fault of the next request of an operation."""

    kind: Literal["drop", "lose", "slow", "fail", "break", "html", "alter"]
    status: int = 200
    seconds: float = 0
    stored: bool = False
    change: Callable[[Json], None] | None = None


class Refusal(Exception):
    """An error of Stripe's shape; `stored` ones are repeated for the same idempotency key."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        decline_code: str | None = None,
        stored: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.stored = status, stored
        more = {"code": code, "param": param, "decline_code": decline_code}
        self.error: Json = {
            "message": message,
            "type": kind,
            **{name: value for name, value in more.items() if value},
        }
        if code:
            self.error["doc_url"] = f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}"


FAILURES: dict[int, Callable[[], Refusal]] = {
    400: lambda: Refusal("No documentation has this code.", code="quantum"),
    401: lambda: Refusal("Invalid API Key provided: sk_test_****fake", status=401),
    402: lambda: Refusal(
        "Your card was declined.",
        status=402,
        kind="card_error",
        code="card_declined",
        decline_code="generic_decline",
        stored=True,
    ),
    403: lambda: Refusal(
        "The provided key does not have the required permissions.",
        status=403,
        code="more_permissions_required",
    ),
    404: lambda: Refusal(
        "No such checkout.session",
        status=404,
        code="resource_missing",
        param="session",
    ),
    409: lambda: Refusal(
        "There is currently another in-progress request using this Idempotency-Key.",
        status=409,
        code="idempotency_key_in_use",
    ),
    429: lambda: Refusal("Request rate limit exceeded.", status=429, code="rate_limit"),
    500: lambda: Refusal("An unknown error occurred", status=500, kind="api_error"),
    503: lambda: Refusal("Stripe is temporarily unavailable.", status=503, kind="api_error"),
}


def nested(pairs: Sequence[tuple[str, str]]) -> Json:
    """Return parameters in bracket notation as dictionaries and lists."""
    tree: Json = {}
    for name, value in pairs:
        *parents, last = re.findall(r"[^\[\]]+|(?<=\[)(?=\])", name)
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last or str(len(place))] = value
    unlisted: Json = _listed(tree)
    return unlisted


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(name.isdecimal() for name in value):
        return [_listed(item) for _, item in sorted(value.items(), key=lambda pair: int(pair[0]))]
    return {name: _listed(item) for name, item in value.items()}


def _integer(value: Any, param: str) -> int:
    if not re.fullmatch(r"-?\d+", str(value)):
        raise Refusal(f"Invalid integer: {value}", code="parameter_invalid_integer", param=param)
    return int(value)


def _metadata(value: Any, param: str = "metadata") -> dict[str, str]:
    if not isinstance(value, dict):
        raise Refusal("Invalid object", param=param)
    if len(value) > 50:
        raise Refusal("You can have up to 50 keys.", param=param)
    for key, text in value.items():
        if len(key) > 40:
            raise Refusal(
                f"Metadata keys can have up to 40 characters, but you passed in {key}",
                param=param,
            )
        if len(text) > 500:
            raise Refusal(
                f"Metadata values can have up to 500 characters, but {key} has {len(text)}",
                param=param,
            )
    return dict(value)


def _missing(param: str) -> Refusal:
    return Refusal(f"Missing required param: {param}.", code="parameter_missing", param=param)


class FakeStripe:
    """Stripe for one account; use it as a context manager, and point the SDK's
    `base_addresses["api"]` at `url`.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float] = time.time,
        livemode: bool = False,
        port: int = 0,
    ) -> None:
        self.now = now
        # where the pages of the sessions are; nothing answers at Stripe's
        self.pages = "https://checkout.stripe.com"
        self.livemode = livemode
        self.keys: dict[str, frozenset[str] | None] = {"sk_test_fake": None}
        # switched on in the dashboard
        self.methods = [
            "card",
            "alipay",
            "ideal",
            "klarna",
            "sepa_debit",
            "wechat_pay",
        ]
        self.account = stripe_objects.account("acct_fake0000000001", created=int(now()))
        self.endpoints: list[Json] = []
        self.sessions: dict[str, Json] = {}
        self.intents: dict[str, Json] = {}
        self.charges: dict[str, Json] = {}
        self.refunds: dict[str, Json] = {}
        self.disputes: dict[str, Json] = {}
        self.reviews: dict[str, Json] = {}
        self.balance_transactions: dict[str, Json] = {}
        # the currency of the bank account: by default each payment's own
        self.settles_in: str | None = None
        self.journal: list[Request] = []
        self.next_refund: RefundStatus | Literal["refuse"] = "succeeded"
        self.search_held = False
        self._indexed: dict[str, Json] = {}
        self._intent_metadata: dict[str, dict[str, str]] = {}
        self._answers: dict[str, tuple[Any, Answer]] = {}
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """The base address of the API."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            daemon=True,
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # The shopper and the bank

    def pay(self, reference: str, method: str | None = None) -> Json:
        """Let the shopper pay immediately; return the session."""
        with self._lock:
            session = self._open(reference)
            intent, charge = self._attempt(session, method, "succeeded")
            self._arrived(session, intent, charge)
            return session

    def pay_with_delay(self, reference: str, method: str | None = None) -> Json:
        """Let the shopper pay by a method with money that comes days later; return the session."""
        with self._lock:
            session = self._open(reference)
            intent, _ = self._attempt(session, method, "pending")
            intent["status"] = "processing"
            self._close(session, "complete")
            return session

    def settle(self, reference: str) -> Json:
        """Let the money of a delayed payment arrive; return the session."""
        with self._lock:
            session, intent, charge = self._processing(reference)
            charge.update(status="succeeded", paid=True)
            self._arrived(session, intent, charge)
            return session

    def fail_delayed(self, reference: str) -> Json:
        """Let a delayed payment fail; the session stays complete and unpaid."""
        with self._lock:
            session, intent, charge = self._processing(reference)
            details = charge["payment_method_details"]
            charge.update(
                stripe_objects.charge(
                    charge["id"],
                    created=charge["created"],
                    intent=intent,
                    status="failed",
                    details=details,
                ),
            )
            intent.update(
                status="requires_payment_method",
                payment_method=None,
                last_payment_error=stripe_objects.last_payment_error(charge["id"]),
            )
            return session

    def take_voucher(self, reference: str, method: str) -> Json:
        """Let the shopper take a voucher to pay at a counter; return the session."""
        with self._lock:
            session = self._open(reference)
            intent = self._intent(session, method)
            intent.update(
                status="requires_action",
                next_action=stripe_objects.voucher(method, int(self.now()) + 3 * A_DAY),
            )
            self._close(session, "complete")
            return session

    def pay_voucher(self, reference: str) -> Json:
        """Let the shopper pay the voucher; return the session."""
        with self._lock:
            session = self.session_of(reference)
            intent = self._waiting(session)
            kind = intent["next_action"]["type"].removesuffix("_display_details")
            method = kind if kind in session["payment_method_types"] else stripe_objects.TRANSFER
            self._arrived(session, *self._attempt(session, method, "succeeded"))
            return session

    def end_voucher(self, reference: str) -> Json:
        """Let a voucher that nobody has paid end; the session stays complete and unpaid."""
        with self._lock:
            session = self.session_of(reference)
            self._waiting(session).update(
                status="requires_payment_method",
                payment_method=None,
                next_action=None,
            )
            return session

    def decline(
        self,
        reference: str,
        method: str | None = None,
        code: str = "generic_decline",
    ) -> Json:
        """Let the bank decline the shopper; the session stays open for another try."""
        with self._lock:
            session = self._open(reference)
            intent, charge = self._attempt(session, method, "failed")
            error = stripe_objects.last_payment_error(charge["id"], code)
            charge["outcome"]["reason"] = code
            charge.update(failure_code=error["code"], failure_message=error["message"])
            intent.update(payment_method=None, last_payment_error=error)
            return session

    def expire(self, reference: str) -> Json:
        """Let the session's time run out; return the session."""
        with self._lock:
            return self._expired(self._open(reference))

    def dispute(
        self,
        reference: str,
        units: int | None = None,
        due_by: int | None = None,
        reason: str = "fraudulent",
    ) -> Json:
        """Let the shopper's bank dispute the charge; return the dispute."""
        with self._lock:
            charge, created = self.charge_of(reference), int(self.now())
            dispute_id = f"du_{uuid.uuid4().hex}"
            self.disputes[dispute_id] = stripe_objects.dispute(
                dispute_id,
                created=created,
                charge=charge,
                amount=charge["amount"] if units is None else units,
                due_by=created + 7 * A_DAY if due_by is None else due_by,
                reason=reason,
            )
            charge["disputed"] = True
            return self.disputes[dispute_id]

    def set_dispute_status(self, dispute_id: str, status: str) -> Json:
        """Let the bank decide on a dispute, or let the shop answer it."""
        refundable = status == "won" or status.startswith("warning_")
        self.disputes[dispute_id].update(status=status, is_charge_refundable=refundable)
        return self.disputes[dispute_id]

    # The dashboard

    def open_review(self, reference: str) -> Json:
        """Let a rule of Radar ask for a review by hand; return the review."""
        with self._lock:
            charge = self.charge_of(reference)
            review = stripe_objects.review(
                f"prv_{uuid.uuid4().hex[:24]}",
                created=int(self.now()),
                charge=charge,
            )
            self.reviews[review["id"]] = review
            for subject in (charge, self.intents[charge["payment_intent"]]):
                subject["review"] = review["id"]
            return review

    def approve(self, reference: str) -> Json:
        """Let staff approve a payment under review; return the review."""
        with self._lock:
            review = self.reviews[self.charge_of(reference)["review"]]
            review.update(open=False, reason="approved", closed_reason="approved")
            return review

    def refund_in_dashboard(self, reference: str, units: int | None = None) -> Json:
        """Let staff refund in Stripe's dashboard; return the refund."""
        with self._lock:
            return self._refund(self.charge_of(reference), units, "requested_by_customer", {})

    def finish_refund(self, refund_id: str, status: RefundStatus) -> Json:
        """Let a refund reach its end; one that succeeded may still fail later."""
        with self._lock:
            refund = self.refunds[refund_id]
            refund["status"] = status
            if status == "failed":
                refund.update(
                    failure_reason="expired_or_canceled_card",
                    failure_balance_transaction=f"txn_{uuid.uuid4().hex}",
                )
            self._count_refunds(self.charges[refund["charge"]])
            return refund

    def restrict(self, key: str, permissions: Collection[str]) -> None:
        """Add a restricted key with such permissions as `refund_read`; a permission to write lets
        it read too.
        """
        self.keys[key] = frozenset(permissions) | {
            name.replace("_write", "_read") for name in permissions
        }

    def add_endpoint(
        self,
        url: str,
        enabled_events: list[str],
        *,
        status: str = "enabled",
        api_version: str | None = API_VERSION,
    ) -> Json:
        """Register a webhook endpoint; return it."""
        endpoint = stripe_objects.webhook_endpoint(
            f"we_{uuid.uuid4().hex}",
            created=int(self.now()),
            url=url,
            enabled_events=enabled_events,
            api_version=api_version,
            livemode=self.livemode,
        )
        self.endpoints.append({**endpoint, "status": status})
        return self.endpoints[-1]

    # The network and the search index

    def lose_next(self, operation: str) -> None:
        """Do the work of the next such request, and close the connection without an answer."""
        self._faults[operation].append(Fault("lose"))

    def drop_next(self, operation: str) -> None:
        """Close the connection of the next such request, and do nothing."""
        self._faults[operation].append(Fault("drop"))

    def html_next(self, operation: str, status: int = 200) -> None:
        """Do the work of the next such request, and answer with a page of a proxy."""
        self._faults[operation].append(Fault("html", status=status))

    def alter_next(self, operation: str, change: Callable[[Json], None]) -> None:
        """Change the answer to the next such request."""
        self._faults[operation].append(Fault("alter", change=change))

    def clear_faults(self) -> None:
        """Let nothing befall any request."""
        self._faults.clear()

    def slow_next(self, operation: str, seconds: float) -> None:
        """Do the work of the next such request, and answer late."""
        self._faults[operation].append(Fault("slow", seconds=seconds))

    def fail_next(self, operation: str, status: int, *, stored: bool = False) -> None:
        """Answer the next such request with this error; a stored one is repeated for its
        idempotency key.
        """
        self._faults[operation].append(Fault("fail", status=status, stored=stored))

    def break_next(self, operation: str) -> None:
        """Do the work of the next such request, and answer with half of the JSON."""
        self._faults[operation].append(Fault("break"))

    def hold_search(self) -> None:
        """Keep the search index as it is, as Stripe's index lags behind."""
        self.search_held = True
        self._indexed = {name: dict(intent) for name, intent in self.intents.items()}

    def release_search(self) -> None:
        """Let the search index catch up."""
        self.search_held = False

    # Webhooks

    def event(
        self,
        kind: str,
        reference: str,
        *,
        refund: str | None = None,
        **changes: Any,
    ) -> Json:
        """Return an event about a payment as it is now; `changes` replace fields of its object."""
        with self._lock:
            session = self.session_of(reference)
            if kind.startswith("checkout.session."):
                subject = session
            elif kind.startswith("charge.dispute."):
                subject = self._newest(self.disputes, session)
            elif kind.startswith("review."):
                subject = self._newest(self.reviews, session)
            elif kind.startswith(("refund.", "charge.refund.")):
                subject = self.refunds[refund] if refund else self._newest(self.refunds, session)
            elif kind.startswith("charge."):
                subject = self.charge_of(reference)
            elif kind.startswith("payment_intent."):
                subject = self.intents[session["payment_intent"]]
            else:
                raise ValueError(f"No event of type {kind} is known here.")
            return stripe_objects.event(
                f"evt_{uuid.uuid4().hex}",
                kind=kind,
                created=int(self.now()),
                subject=copy.deepcopy({**subject, **changes}),
                api_version=API_VERSION,
                livemode=self.livemode,
            )

    def signed(
        self,
        event: Json,
        secret: str | Sequence[str],
        timestamp: int | None = None,
        schemes: Sequence[str] = ("v1",),
    ) -> tuple[dict[str, str], bytes]:
        """Return headers and body of a webhook; during a change of secrets there is a signature for
        each.
        """
        stamp = int(self.now()) if timestamp is None else timestamp
        body = json.dumps(event, indent=2).encode()
        secrets = [secret] if isinstance(secret, str) else secret
        signatures = [
            hmac.new(each.encode(), b"%d." % stamp + body, hashlib.sha256).hexdigest()
            for each in secrets
        ]
        signature = ",".join(
            [f"t={stamp}", *(f"{scheme}={each}" for scheme in schemes for each in signatures)],
        )
        return {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": "Stripe/1.0",
            "Stripe-Signature": signature,
        }, body

    # The stored objects

    def session_of(self, reference: str) -> Json:
        """Return the newest session of a reference, or the session with this id."""
        for session in reversed(self.sessions.values()):
            if reference in {
                session["id"],
                session["client_reference_id"],
                session["metadata"].get("reference"),
            }:
                return session
        raise KeyError(reference)

    def charge_of(self, reference: str) -> Json:
        """Return the latest charge of a payment."""
        return self.charges[
            self.intents[self.session_of(reference)["payment_intent"]]["latest_charge"]
        ]

    def requests(self, operation: str) -> list[Request]:
        """Return the requests of an operation, oldest first."""
        return [request for request in self.journal if request.operation == operation]

    def _newest(self, objects: dict[str, Json], session: Json) -> Json:
        return next(
            each
            for each in reversed(objects.values())
            if each["payment_intent"] == session["payment_intent"]
        )

    def _open(self, reference: str) -> Json:
        session = self.session_of(reference)
        if session["status"] != "open":
            raise ValueError(f"The session of {reference} is {session['status']}.")
        return session

    def _processing(self, reference: str) -> tuple[Json, Json, Json]:
        session = self.session_of(reference)
        intent = self.intents[session["payment_intent"]]
        if intent["status"] != "processing":
            raise ValueError(f"The payment of {reference} is {intent['status']}.")
        return session, intent, self.charges[intent["latest_charge"]]

    def _waiting(self, session: Json) -> Json:
        """Return the payment intent of a voucher that is still to be paid."""
        intent = self.intents[session["payment_intent"] or ""]
        if intent["status"] != "requires_action":
            raise ValueError(f"The voucher of {session['id']} is {intent['status']}.")
        return intent

    def _intent(self, session: Json, method: str) -> Json:
        """Return the session's payment intent, which the first attempt creates."""
        created, offered = int(self.now()), session["payment_method_types"]
        if method not in offered:
            raise ValueError(f"The page offers {', '.join(offered)}, not {method}.")
        if session["payment_intent"] is None:
            intent_id = f"pi_{uuid.uuid4().hex[:24]}"
            self.intents[intent_id] = stripe_objects.payment_intent(
                intent_id,
                created=created,
                session=session,
                metadata=self._intent_metadata[session["id"]],
            )
            session["payment_intent"] = intent_id
        intent = self.intents[session["payment_intent"]]
        intent["payment_method"] = f"pm_{uuid.uuid4().hex[:24]}"
        return intent

    def _attempt(self, session: Json, method: str | None, status: str) -> tuple[Json, Json]:
        created, offered = int(self.now()), session["payment_method_types"]
        method = method or (
            "sepa_debit" if status == "pending" and "sepa_debit" in offered else offered[0]
        )
        intent = self._intent(session, method)
        charge_id = f"ch_{uuid.uuid4().hex[:24]}"
        self.charges[charge_id] = stripe_objects.charge(
            charge_id,
            created=created,
            intent=intent,
            status=status,
            details=stripe_objects.payment_method_details(method),
        )
        intent["latest_charge"] = charge_id
        return intent, self.charges[charge_id]

    def _arrived(self, session: Json, intent: Json, charge: Json) -> None:
        intent.update(
            status="succeeded",
            amount_received=charge["amount"],
            last_payment_error=None,
            next_action=None,
        )
        moved = stripe_objects.balance_transaction(charge, self.settles_in)
        self.balance_transactions[moved["id"]] = moved
        charge["balance_transaction"] = moved["id"]
        session["payment_status"] = "paid"
        self._close(session, "complete")

    def _close(self, session: Json, status: str) -> None:
        session.update(status=status, url=None)
        if status == "complete":
            session["customer_details"] = stripe_objects.customer_details(
                session["customer_email"] or "jenny@example.com",
            )

    def _expired(self, session: Json) -> Json:
        self._close(session, "expired")
        if session["payment_intent"]:
            intent = self.intents[session["payment_intent"]]
            intent.update(
                status="canceled",
                canceled_at=int(self.now()),
                cancellation_reason="automatic",
            )
        return session

    def _refund(
        self,
        charge: Json,
        units: int | None,
        reason: str | None,
        metadata: dict[str, str],
    ) -> Json:
        left = charge["amount"] - charge["amount_refunded"]
        if not left:
            raise Refusal(
                f"Charge {charge['id']} has already been refunded.",
                code="charge_already_refunded",
                stored=True,
            )
        amount = left if units is None else units
        if amount <= 0:
            raise Refusal(
                "Invalid positive integer",
                code="parameter_invalid_integer",
                param="amount",
            )
        if amount > left:
            raise Refusal(
                f"Refund amount ({amount} {charge['currency']}) is greater than unrefunded amount "
                f"on charge ({left} {charge['currency']})",
                param="amount",
                stored=True,
            )
        if any(
            each["charge"] == charge["id"] and not each["is_charge_refundable"]
            for each in self.disputes.values()
        ):
            raise Refusal(
                f"Charge {charge['id']} has been charged back; cannot issue a refund.",
                code="charge_disputed",
                stored=True,
            )
        outcome, self.next_refund = self.next_refund, "succeeded"
        if outcome == "refuse":
            raise Refusal(
                "Insufficient funds in your Stripe balance to refund this amount.",
                code="balance_insufficient",
                stored=True,
            )
        refund_id = f"re_{uuid.uuid4().hex[:24]}"
        self.refunds[refund_id] = stripe_objects.refund(
            refund_id,
            created=int(self.now()),
            charge=charge,
            amount=amount,
            status=outcome,
            reason=reason,
            metadata=metadata,
        )
        return self.finish_refund(refund_id, outcome)

    def _count_refunds(self, charge: Json) -> None:
        mine = (refund for refund in self.refunds.values() if refund["charge"] == charge["id"])
        charge["amount_refunded"] = sum(
            refund["amount"] for refund in mine if refund["status"] in COUNTED
        )
        charge["refunded"] = charge["amount_refunded"] == charge["amount"]

    # The API

    def answer(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
    ) -> Answer | None:
        """Answer a request; None means that the connection closes without an answer."""
        url = urlsplit(target)
        parameters = nested(
            parse_qsl(url.query if method == "GET" else body.decode(), keep_blank_values=True),
        )
        found = next(
            (
                (one, match)
                for one, route in ROUTES
                if one.method == method and (match := route.fullmatch(url.path))
            ),
            None,
        )
        shown = {name: value for name, value in headers.items() if name != "authorization"}
        operation, subject = (found[0], "".join(found[1].groups())) if found else (None, "")
        with self._lock:
            self.journal.append(
                Request(operation.name if operation else "", method, url.path, parameters, shown),
            )
            faults = self._faults[operation.name] if operation else None
            fault = faults.popleft() if faults else None
            if fault and fault.kind == "drop":
                return None
            answer = self._result(method, url.path, operation, subject, parameters, headers, fault)
        answer.headers["Request-Id"] = f"req_{uuid.uuid4().hex[:14]}"
        answer.headers["Stripe-Version"] = headers.get("stripe-version", API_VERSION)
        if fault and fault.kind == "slow":
            time.sleep(fault.seconds)
        if fault and fault.kind == "break":
            answer.body = answer.body[: len(answer.body) // 2]
        if fault and fault.kind == "html":
            answer.body = b"<html><body>Bad gateway</body></html>"
            answer.status = fault.status
        return None if fault and fault.kind == "lose" else answer

    def _result(
        self,
        method: str,
        path: str,
        operation: Operation | None,
        subject: str,
        parameters: Json,
        headers: dict[str, str],
        fault: Fault | None,
    ) -> Answer:
        key = headers.get("idempotency-key") if method == "POST" else None
        try:
            self._authorize(headers, operation.permission if operation else "")
            if operation is None:
                raise Refusal(f"Unrecognized request URL ({method}: {path}).", status=404)
            if key and key in self._answers:
                return self._replayed(key, (path, parameters))
            if fault and fault.kind == "fail":
                refusal = FAILURES[fault.status]()
                refusal.stored = refusal.stored or fault.stored
                raise refusal
            known = operation.parameters.split()
            for name in parameters:
                if name not in known:
                    raise Refusal(
                        f"Received unknown parameter: {name}",
                        code="parameter_unknown",
                        param=name,
                    )
            self._expire_what_is_due()
            result = getattr(self, f"_{operation.name}")(subject, parameters)
            content = self._expanded(result, parameters.get("expand", []), headers)
            if fault and fault.change:
                content = copy.deepcopy(content)
                fault.change(content)
            answer, kept = Answer(200, json.dumps(content, indent=2).encode()), True
        except Refusal as refusal:
            answer, kept = (
                Answer(refusal.status, json.dumps({"error": refusal.error}, indent=2).encode()),
                refusal.stored,
            )
        if key:
            answer.headers["Idempotency-Key"] = key
            if kept:
                self._answers[key] = ((path, parameters), Answer(answer.status, answer.body))
        return answer

    def _authorize(self, headers: dict[str, str], permission: str) -> None:
        key = headers.get("authorization", "").removeprefix("Bearer ")
        if not key:
            raise Refusal("You did not provide an API key.", status=401)
        hidden = f"{key[:8]}{'*' * 12}{key[-4:]}"
        if key not in self.keys:
            raise Refusal(f"Invalid API Key provided: {hidden}", status=401)
        permissions = self.keys[key]
        if permission and permissions is not None and permission not in permissions:
            raise Refusal(
                f"The provided key '{hidden}' does not have the required permissions for this "
                "endpoint on account "
                f"'{self.account['id']}'. Having the 'rak_{permission}' permission would allow "
                "this request to continue.",
                status=403,
                code="more_permissions_required",
            )

    def _replayed(self, key: str, asked: tuple[str, Json]) -> Answer:
        before, stored = self._answers[key]
        if before != asked:
            raise Refusal(
                "Keys for idempotent requests can only be used with the same parameters they were "
                "first used with. "
                f"Try using a key other than '{key}' if you meant to execute a different request.",
                kind="idempotency_error",
            )
        return Answer(
            stored.status,
            stored.body,
            {"Idempotency-Key": key, "Idempotent-Replayed": "true"},
        )

    def _expire_what_is_due(self) -> None:
        for session in self.sessions.values():
            if session["status"] == "open" and session["expires_at"] <= self.now():
                self._expired(session)

    def _expanded(self, content: Json, paths: Any, headers: dict[str, str]) -> Json:
        if not isinstance(paths, list):
            raise Refusal("Invalid array", param="expand")
        content = copy.deepcopy(content)
        for path in paths:
            names = path.split(".")
            if len(names) > 4:
                raise Refusal("You cannot expand more than 4 levels of a property.", param="expand")
            if content["object"] in {"list", "search_result"}:
                if names[0] != "data":
                    raise Refusal(f"This property cannot be expanded ({path}).", param="expand")
                for each in content["data"]:
                    self._expand(each, names[1:], headers)
            else:
                self._expand(content, names, headers)
        return content

    def _expand(self, place: Json, names: list[str], headers: dict[str, str]) -> None:
        if not names:
            return
        name, *rest = names
        if name not in EXPANDABLE.get(place["object"], set()):
            raise Refusal(f"This property cannot be expanded ({name}).", param="expand")
        self._authorize(headers, EXPANDING.get(name, "charge_read"))
        if name == "refunds" and "refunds" not in place:
            mine = [
                refund
                for refund in reversed(self.refunds.values())
                if refund["charge"] == place["id"]
            ]
            copies = copy.deepcopy(mine[:10])
            place["refunds"] = stripe_objects.listed(
                copies,
                f"/v1/charges/{place['id']}/refunds",
                has_more=len(mine) > 10,
            )
        elif isinstance(place[name], str):
            known = {
                "payment_intent": self.intents,
                "balance_transaction": self.balance_transactions,
            }
            place[name] = copy.deepcopy(known.get(name, self.charges)[place[name]])
        if name == "refunds":
            for refund in place[name]["data"] if rest[:1] == ["data"] else []:
                self._expand(refund, rest[1:], headers)
        elif place[name] is not None:
            self._expand(place[name], rest, headers)

    def _page(self, objects: dict[str, Json], parameters: Json, path: str, noun: str) -> Json:
        found = [each for each in reversed(objects.values()) if self._matches(each, parameters)]
        limit = _integer(parameters.get("limit", 10), "limit")
        if not 1 <= limit <= 100:
            raise Refusal(
                "Limit must be between 1 and 100.",
                code="parameter_invalid_integer",
                param="limit",
            )
        before = parameters.get("ending_before")
        cursor = parameters.get("starting_after") or before
        if cursor and cursor not in objects:
            raise Refusal(
                f"No such {noun}: '{cursor}'",
                code="resource_missing",
                param="starting_after",
            )
        if cursor:
            order = list(objects)
            newer = [each for each in found if order.index(each["id"]) > order.index(cursor)]
            if before:
                return stripe_objects.listed(newer[-limit:], path, has_more=len(newer) > limit)
            found = [each for each in found if each not in newer and each["id"] != cursor]
        return stripe_objects.listed(found[:limit], path, has_more=len(found) > limit)

    def _matches(self, each: Json, parameters: Json) -> bool:
        created = parameters.get("created", {})
        bounds = created if isinstance(created, dict) else {"gte": created, "lte": created}
        compared: dict[str, Callable[[int], bool]] = {
            "gt": lambda bound: each["created"] > bound,
            "gte": lambda bound: each["created"] >= bound,
            "lt": lambda bound: each["created"] < bound,
            "lte": lambda bound: each["created"] <= bound,
        }
        for name, bound in bounds.items():
            if name not in compared:
                raise Refusal(
                    f"Received unknown parameter: created[{name}]",
                    code="parameter_unknown",
                    param=f"created[{name}]",
                )
            if not compared[name](_integer(bound, f"created[{name}]")):
                return False
        return all(
            each[name] == parameters[name]
            for name in ("payment_intent", "charge", "status")
            if name in parameters
        )

    def _found(
        self,
        objects: dict[str, Json],
        noun: str,
        identifier: str,
        param: str,
        status: int = 404,
    ) -> Json:
        if identifier not in objects:
            raise Refusal(
                f"No such {noun}: '{identifier}'",
                status=status,
                code="resource_missing",
                param=param,
            )
        return objects[identifier]

    # The operations

    def _create_session(self, _: str, parameters: Json) -> Json:
        if parameters.get("mode") != "payment":
            raise (
                _missing("mode")
                if "mode" not in parameters
                else Refusal("This fake knows the mode payment only.", param="mode")
            )
        if "success_url" not in parameters:
            raise _missing("success_url")
        currency, amount = self._total(parameters.get("line_items"))
        created = int(self.now())
        expires_at = _integer(parameters.get("expires_at", created + A_DAY), "expires_at")
        if expires_at < created + HALF_AN_HOUR:
            raise Refusal(
                "The `expires_at` timestamp must be at least 30 minutes from Checkout Session "
                "creation.",
                param="expires_at",
            )
        if expires_at > created + A_DAY:
            raise Refusal(
                "The `expires_at` timestamp must be less than 24 hours from Checkout Session "
                "creation.",
                param="expires_at",
            )
        if len(parameters.get("client_reference_id", "")) > 200:
            raise Refusal(
                "Invalid string: must be at most 200 characters",
                param="client_reference_id",
            )
        if not re.fullmatch(
            r"[^@\s]+@[^@\s]+\.[^@\s]+",
            parameters.get("customer_email", "a@example.com"),
        ):
            raise Refusal(
                f"Invalid email address: {parameters['customer_email']}",
                code="email_invalid",
                param="customer_email",
            )
        if parameters.get("locale", "auto") not in LOCALES.split():
            raise Refusal(
                f"Invalid locale: must be one of {', '.join(LOCALES.split())}",
                param="locale",
            )
        _metadata(parameters.get("metadata", {}))
        self._check_methods(parameters)
        session_id = (
            f"cs_{'live' if self.livemode else 'test'}_a1{uuid.uuid4().hex}{uuid.uuid4().hex[:24]}"
        )
        self._intent_metadata[session_id] = _metadata(
            parameters.get("payment_intent_data", {}).get("metadata", {}),
        )
        self.sessions[session_id] = stripe_objects.session(
            session_id,
            created=created,
            expires_at=expires_at,
            amount=amount,
            currency=currency,
            methods=self._methods(parameters),
            parameters=parameters,
            livemode=self.livemode,
            page=f"{self.pages}/c/pay/{session_id}",
        )
        return self.sessions[session_id]

    def _check_methods(self, parameters: Json) -> None:
        """Refuse a named payment method that lacks something, or cannot take the payment."""
        allowed = parameters.get("allowed_payment_method_types", [])
        given = parameters.get("payment_method_options", {})
        if "wechat_pay" in allowed and given.get("wechat_pay", {}).get("client") != "web":
            raise _missing("payment_method_options[wechat_pay][client]")
        data = parameters.get("payment_intent_data", {})
        if "statement_descriptor" in data and ("card" in allowed or not allowed):
            raise Refusal(
                "The `statement_descriptor` parameter is not supported for the payment method "
                "type `card`.",
                param="payment_intent_data[statement_descriptor]",
            )
        for name in ("statement_descriptor", "statement_descriptor_suffix"):
            if not re.fullmatch(
                r"(?=.*[A-Za-z])(?:(?![<>\\'\"*])[ -~]){1,22}", data.get(name, "A")
            ):
                raise Refusal(
                    "The statement descriptor must be at most 22 characters, with a letter.",
                    param=f"payment_intent_data[{name}]",
                )

    def _methods(self, parameters: Json) -> list[str]:
        allowed = parameters.get("allowed_payment_method_types", self.methods)
        methods = [
            each
            for each in self.methods
            if each in allowed and each not in parameters.get("excluded_payment_method_types", [])
        ]
        if not methods:
            raise Refusal(
                "No valid payment method types for this Checkout Session.",
                param="allowed_payment_method_types",
            )
        return methods

    def _total(self, items: Any) -> tuple[str, int]:
        if not isinstance(items, list) or not items:
            raise _missing("line_items")
        currencies, total = set(), 0
        for index, item in enumerate(items):
            data, path = item.get("price_data", {}), f"line_items[{index}]"
            for name in ("currency", "unit_amount", "product_data"):
                if name not in data:
                    raise _missing(f"{path}[price_data][{name}]")
            if not data["product_data"].get("name"):
                raise _missing(f"{path}[price_data][product_data][name]")
            if "quantity" not in item:
                raise _missing(f"{path}[quantity]")
            currencies.add(data["currency"].lower())
            total += _integer(data["unit_amount"], f"{path}[price_data][unit_amount]") * _integer(
                item["quantity"],
                f"{path}[quantity]",
            )
        if len(currencies) > 1:
            raise Refusal("All line items must have the same currency.", param="line_items")
        currency = currencies.pop()
        if not re.fullmatch("[a-z]{3}", currency):
            raise Refusal(
                f"Invalid currency: {currency}.",
                param="line_items[0][price_data][currency]",
            )
        if total < MINIMA.get(currency, 1):
            raise Refusal(
                "The Checkout Session's total amount due must add up to at least "
                f"{MINIMA.get(currency, 1)} {currency}",
                code="amount_too_small",
            )
        if total > LARGEST:
            raise Refusal(
                f"The Checkout Session's total amount due must be no more than {LARGEST} "
                f"{currency}",
                code="amount_too_large",
            )
        multiple = 10 if currency in THREE_DECIMALS else 100 if currency in WHOLE_UNITS else 1
        if total % multiple:
            raise Refusal(
                f"Invalid amount: {currency} must be a multiple of {multiple}.",
                param="line_items[0][price_data][unit_amount]",
            )
        return currency, total

    def _list_sessions(self, _: str, parameters: Json) -> Json:
        return self._page(self.sessions, parameters, "/v1/checkout/sessions", "checkout.session")

    def _retrieve_session(self, subject: str, _: Json) -> Json:
        return self._found(self.sessions, "checkout.session", subject, "session")

    def _expire_session(self, subject: str, _: Json) -> Json:
        session = self._found(self.sessions, "checkout.session", subject, "session")
        if session["status"] != "open":
            raise Refusal(
                'Only Checkout Sessions with a status in ["open"] can be expired. '
                f"This Checkout Session has a status of `{session['status']}`.",
            )
        return self._expired(session)

    def _retrieve_intent(self, subject: str, _: Json) -> Json:
        return self._found(self.intents, "payment_intent", subject, "intent")

    def _search_intents(self, _: str, parameters: Json) -> Json:
        query = re.fullmatch(
            r"""metadata\[(['"])(.+?)\1\]:(['"])(.*?)\3""",
            parameters.get("query", ""),
        )
        if query is None:
            raise Refusal("We were unable to parse your search query.", param="query")
        limit = _integer(parameters.get("limit", 10), "limit")
        intents = self._indexed if self.search_held else self.intents
        found = [
            intent
            for intent in reversed(intents.values())
            if intent["metadata"].get(query[2]) == query[4]
        ]
        page = stripe_objects.listed(
            found[:limit],
            "/v1/payment_intents/search",
            has_more=len(found) > limit,
        )
        return {**page, "object": "search_result", "next_page": None}

    def _create_refund(self, _: str, parameters: Json) -> Json:
        if "charge" in parameters:
            charge = self._found(self.charges, "charge", parameters["charge"], "charge", 400)
        elif "payment_intent" in parameters:
            intent = self._found(
                self.intents,
                "payment_intent",
                parameters["payment_intent"],
                "payment_intent",
                400,
            )
            if intent["status"] != "succeeded":
                raise Refusal(
                    f"This PaymentIntent ({intent['id']}) does not have a successful charge to "
                    "refund.",
                    stored=True,
                )
            charge = self.charges[intent["latest_charge"]]
        else:
            raise Refusal(
                "One of the following params should be provided for this request: payment_intent "
                "or charge.",
            )
        reason = parameters.get("reason")
        if reason is not None and reason not in REASONS:
            raise Refusal(
                f"Invalid reason: must be one of {', '.join(sorted(REASONS))}",
                param="reason",
            )
        units = _integer(parameters["amount"], "amount") if "amount" in parameters else None
        return self._refund(charge, units, reason, _metadata(parameters.get("metadata", {})))

    def _list_refunds(self, _: str, parameters: Json) -> Json:
        return self._page(self.refunds, parameters, "/v1/refunds", "refund")

    def _retrieve_refund(self, subject: str, _: Json) -> Json:
        return self._found(self.refunds, "refund", subject, "id")

    def _list_disputes(self, _: str, parameters: Json) -> Json:
        return self._page(self.disputes, parameters, "/v1/disputes", "dispute")

    def _retrieve_review(self, subject: str, _: Json) -> Json:
        return self._found(self.reviews, "review", subject, "id")

    def _retrieve_account(self, *_: object) -> Json:
        return self.account

    def _list_endpoints(self, _: str, parameters: Json) -> Json:
        return self._page(
            {each["id"]: each for each in self.endpoints},
            parameters,
            "/v1/webhook_endpoints",
            "webhook_endpoint",
        )

    def _retrieve_balance(self, *_: object) -> Json:
        return stripe_objects.balance(livemode=self.livemode)


def _handler(fake: FakeStripe) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # head and body leave together; the answer would wait for an acknowledgement otherwise
        wbufsize = 1 << 16

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = fake.answer(self.command, self.path, headers, body)
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in {
                "Content-Type": "application/json",
                **answer.headers,
                "Content-Length": str(len(answer.body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names are the standard library's

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
