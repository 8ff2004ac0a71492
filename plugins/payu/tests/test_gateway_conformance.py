"""The gateway conformance kit: on the fake PayU, and on getpaid's simulator as far as it can
play.
"""

from __future__ import annotations

from typing import ClassVar

from payu_emulator.driver import (
    NO_CHARGE_BACK,
    NO_CHECK,
    NO_LIMIT,
    NO_LIST,
    NO_LOOKUP,
    PendingFakeDriver,
    SimulatorDriver,
)
from tillgate.testing.gateway_conformance import GatewayConformance


class TestFake(GatewayConformance):
    """Every scenario that PayU can play."""

    driver = PendingFakeDriver
    declined: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("unknown_reference", "lookup_by_reference"), NO_LOOKUP),
        "money_taken_back": NO_CHARGE_BACK,
    }


class TestSimulator(GatewayConformance):
    """The scenarios that foreign software can play."""

    driver = SimulatorDriver
    declined: ClassVar[dict[str, str]] = {
        **TestFake.declined,
        **dict.fromkeys(("lost_refund", "same_refund_id"), NO_LIST),
        **dict.fromkeys(
            (
                "more_than_was_paid",
                "refund_in_another_currency",
                "pending_refund_succeeds",
                "pending_refund_fails",
            ),
            NO_LIMIT,
        ),
        "money_on_its_way": "the simulator's shoppers pay at once or not at all",
        "refund_in_the_portal": "the simulator has no panel",
        "wrong_credentials": NO_CHECK,
    }
