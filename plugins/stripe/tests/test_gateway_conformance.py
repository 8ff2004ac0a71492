"""The gateway conformance kit: on the fake Stripe, on getpaid's simulator as far as it can play,
and on Stripe itself with a test key.
"""

from __future__ import annotations

from typing import ClassVar

from stripe_emulator.driver import NO_FAULTS, NO_LIST, NO_REFUND, FakeDriver, SimulatorDriver
from tillgate.testing.gateway_conformance import GatewayConformance


class TestFakeStripe(GatewayConformance):
    """Every scenario."""

    driver = FakeDriver


class TestSimulator(GatewayConformance):
    """The scenarios that software of other people can play."""

    driver = SimulatorDriver
    declined: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("unknown_reference", "lookup_by_reference"), NO_LIST),
        **dict.fromkeys(
            (
                "lost_creation",
                "slow_creation",
                "slow_query",
                "lost_refund",
                "same_refund_id",
                "no_secret_in_any_text",
            ),
            NO_FAULTS,
        ),
        **dict.fromkeys(
            (
                "full_refund",
                "partial_refunds",
                "more_than_was_paid",
                "pending_refund_succeeds",
                "pending_refund_fails",
            ),
            NO_REFUND,
        ),
        "refund_that_fails": "the simulator refuses no refund on demand",
        "refund_in_the_portal": "the simulator has no dashboard",
    }
