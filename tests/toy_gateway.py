"""A toy gateway unlike the built-in one: refunds that pend, ids of refunds, and signed
notifications to one address of an account.

The emulator counts in minor units and knows nothing of Tillgate; the plugin translates; the driver
connects the conformance kit to both.
"""

from __future__ import annotations

import hmac
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Self, TypeVar

from tillgate import (
    Account,
    CreatedPayment,
    Method,
    NotSent,
    OrderNotFound,
    OutcomeUnknown,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Refused,
    SignatureMismatch,
    Transaction,
    TransactionStatus,
    WrongCredentials,
)
from tillgate.gateways import GatewayProfile
from tillgate.hooks import (
    DisputeStatus,
    Hint,
    RefundOutcome,
    ReportedDispute,
    ReportedRefund,
    hookimpl,
)
from tillgate.money import decimals_of
from tillgate.testing.gateway_conformance.spoiling import PROVE_NOTHING
from tillgate.testing.gateway_driver import (
    Fault,
    GatewayDriver,
    Held,
    NotificationKind,
    Operation,
    SentNotification,
)

URL = "https://toy.example"
SECRET = "the-secret-of-the-toy"  # of a toy
TOY = GatewayProfile(name="toy", currencies=("USD", "JPY", "KWD"))
ACCOUNT = Account(
    base_url=URL,
    merchant_no="T-1",
    token=SECRET,
    dialect=TOY,
)
_STATUSES = {
    "open": TransactionStatus.PENDING,
    "under way": TransactionStatus.PROCESSING,
    "paid": TransactionStatus.PAID,
    "declined": TransactionStatus.FAILED,
    "expired": TransactionStatus.CLOSED,
}
_METHODS = {"alipay": "Alipay", "beads": "Beads", "shells": "Shells"}
_T = TypeVar("_T")


def signed(secret: str, body: bytes) -> dict[str, str]:
    """Return the headers of a notification."""
    return {"X-Toy-Signature": hmac.new(secret.encode(), body, "sha256").hexdigest()}


# The emulator -------------------------------------------------------------------------------------


class Denied(Exception):
    """The toy refuses."""


@dataclass
class Paid:
    """A payment of the toy."""

    number: str
    units: int
    currency: str
    closes_at: float
    back: str
    state: str = "open"
    refunds: dict[str, dict[str, Any]] = field(default_factory=dict)
    disputes: tuple[ReportedDispute, ...] = ()
    manual_review: str | None = None


class Toy:
    """The whole gateway: payments by the merchant's names of them, and the faults of the next
    calls.
    """

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.seconds = 0.0
        self.payments: dict[str, Paid] = {}
        self.lost: set[str] = set()
        self.dropped: set[str] = set()
        self.slow: dict[str, float] = {}
        self.next_refund = "succeeded"

    def call(self, operation: str, seconds: float, work: Callable[..., _T], *arguments: Any) -> _T:
        """Do the work and bring the answer, unless a fault loses or delays it."""
        self.calls[operation] += 1
        if operation in self.dropped:
            self.dropped.discard(operation)
            raise TimeoutError("nothing arrived")
        answer = work(*arguments)
        delay = self.slow.pop(operation, 0)
        time.sleep(min(delay, seconds))
        if operation in self.lost or delay > seconds:
            self.lost.discard(operation)
            raise TimeoutError("no answer came")
        return answer

    def create(self, name: str, units: int, currency: str, minutes: int, back: str) -> str:
        """Create a payment, and return its number."""
        self.payments[name] = Paid(
            f"toy-{len(self.payments) + 1}",
            units,
            currency,
            self.seconds + minutes * 60,
            back,
        )
        return self.payments[name].number

    def close(self, name: str) -> bool:
        """Close an open payment, and return whether it is closed."""
        payment = self.payments[name]
        if payment.state == "open":
            payment.state = "expired"
        return payment.state in ("expired", "declined")

    def wait(self, seconds: float) -> None:
        """Let time pass, and payment pages close."""
        self.seconds += seconds
        for payment in self.payments.values():
            if payment.state == "open" and self.seconds >= payment.closes_at:
                payment.state = "expired"

    def refund(self, name: str, key: str, units: int, currency: str) -> dict[str, Any]:
        """Refund once per key."""
        payment = self.payments[name]
        if key not in payment.refunds:
            state, self.next_refund = self.next_refund, "succeeded"
            taken = sum(
                one["units"] for one in payment.refunds.values() if one["state"] != "failed"
            )
            if currency != payment.currency:
                raise Denied("the payment is in another currency")
            if payment.state != "paid" or taken + units > payment.units:
                raise Denied("more than was paid")
            payment.refunds[key] = {
                "number": f"{payment.number}-{len(payment.refunds) + 1}",
                "units": units,
                "state": state,
            }
        return payment.refunds[key]


