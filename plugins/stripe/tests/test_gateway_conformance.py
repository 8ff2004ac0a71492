"""The gateway conformance kit: on the fake Stripe, on getpaid's simulator as far as it can play,
and on Stripe itself with a test key.
"""

from __future__ import annotations

from typing import ClassVar

from stripe_emulator.driver import NO_LIST, NO_REFUND, FakeDriver, SimulatorDriver
from tillgate.testing.gateway_conformance import GatewayConformance


class TestFakeStripe(GatewayConformance):
    """Every scenario."""

    driver = FakeDriver


class TestSimulator(GatewayConformance):
    """The scenarios that foreign software can play."""

    driver = SimulatorDriver
    declined: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("unknown_reference", "lookup_by_reference"), NO_LIST),
        **dict.fromkeys(
            (
                "full_refund",
                "partial_refunds",
                "more_than_was_paid",
                "refund_that_fails",
                "pending_refund_succeeds",
                "pending_refund_fails",
                "lost_refund",
                "lost_refund_that_was_not_done",
            ),
            NO_REFUND,
        ),
        "same_refund_id": "the simulator ignores idempotency keys",
        "money_taken_back": "the simulator has no disputes",
        "wrong_credentials": "the simulator accepts every key",
        "refund_in_the_portal": "the simulator has no dashboard",
    }
