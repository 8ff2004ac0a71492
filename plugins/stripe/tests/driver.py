"""The driver of the gateway conformance kit on the fake Stripe."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Self

from tests.fake_stripe import FakeStripe
from tillgate import Account
from tillgate.hooks import RefundOutcome
from tillgate.testing.gateway_driver import GatewayDriver, Held, Operation
from tillgate_stripe.dialect import from_units

KEY: Final = "sk_test_fake"
SECRETS: Final = ("whsec_of_the_past", "whsec_of_today")
OPERATIONS: Final = {"pay": "create_session", "query": "retrieve_session", "refund": "create_refund"}


def account_at(url: str, **fields: Any) -> Account:
    """Return an account of an emulator."""
    return Account(base_url=url, token=fields.pop("token", KEY), sandbox=True, dialect="stripe", webhook_secrets=SECRETS, **fields)


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