# The plugin ---------------------------------------------------------------------------------------


class ToyPlugin:
    """The plugin: every hook of the gateway's side."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy

    def to_units(self, amount: Decimal, currency: str) -> int:
        return int(amount.scaleb(decimals_of(currency)))

    def from_units(self, units: int, currency: str) -> Decimal:
        return Decimal(units).scaleb(-decimals_of(currency))

    def send(
        self,
        account: Account,
        operation: str,
        reference: str,
        seconds: float | None,
        work: Callable[..., _T],
        *arguments: Any,
    ) -> _T:
        if account.base_url != URL:
            raise NotSent(operation, reference, "no connection was made")
        if account.token.get_secret_value() != SECRET:
            raise WrongCredentials("forbidden", "not a token of the toy", 403)
        try:
            return self.toy.call(
                operation,
                min(seconds or 1e9, account.deadline_seconds),
                work,
                *arguments,
            )
        except KeyError:
            raise OrderNotFound("unknown", "no such payment", 404) from None
        except Denied as error:
            raise Refused("denied", str(error), 402) from None
        except TimeoutError:
            raise OutcomeUnknown(operation, reference, "no answer came in time") from None

    @hookimpl
    def tillgate_pay(
        self,
        account: Account,
        request: PaymentRequest,
        deadline_seconds: float | None,
    ) -> CreatedPayment:
        asked = (
            self.to_units(request.amount, request.currency),
            request.currency,
            request.timeout,
            request.callback_url,
        )
        number = self.send(
            account,
            "pay",
            request.reference,
            deadline_seconds,
            self.toy.create,
            request.reference,
            *asked,
        )
        return CreatedPayment(
            transaction_no=number,
            payment_url=f"{URL}/pay/{number}",
            reference=request.reference,
            amount=request.amount,
            currency=request.currency,
            settle_currency=None,
            raw={},
        )

    @hookimpl
    def tillgate_query(
        self,
        account: Account,
        reference: str,
        deadline_seconds: float | None,
    ) -> Transaction:
        found = self.send(
            account,
            "query",
            reference,
            deadline_seconds,
            self.toy.payments.__getitem__,
            reference,
        )
        return Transaction(
            reference=reference,
            status=_STATUSES.get(found.state, TransactionStatus.UNRECOGNISED),
            status_text=found.state,
            transaction_no=found.number,
            amount=self.from_units(found.units, found.currency),
            currency=found.currency,
            settle_currency=found.currency,
            raw={},
            disputes=found.disputes,
            manual_review=found.manual_review,
            refunds=tuple(
                ReportedRefund(
                    amount=self.from_units(one["units"], found.currency),
                    refund_no=one["number"],
                    refund_id=key,
                    outcome=self.outcome(one),
                )
                for key, one in found.refunds.items()
            ),
        )

    def outcome(self, refund: Mapping[str, Any]) -> RefundOutcome:
        return RefundOutcome(refund["state"])

    def key(self, request: RefundRequest) -> str:
        return str(request.refund_id)

    @hookimpl
    def tillgate_refund(self, account: Account, request: RefundRequest) -> Refunded:
        units = self.to_units(request.amount, request.currency)
        done = self.send(
            account,
            "refund",
            request.reference,
            None,
            self.toy.refund,
            request.reference,
            self.key(request),
            units,
            request.currency,
        )
        return self.refunded(request, done)

    @hookimpl
    def tillgate_query_refund(self, account: Account, request: RefundRequest) -> Refunded:
        refunds = self.toy.payments[request.reference].refunds
        return self.refunded(
            request,
            self.send(
                account,
                "query",
                request.reference,
                None,
                refunds.__getitem__,
                self.key(request),
            ),
        )

    def refunded(self, request: RefundRequest, done: Mapping[str, Any]) -> Refunded:
        return Refunded(
            reference=request.reference,
            amount=request.amount,
            ret_msg="",
            outcome=self.outcome(done),
            refund_no=done["number"],
        )

    @hookimpl
    def tillgate_close(self, account: Account, reference: str) -> bool:
        return self.send(account, "close", reference, None, self.toy.close, reference)

    @hookimpl
    def tillgate_payment_methods(self, account: Account) -> Sequence[Method]:
        return [
            Method(code=code, label=label, currencies=account.taken_currencies)
            for code, label in _METHODS.items()
        ]

    @hookimpl
    def tillgate_read_notification(
        self,
        account: Account,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Sequence[Hint]:
        expected = signed(account.token.get_secret_value(), body)["X-Toy-Signature"]
        if not hmac.compare_digest(headers.get("X-Toy-Signature", ""), expected):
            raise SignatureMismatch("the notification is not the toy's")
        return [Hint(reference=json.loads(body)["name"])]


# The driver ---------------------------------------------------------------------------------------


class ToyDriver(GatewayDriver):
    """Connects the conformance kits to the toy."""

    plugin = "toy"
    method = "beads"
    other_method = "shells"
    is_late = False

    def __enter__(self) -> Self:
        self.toy = Toy()
        self.plugin_object = ToyPlugin(self.toy)
        return self

    def account(self, currency: str | None = None) -> Account | None:
        return ACCOUNT if currency in (None, *ACCOUNT.taken_currencies) else None

    def held(self, reference: str) -> Held | None:
        found = self.toy.payments.get(reference)
        if found is None:
            return None
        one = Decimal(1).scaleb(-decimals_of(found.currency))
        refunds = tuple(
            refund["units"] * one
            for refund in found.refunds.values()
            if refund["state"] != "failed"
        )
        return Held(
            transaction_no=found.number,
            amount=found.units * one,
            currency=found.currency,
            refunds=refunds,
        )

    def pay(self, reference: str) -> str:
        assert self.toy.payments[reference].state != "expired" or self.is_late, "the page is closed"
        self.toy.payments[reference].state = "paid"
        return self.toy.payments[reference].back

    def pay_slowly(self, reference: str) -> None:
        self.toy.payments[reference].state = "under way"

    def decline(self, reference: str) -> None:
        self.toy.payments[reference].state = "declined"

    def expire(self, reference: str) -> None:
        self.toy.payments[reference].state = "expired"

    def fault(self, fault: Fault, operation: Operation, *, times: int = 1) -> None:
        """Play every fault of the network as one: no answer comes."""
        if fault == "lost_request":
            self.toy.dropped.add(operation)
        elif fault in ("lost_response", *PROVE_NOTHING):
            self.toy.lost.add(operation)
        else:
            super().fault(fault, operation, times=times)

    def clear_faults(self) -> None:
        self.toy.lost.clear()
        self.toy.dropped.clear()

    def use_strange_words(self) -> None:
        for payment in self.toy.payments.values():
            payment.state = "quantum" if payment.state == "open" else payment.state

    def answer_slowly(self, operation: Operation, seconds: float) -> None:
        self.toy.slow[operation] = seconds

    def fail_refund(self) -> None:
        self.toy.next_refund = "failed"

    def hold_refund(self) -> None:
        self.toy.next_refund = "pending"

    def finish_refund(self, reference: str, outcome: RefundOutcome) -> None:
        for refund in self.toy.payments[reference].refunds.values():
            if refund["state"] == "pending":
                refund["state"] = str(outcome)

    def refund_in_portal(self, reference: str, amount: Decimal) -> None:
        currency = self.toy.payments[reference].currency
        units = int(amount.scaleb(decimals_of(currency)))
        self.toy.refund(reference, "portal", units, currency)

    def notification(
        self,
        reference: str,
        *,
        forged: bool = False,
    ) -> tuple[Mapping[str, str], bytes]:
        body = json.dumps({"name": reference}).encode()
        return signed("of somebody else" if forged else SECRET, body), body

    # For the scenarios of shops -------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.toy.wait(seconds)

    def notify(
        self,
        reference: str,
        kind: NotificationKind = "payment",
        *,
        status: str = "",
    ) -> Sequence[SentNotification]:
        # they differ in nothing: all name the payment
        return super().notify(reference, "forged" if kind == "forged" else "payment")

    def reverse(self, reference: str) -> None:
        payment = self.toy.payments[reference]
        amount = Decimal(payment.units).scaleb(-decimals_of(payment.currency))
        payment.disputes = (
            ReportedDispute(amount=amount, status=DisputeStatus.OPEN, dispute_no="d-1"),
        )

    def pay_late(self, reference: str) -> None:
        self.is_late = True
        self.pay(reference)

    def references(self) -> Sequence[str]:
        return list(self.toy.payments)

    def received(self, operation: Operation) -> int:
        return self.toy.calls[operation]
