"""The acts and the checks that the scenarios share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from pydantic import SecretStr

from tillgate import hooks, new_reference
from tillgate.account import Account
from tillgate.lifecycle import Decision, PaymentFacts, PaymentStatus, answer_of, interpret
from tillgate.money import decimals_of
from tillgate.testing.gateway_driver import GatewayDriver, Held, Operation
from tillgate.wire.dialects import RefundOutcome, TransactionStatus
from tillgate.wire.messages import (
    CreatedPayment,
    PaymentRequest,
    Refunded,
    RefundRequest,
    Transaction,
)
from tillgate.wire.methods import Method

TOTALS: Final = {0: Decimal(1250), 2: Decimal("12.50"), 3: Decimal("1.234")}
"""The amount of each scenario, by the decimals of its currency."""
_PARTS: Final = {0: Decimal(500), 2: Decimal("5.05"), 3: Decimal("0.501")}
WRONG_SECRET: Final = "wrong_3m8q6v1x9z4c"  # noqa: S105  # of no account
PATIENCE_SECONDS: Final = 0.5
SLOW_SECONDS: Final = 4.0
_MARGIN_SECONDS: Final = 2.0
CANCELLED: Final = frozenset({TransactionStatus.FAILED, TransactionStatus.CLOSED})


class Headers(Mapping[str, str]):
    """The headers of a notification as the app has them: spelt as they came, found in any case."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._spelt = dict(headers)
        self._found = {name.lower(): text for name, text in headers.items()}

    def __getitem__(self, name: str) -> str:
        return self._found[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spelt)

    def __len__(self) -> int:
        return len(self._spelt)


@dataclass(frozen=True, kw_only=True)
class Payment:
    """A payment that a scenario has created, at the emulator and as the plugin answered."""

    gateway: GatewayDriver
    account: Account
    request: PaymentRequest
    created: CreatedPayment
    is_number_known: bool = True
    """Whether Tillgate knows the transaction number, which a lost answer takes with it."""

    @property
    def number(self) -> str | None:
        """Return the transaction number, where it is known."""
        return self.created.transaction_no if self.is_number_known else None

    @property
    def total(self) -> Decimal:
        """Return the amount of the payment."""
        return self.request.amount

    @property
    def part(self) -> Decimal:
        """Return a part of the amount, less than half of it, with all decimals that the gateway
        takes of the currency.
        """
        method = next(
            one for one in hooks.payment_methods(self.account) if one.code == self.request.method
        )
        return _in_steps(_PARTS[decimals_of(self.request.currency)], method, self.request.currency)

    def asked(self, deadline_seconds: float | None = None) -> Transaction:
        """Query the payment once, by its reference and number, and return the answer as it is."""
        return hooks.query(
            self.account,
            self.request.reference,
            transaction_no=self.number,
            deadline_seconds=deadline_seconds,
            attempts=1,
        )

    def query(self) -> Transaction:
        """Query the payment, and check that the answer is about it."""
        answer = self.asked()
        _expect_seen(self.gateway, "query")
        assert answer.reference == self.request.reference, (
            f"the answer is about {answer.reference!r}, and not {self.request.reference!r}"
        )
        number = held(self.gateway, self.request).transaction_no
        assert answer.transaction_no == number, (
            f"the answer names transaction {answer.transaction_no!r}; the gateway has {number!r}"
        )
        return answer

    def refund_request(self, amount: Decimal, name: str = "1") -> RefundRequest:
        """Return a request for a refund; a name stands for one refund, however often it is asked
        for.
        """
        return RefundRequest(
            reference=self.request.reference,
            amount=amount,
            currency=self.request.currency,
            transaction_no=self.created.transaction_no,
            refund_id=f"{self.request.reference}-{name}",
        )

    def refunds(self) -> tuple[Decimal, ...]:
        """Return the refunds that the gateway holds."""
        return held(self.gateway, self.request).refunds

    def expect_refunds(self, *amounts: Decimal) -> None:
        """Fail unless the gateway holds exactly these refunds."""
        found = sorted(self.refunds())
        assert found == sorted(amounts), (
            f"the gateway holds refunds of {found} instead of {sorted(amounts)}"
        )


