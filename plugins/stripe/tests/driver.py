"""The driver of the gateway conformance kit on the fake Stripe."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Self

import pytest

from tests.fake_stripe import FakeStripe
from tests.simulator import PYTHON, WEBHOOK_SECRET, Simulator
from tillgate import Account
from tillgate.hooks import RefundOutcome
from tillgate.testing.gateway_driver import GatewayDriver, Held, Operation
from tillgate_stripe.dialect import from_units

KEY: Final = "sk_test_fake"
SECRETS: Final = ("whsec_of_the_past", "whsec_of_today")
NO_FAULTS: Final = "the simulator's answers cannot be lost or delayed"
OPERATIONS: Final = {"pay": "create_session", "query": "retrieve_session", "refund": "create_refund"}


def account_at(url: str, **fields: Any) -> Account:
    """Return an account of an emulator."""
    return Account(**{"base_url": url, "token": KEY, "sandbox": True, "dialect": "stripe", "webhook_secrets": SECRETS, **fields})


class FakeDriver(GatewayDriver):
    """Every capability of the kit, on the fake Stripe."""

    plugin = "stripe"

    def __enter__(self) -> Self:
        self.stripe = FakeStripe().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.stripe.__exit__(*error)

    def account(self, currency: str | None = None) -> Account | None:
        return account_at(self.stripe.url, currencies=(currency,) if currency else ())

    def held(self, reference: str) -> Held | None:
        try:
            session = self.stripe.session_of(reference)
        except KeyError:
            return None
        currency = session["currency"].upper()
        refunds = [one for one in self.stripe.refunds.values() if one["payment_intent"] == session["payment_intent"]]
        return Held(
            transaction_no=session["id"],
            amount=from_units(session["amount_total"], currency),
            currency=currency,
            refunds=tuple(from_units(one["amount"], currency) for one in refunds if one["status"] not in ("failed", "canceled")),
        )

    def pay(self, reference: str) -> None:
        self.stripe.pay(reference)

    def decline(self, reference: str) -> None:
        self.stripe.decline(reference)

    def expire(self, reference: str) -> None:
        self.stripe.expire(reference)

    def lose_answer(self, operation: Operation) -> None:
        self.stripe.lose_next(OPERATIONS[operation])

    def answer_slowly(self, operation: Operation, seconds: float) -> None:
        self.stripe.slow_next(OPERATIONS[operation], seconds)

    def fail_refund(self) -> None:
        self.stripe.next_refund = "failed"

    def hold_refund(self) -> None:
        self.stripe.next_refund = "pending"

    def finish_refund(self, reference: str, outcome: RefundOutcome) -> None:
        session = self.stripe.session_of(reference)
        for refund in [one for one in self.stripe.refunds.values() if one["payment_intent"] == session["payment_intent"]]:
            self.stripe.finish_refund(refund["id"], "succeeded" if outcome is RefundOutcome.SUCCEEDED else "failed")

    def refund_in_portal(self, reference: str, amount: Decimal) -> None:
        self.stripe.refund_in_dashboard(reference, int(amount * 100))

    def notification(self, reference: str, *, forged: bool = False) -> tuple[Mapping[str, str], bytes]:
        event = self.stripe.event("checkout.session.completed", reference)
        return self.stripe.signed(event, "whsec_of_somebody_else" if forged else SECRETS[1])


@functools.cache
def running_simulator() -> Simulator:
    """Start the simulator once for all tests of this process: that takes seconds."""
    if not PYTHON.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("needs .venv-simulator: make setup-simulator")
    simulator = Simulator()
    simulator.start()
    atexit.register(simulator.stop)
    return simulator


class SimulatorDriver(GatewayDriver):
    """What getpaid's simulator can play. Its answers cannot be lost or delayed, and it has no lists."""

    plugin = "stripe"

    def __enter__(self) -> Self:
        self.simulator = running_simulator()
        return self

    def account(self, currency: str | None = None) -> Account | None:
        return account_at(self.simulator.base_url, webhook_secrets=(WEBHOOK_SECRET,), currencies=(currency,) if currency else ())

    def held(self, reference: str) -> Held | None:
        try:
            session = self.simulator.session_of(reference)
        except KeyError:
            return None
        currency = session["currency"].upper()
        made = [one.event for one in self.simulator.received if one.event["type"].startswith("refund.")]
        states = {event["data"]["object"]["id"]: event["data"]["object"] for event in made}
        refunds = [one for one in states.values() if one["payment_intent"] == session["payment_intent"]]
        return Held(
            transaction_no=session["id"],
            amount=from_units(session["amount_total"], currency),
            currency=currency,
            refunds=tuple(from_units(one["amount"], currency) for one in refunds if one["status"] not in ("failed", "canceled")),
        )

    def pay(self, reference: str) -> None:
        self.simulator.pay(reference)

    def decline(self, reference: str) -> None:
        self.simulator.decline(reference)

    def expire(self, reference: str) -> None:
        self.simulator.expire(reference)

    def lose_answer(self, operation: Operation) -> None:
        raise NotImplementedError(NO_FAULTS)

    def answer_slowly(self, operation: Operation, seconds: float) -> None:
        raise NotImplementedError(NO_FAULTS)

    def fail_refund(self) -> None:
        raise NotImplementedError("the simulator refuses no refund on demand")

    def notification(self, reference: str, *, forged: bool = False) -> tuple[Mapping[str, str], bytes]:
        self.simulator.decline(reference)  # after which the payment is as open as before
        sent = next(
            one for one in reversed(self.simulator.received) if one.event["data"]["object"]["metadata"].get("reference") == reference
        )
        return ({**sent.headers, "Stripe-Signature": "t=1,v1=00"} if forged else sent.headers), sent.body
