"""The gateway conformance kit: on the fake PayU, and on getpaid's simulator as far as it can
play.
"""

from __future__ import annotations

from typing import ClassVar

from payu_emulator.driver import NO_LIMIT, NO_LIST, NO_LOOKUP, FakeDriver, SimulatorDriver
from tillgate.testing.gateway_conformance import GatewayConformance


class TestFakePayU(GatewayConformance):
    """Every scenario that PayU can play."""

    driver = FakeDriver
    declined: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("unknown_reference", "lost_creation", "slow_creation"), NO_LOOKUP),
    }


class TestSimulator(GatewayConformance):
    """The scenarios that software of other people can play."""

    driver = SimulatorDriver
    declined: ClassVar[dict[str, str]] = {
        **TestFakePayU.declined,
        **dict.fromkeys(("lost_refund", "same_refund_id"), NO_LIST),
        **dict.fromkeys(
            ("more_than_was_paid", "pending_refund_succeeds", "pending_refund_fails"),
            NO_LIMIT,
        ),
        "refund_in_the_portal": "the simulator has no panel",
    }