@contextmanager
def in_time(what: str) -> Iterator[None]:
    """Fail if a call takes longer than its deadline."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < PATIENCE_SECONDS + _MARGIN_SECONDS, (
        f"the {what} took longer than its deadline"
    )


@contextmanager
def sent_once(gateway: GatewayDriver, operation: Operation) -> Iterator[None]:
    """Fail if a call sends more than one request of an operation, where the driver counts them."""
    before = _received(gateway, operation)
    yield
    sent = _received(gateway, operation) - before
    assert sent <= 1, f"the plugin sent {sent} requests of {operation!r} in one call"


def _received(gateway: GatewayDriver, operation: Operation) -> int:
    try:
        return gateway.received(operation)
    except NotImplementedError:
        return 0


def _expect_seen(gateway: GatewayDriver, operation: Operation) -> None:
    """Fail if the proxy would not play a fault of an operation, since it does not know its
    requests.
    """
    if gateway.proxy is not None:
        gateway.proxy.expect(operation)


def request_for(account: Account, currency: str | None = None) -> PaymentRequest:
    """Return a request for a payment of an account, by a payment method that takes its currency and
    amount.
    """
    currency = currency or account.taken_currencies[0]
    total = TOTALS[decimals_of(currency)]
    amounts = {
        method.code: _in_steps(total, method, currency) for method in hooks.payment_methods(account)
    }
    codes = [
        method.code
        for method in hooks.payment_methods(account)
        if method.fault(amounts[method.code], currency) is None
    ]
    assert codes, f"no payment method of the account takes {currency} {total}"
    return PaymentRequest(
        reference=new_reference("KIT"),
        amount=amounts[codes[0]],
        currency=currency,
        method=codes[0],
        terminal=account.dialect.terminals[0],
        ipn_url="https://shop.example/notification",
        callback_url="https://shop.example/return",
    )


def _in_steps(amount: Decimal, method: Method, currency: str) -> Decimal:
    """Return the most of an amount that a payment method takes."""
    step = dict(method.steps).get(currency)
    return amount - amount % step if step else amount


def any_account(gateway: GatewayDriver) -> Account:
    """Return an account of the emulator."""
    account = gateway.account()
    assert account is not None, "the driver has no account"
    return account


def stranger_of(account: Account) -> Account:
    """Return an account at the same gateway with secrets of no account there."""
    options = {
        name: WRONG_SECRET if isinstance(value, SecretStr) else value
        for name, value in account.options.items()
    }
    return account.model_copy(
        update={"token": WRONG_SECRET, **({"options": options} if options else {})},
    )


def start(
    gateway: GatewayDriver,
    account: Account | None = None,
    currency: str | None = None,
) -> Payment:
    """Create a payment, and compare it with the request."""
    account = account or any_account(gateway)
    request = request_for(account, currency)
    created = hooks.pay(account, request)
    _expect_seen(gateway, "pay")
    assert created.reference == request.reference, (
        f"the answer is about {created.reference!r}, and not {request.reference!r}"
    )
    found = held(gateway, request)
    assert created.transaction_no == found.transaction_no, (
        f"the answer names {created.transaction_no!r}, not {found.transaction_no!r}"
    )
    assert created.amount in (None, request.amount), (
        f"the answer says {created.amount} of {request.amount}"
    )
    assert created.currency in (None, request.currency), (
        f"the answer says {created.currency} of {request.currency}"
    )
    return Payment(gateway=gateway, account=account, request=request, created=created)


def paid(
    gateway: GatewayDriver,
    account: Account | None = None,
    currency: str | None = None,
) -> Payment:
    """Create a payment, pay it, and check that a query says so."""
    payment = start(gateway, account, currency)
    gateway.pay(payment.request.reference)
    expect_paid(payment)
    return payment


def held(gateway: GatewayDriver, request: PaymentRequest) -> Held:
    """Return the gateway's record of a payment, and check that it fits the request."""
    found = gateway.held(request.reference)
    assert found is not None, "the gateway has no payment of this reference"
    assert (found.amount, found.currency) == (request.amount, request.currency), (
        f"{request.currency} {request.amount} were asked for, and the gateway holds "
        f"{found.currency} {found.amount}"
    )
    return found


def expect_paid(payment: Payment) -> None:
    """Fail unless a query says that the payment is paid, with its exact amount and currency."""
    answer = payment.query()
    assert answer.status is TransactionStatus.PAID, (
        f"the shopper paid, and the answer says {answer.status}"
    )
    assert (answer.amount, answer.currency) == (payment.total, payment.request.currency), (
        f"{payment.request.currency} {payment.total} were paid, and the answer says "
        f"{answer.currency} {answer.amount}"
    )
    decision = decided(payment, answer)
    assert decision.status is PaymentStatus.PAID, (
        f"Tillgate would not take the payment for paid: {decision.detail}"
    )


def decided(payment: Payment, answer: Transaction) -> Decision:
    """Return Tillgate's decision about an answer for an open payment."""
    now = datetime.now(UTC)
    facts = PaymentFacts(
        reference=payment.request.reference,
        amount=payment.total,
        currency=payment.request.currency,
        status=PaymentStatus.PENDING,
        expires_at=now + timedelta(hours=1),
        transaction_no=payment.number,
    )
    return interpret(facts, (), answer_of(answer, now, payment.account.dialect))


def refunded(payment: Payment, request: RefundRequest) -> Refunded:
    """Refund, and check that the answer is about this refund, and that it succeeded: immediately,
    or by a query.
    """
    done = hooks.refund(payment.account, request)
    _expect_seen(payment.gateway, "refund")
    assert done.reference == request.reference, (
        f"the answer is about {done.reference!r}, and not {request.reference!r}"
    )
    assert done.amount == request.amount, (
        f"{request.amount} were to be refunded, and the answer says {done.amount}"
    )
    outcome = settled(payment, request, done, RefundOutcome.SUCCEEDED)
    assert outcome is RefundOutcome.SUCCEEDED, (
        f"the refund succeeded, and the answer says {outcome}"
    )
    return done


def settled(
    payment: Payment,
    request: RefundRequest,
    done: Refunded,
    expected: RefundOutcome,
) -> RefundOutcome:
    """Return how a refund ends. A pending one is queried, and the gateway finishes it first if it
    is still pending then.
    """
    if done.outcome is not RefundOutcome.PENDING:
        return done.outcome
    for is_finished in (False, True):
        if is_finished:
            payment.gateway.finish_refund(request.reference, expected)
        found = hooks.query_refund(payment.account, request, done.refund_no)
        assert found is not None, "the plugin cannot query the refund, so a pending one never ends"
        if found.outcome is not RefundOutcome.PENDING:
            return found.outcome
    return RefundOutcome.PENDING
