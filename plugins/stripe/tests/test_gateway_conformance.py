"""The gateway conformance kit on the fake Stripe."""

from __future__ import annotations

from tests.driver import FakeDriver
from tillgate.testing.gateway_conformance import GatewayConformance


class TestFakeStripe(GatewayConformance):
    """Every scenario that Stripe's way of paying has."""

    driver = FakeDriver
