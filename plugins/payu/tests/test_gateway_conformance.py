"""The gateway conformance kit: on the fake PayU, and on getpaid's simulator as far as it can
play.
"""

from __future__ import annotations

from typing import ClassVar

from payu_emulator.driver import FakeDriver
from tillgate.testing.gateway_conformance import GatewayConformance

NO_LOOKUP = "PayU finds an order by its own number alone"


class TestFakePayU(GatewayConformance):
    """Every scenario that PayU can play."""

    driver = FakeDriver
    declined: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("unknown_reference", "lost_creation", "slow_creation"), NO_LOOKUP),
    }
