"""The driver of the gateway conformance kit on the fake Stripe."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Self

import pytest

from stripe_emulator.fake import FakeStripe
from stripe_emulator.objects import Json
from stripe_emulator.simulator import PYTHON, WEBHOOK_SECRET, Simulator, Webhook
from tillgate import Account
from tillgate.hooks import RefundOutcome
from tillgate.testing.faulty_proxy import FaultyProxy
from tillgate.testing.gateway_driver import (
    Fault,
    GatewayDriver,
    Held,
    NotificationKind,
    Operation,
    SentNotification,
)
from tillgate_stripe.profile import from_units

KEY: Final = "sk_test_fake"
SECRETS: Final = ("whsec_of_the_past", "whsec_of_today")
CALLS: Final = {
    "pay": "POST /v1/checkout/sessions",
    "query": "GET /v1/checkout/sessions/[^/]+",
    "refund": "POST /v1/refunds",
}
OPERATIONS: Final = {
    "pay": "create_session",
    "query": "retrieve_session",
    "refund": "create_refund",
}


def account_at(url: str, **fields: Any) -> Account:
    """Return an account of an emulator."""
    return Account(
        **{
            "base_url": url,
            "token": KEY,
            "sandbox": True,
            "dialect": "stripe",
            "webhook_secrets": SECRETS,
            **fields,
        },
    )


class FakeDriver(GatewayDriver):
    """Every capability of the kit, on the fake Stripe."""

    plugin = "stripe"
    method = "checkout"
    other_method = "card"
    declined_by_shops: Mapping[str, str] = {
        **dict.fromkeys(
            ("late_money", "late_money_for_a_released_order"),
            "nobody can pay an expired session of Stripe",
        ),
        "currency_mismatch": "Stripe's answers name no settlement currency",
        "unrecognised_status": "the fake has no strange words",
        "changed_after_paid": "Stripe takes money back by a dispute, which opens a review of its "
        "own",
        "refund_made_elsewhere": "Stripe lists every refund",
        "no_secret_in_logs": "Stripe signs no answer",
    }

    def __enter__(self) -> Self:
        self.stripe = FakeStripe().__enter__()
        self.proxy = FaultyProxy(self.stripe.url, CALLS, ALTERED).start()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.stripe.__exit__(*error)

    def account(self, currency: str | None = None) -> Account | None:
        assert self.proxy is not None
        return account_at(
            self.proxy.url,
            currencies=tuple(dict.fromkeys(("USD", currency or "USD"))),
            methods=(self.method, self.other_method),
        )

    def held(self, reference: str) -> Held | None:
        try:
            session = self.stripe.session_of(reference)
        except KeyError:
            return None
        currency = session["currency"].upper()
        refunds = [
            one
            for one in self.stripe.refunds.values()
            if one["payment_intent"] == session["payment_intent"]
        ]
        return Held(
            transaction_no=session["id"],
            amount=from_units(session["amount_total"], currency),
            currency=currency,
            refunds=tuple(
                from_units(one["amount"], currency)
                for one in refunds
                if one["status"] not in ("failed", "canceled")
            ),
        )

    def pay(self, reference: str) -> str:
        return str(self.stripe.pay(reference)["success_url"])

    def pay_slowly(self, reference: str) -> None:
        self.stripe.pay_with_delay(reference)

    def decline(self, reference: str) -> None:
        """Let a bank debit fail: after a declined card the page would stay open for another."""
        self.stripe.pay_with_delay(reference)
        self.stripe.fail_delayed(reference)

    def expire(self, reference: str) -> None:
        self.stripe.expire(reference)

    def reverse(self, reference: str) -> None:
        self.stripe.dispute(reference)

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
        for refund in [
            one
            for one in self.stripe.refunds.values()
            if one["payment_intent"] == session["payment_intent"]
        ]:
            if refund["status"] == "pending":
                self.stripe.finish_refund(
                    refund["id"],
                    "succeeded" if outcome is RefundOutcome.SUCCEEDED else "failed",
                )

    def refund_in_portal(self, reference: str, amount: Decimal) -> None:
        self.stripe.refund_in_dashboard(reference, int(amount * 100))

    def notification(
        self,
        reference: str,
        *,
        forged: bool = False,
    ) -> tuple[Mapping[str, str], bytes]:
        event = self.stripe.event("checkout.session.completed", reference)
        return self.stripe.signed(event, "whsec_of_somebody_else" if forged else SECRETS[1])

    def notify(
        self,
        reference: str,
        kind: NotificationKind = "payment",
        *,
        status: str = "",
    ) -> Sequence[SentNotification]:
        if kind == "stale":
            event = self.stripe.event(
                "checkout.session.completed",
                reference,
                payment_status=status,
            )
        elif kind == "refund":
            event = self.stripe.event("refund.updated", reference)
        else:
            return super().notify(reference, kind, status=status)
        headers, body = self.stripe.signed(event, SECRETS[1])
        return [SentNotification(headers=headers, body=body)]

    # For the scenarios of shops alone -------------------------------------------------------------

    def is_payment_page(self, url: str) -> bool:
        return url.startswith("https://checkout.stripe.com/")

    def advance(self, seconds: float) -> None:
        """Let time pass for the sessions alone: the plugin's own clock is the machine's."""
        for session in self.stripe.sessions.values():
            for name in ("created", "expires_at"):
                session[name] -= int(seconds)

    def refunded(self, reference: str) -> Decimal:
        session = self.stripe.session_of(reference)
        done = [
            one
            for one in self.stripe.refunds.values()
            if one["payment_intent"] == session["payment_intent"] and one["status"] == "succeeded"
        ]
        return sum(
            (from_units(one["amount"], session["currency"].upper()) for one in done),
            Decimal(0),
        )

    def fault(self, fault: Fault, operation: Operation, *, times: int = 1) -> None:
        name, stripe = OPERATIONS[operation], self.stripe
        plays: dict[str, Callable[[], None]] = {
            "refused": lambda: stripe.fail_next(name, 402),
            "denied": lambda: stripe.fail_next(name, 404),
            "lost_request": lambda: stripe.drop_next(name),
            "lost_response": lambda: stripe.lose_next(name),
            "server_error": lambda: stripe.fail_next(name, 500),
            "system_error": lambda: stripe.fail_next(name, 503),
            "unknown_code": lambda: stripe.fail_next(name, 400),
            "rate_limited": lambda: stripe.fail_next(name, 429),
            "broken_json": lambda: stripe.break_next(name),
            "html_body": lambda: stripe.html_next(name),
            **{
                kind: functools.partial(stripe.alter_next, name, change)
                for kind, change in ALTERED.items()
            },
        }
        if fault not in plays:
            super().fault(fault, operation, times=times)
            return
        for _ in range(times):
            plays[fault]()

    def clear_faults(self) -> None:
        super().clear_faults()
        self.stripe.clear_faults()

    def references(self) -> Sequence[str]:
        return [session["client_reference_id"] for session in self.stripe.sessions.values()]

    def received(self, operation: Operation) -> int:
        return len(self.stripe.requests(OPERATIONS[operation]))


def _amount(units: int | None) -> Callable[[Json], None]:
    def change(session: Json) -> None:
        session["amount_total"] = units
        if isinstance(session["payment_intent"], dict) and units is not None:
            session["payment_intent"]["amount_received"] = units
        if units is None:
            session["payment_intent"] = None

    return change


ALTERED: Final[dict[str, Callable[[Json], None]]] = {
    "wrong_amount": _amount(1),
    "missing_amount": _amount(None),
    "wrong_currency": lambda session: session.update(currency="eur"),
    "missing_currency": lambda session: session.update(currency=None),
    "wrong_transaction_no": lambda session: session.update(id="cs_test_another"),
    "other_reference": lambda session: session.update(client_reference_id="ANOTHER"),
}
"""The changes of a session, by the name of the fault."""


NO_LIST: Final = "the simulator lists and searches nothing"
NO_REFUND: Final = (
    "the simulator answers every refund with pending, finishes it at once, and "
    "finds no refund again"
)
_NO_CLOCK: Final = (
    "the simulator has no clock: what is open expires together, and a payment that "
    "failed is open again"
)
_NOT_BY_SIMULATOR: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "full_refund",
            "partial_refunds",
            "over_refund",
            "concurrent_refunds",
            "refund_handler_raises",
            "repeated_refund",
            "refused_refund",
            "queued_refund",
            "unknown_refund_that_was_not_done",
        ),
        NO_REFUND,
    ),
    **dict.fromkeys(
        ("paid_twice", "paid_after_close", "currency_without_decimals", "crash_while_refunding"),
        NO_REFUND,
    ),
    **dict.fromkeys(
        ("expiry", "kept_while_another_payment_is_open", "crash_while_releasing"),
        _NO_CLOCK,
    ),
    **dict.fromkeys(("crash_while_starting", "unknown_outcome_of_pay"), NO_LIST),
    "wrong_credentials": "the simulator accepts every key",
}


@functools.cache
def running_simulator() -> Simulator:
    """Start the simulator once for all tests of this process: that takes seconds."""
    if not PYTHON.exists():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "needs .nox/simulator: nox -s simulator",
        )
    simulator = Simulator()
    simulator.start()
    atexit.register(simulator.stop)
    return simulator


class SimulatorDriver(GatewayDriver):
    """The capabilities of getpaid's simulator, behind a proxy for the faults. It has no lists, and
    all scenarios share it.
    """

    plugin = "stripe"
    method = "checkout"
    other_method = "card"
    declined_by_shops: Mapping[str, str] = {**FakeDriver.declined_by_shops, **_NOT_BY_SIMULATOR}

    def __enter__(self) -> Self:
        self.simulator = running_simulator()
        self.before = set(self.simulator.numbers)
        self.proxy = FaultyProxy(
            self.simulator.base_url,
            CALLS,
            ALTERED,
            refusal={"error": {"type": "invalid_request_error", "code": "resource_missing"}},
        ).start()
        return self

    def account(self, currency: str | None = None) -> Account | None:
        methods = (self.method, self.other_method)
        assert self.proxy is not None
        return account_at(
            self.proxy.url,
            webhook_secrets=(WEBHOOK_SECRET,),
            currencies=tuple(dict.fromkeys(("USD", currency or "USD"))),
            methods=methods,
        )

    def held(self, reference: str) -> Held | None:
        try:
            session = self.simulator.session_of(reference)
        except KeyError:
            return None
        currency = session["currency"].upper()
        made = [
            one.event for one in self.simulator.received if one.event["type"].startswith("refund.")
        ]
        states = {event["data"]["object"]["id"]: event["data"]["object"] for event in made}
        refunds = [
            one for one in states.values() if one["payment_intent"] == session["payment_intent"]
        ]
        return Held(
            transaction_no=session["id"],
            amount=from_units(session["amount_total"], currency),
            currency=currency,
            refunds=tuple(
                from_units(one["amount"], currency)
                for one in refunds
                if one["status"] not in ("failed", "canceled")
            ),
        )

    def pay(self, reference: str) -> str:
        return self.simulator.pay(reference)

    def pay_slowly(self, reference: str) -> None:
        self.simulator.pay_with_delay(reference)

    def decline(self, reference: str) -> None:
        self.simulator.decline(reference)

    def expire(self, reference: str) -> None:
        self.simulator.expire(reference)

    def notification(
        self,
        reference: str,
        *,
        forged: bool = False,
    ) -> tuple[Mapping[str, str], bytes]:
        if reference not in self._sent():
            self.simulator.decline(reference)  # after which the payment is as open as before
        sent = self._sent()[reference]
        # a shop serves its own hosts alone
        headers = {name: text for name, text in sent.headers.items() if name.lower() != "host"}
        return ({**headers, "Stripe-Signature": "t=1,v1=00"} if forged else headers), sent.body

    def _sent(self) -> dict[str, Webhook]:
        """Return the newest webhook about each payment; one about its session, if there is one."""
        about = [
            (one.event["data"]["object"].get("metadata", {}).get("reference"), one)
            for one in sorted(
                self.simulator.received,
                key=lambda one: one.event["type"].startswith("checkout.session."),
            )
        ]
        return {reference: one for reference, one in about if reference}

    def advance(self, seconds: float) -> None:
        """Expire the open sessions when time passes: the simulator has no clock."""
        if seconds > 3600:
            for reference in self.references():
                if self.simulator.session_of(reference)["status"] == "open":
                    self.simulator.expire(reference)

    def references(self) -> Sequence[str]:
        fresh = [number for number in self.simulator.numbers if number not in self.before]
        return [next(iter(self.simulator.names_of(number) - {number})) for number in fresh]
