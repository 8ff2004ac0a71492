"""The gateway conformance kit on Stripe's own test mode: only with STRIPE_TEST_KEY, and never in
CI. It needs Chromium and the internet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from stripe_emulator.driver import account_at
from tillgate import Account
from tillgate.testing.browsers import running_chromium
from tillgate.testing.gateway_conformance import GatewayConformance
from tillgate.testing.gateway_driver import GatewayDriver, Held
from tillgate_stripe.api import Call
from tillgate_stripe.profile import STRIPE, from_units

KEY = os.environ.get("STRIPE_TEST_KEY", "")
IS_ASKED = "_test_" in KEY
DECLINED_CARD, GOOD_CARD = "4000000000000002", "4242424242424242"


class LiveDriver(GatewayDriver):
    """The acts of a shopper in a browser on Stripe's page, and the facts from Stripe's API."""

    plugin = "stripe"

    def account(self, currency: str | None = None) -> Account | None:
        return account_at(STRIPE.base_url, token=KEY, currencies=(currency,) if currency else ())

    def call(self) -> Any:
        return Call(account_at(STRIPE.base_url, token=KEY), "query", "the test")

    def session(self, reference: str) -> Any:
        recent = self.call().get("/v1/checkout/sessions", {"limit": 20}).data
        return next((one for one in recent if one.client_reference_id == reference), None)

    def held(self, reference: str) -> Held | None:
        session = self.session(reference)
        if session is None:
            return None
        currency = session.currency.upper()
        made = (
            self.call().get("/v1/refunds", {"payment_intent": session.payment_intent}).data
            if session.payment_intent
            else []
        )
        refunds = tuple(
            from_units(one.amount, currency)
            for one in made
            if one.status not in ("failed", "canceled")
        )
        return Held(
            transaction_no=session.id,
            amount=from_units(session.amount_total, currency),
            currency=currency,
            refunds=refunds,
        )

    def _fill_in(self, reference: str, card: str) -> None:
        with running_chromium() as browser:
            page = browser.new_page()
            page.goto(self.session(reference).url)
            for field, value in (
                ("email", "ann@shopper.example"),
                ("cardNumber", card),
                ("cardExpiry", "12 / 40"),
                ("cardCvc", "123"),
            ):
                page.locator(f"#{field}").fill(value)
            page.locator("#billingName").fill("Ann Shopper")
            page.locator("button[type=submit]").click()
            page.wait_for_timeout(10_000)

    def pay(self, reference: str) -> None:
        self._fill_in(reference, GOOD_CARD)

    def decline(self, reference: str) -> None:
        self._fill_in(reference, DECLINED_CARD)

    def expire(self, reference: str) -> None:
        self.call().post(f"/v1/checkout/sessions/{self.session(reference).id}/expire", {})

    def refund_in_portal(self, reference: str, amount: Decimal) -> None:
        self.call().post(
            "/v1/refunds",
            {"payment_intent": self.session(reference).payment_intent, "amount": int(amount * 100)},
        )

    def fail_refund(self) -> None:
        raise NotImplementedError("a test card whose refund fails does so days later")

    def notification(
        self,
        reference: str,
        *,
        forged: bool = False,
    ) -> tuple[Mapping[str, str], bytes]:
        raise NotImplementedError("Stripe reaches no address of this machine")


class TestStripe(GatewayConformance):
    """The scenarios that Stripe plays on demand."""

    __test__ = IS_ASKED
    driver = LiveDriver
    declined: ClassVar[dict[str, str]] = {
        **dict.fromkeys(
            (
                "lost_creation",
                "lookup_by_reference",
                "slow_creation",
                "slow_query",
                "slow_refund",
                "lost_refund",
                "lost_refund_that_was_not_done",
                "same_refund_id",
                "broken_creation_answers",
                "broken_query_answers",
                "broken_refund_answers",
                "answer_about_another_payment",
                "answer_without_currency",
                "answer_without_amount",
                "strange_status",
            ),
            "nobody loses or delays an answer of Stripe on demand",
        ),
        **dict.fromkeys(
            ("pending_refund_succeeds", "pending_refund_fails", "refund_that_fails"),
            "such a refund of Stripe takes days",
        ),
        **dict.fromkeys(
            ("money_on_its_way", "money_taken_back"),
            "the driver pays with cards that succeed at once",
        ),
        "refund_in_another_currency": "Stripe's refunds name no currency",
        **dict.fromkeys(
            (
                "notification_is_a_hint",
                "notification_gives_the_number",
                "headers_in_any_case",
                "forged_notification",
            ),
            "Stripe reaches no address of this machine",
        ),
    }
