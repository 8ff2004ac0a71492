"""The conformance kit: the promises of Tillgate, tested on a shop of any framework through its
driver.

A plugin's author writes a `ShopDriver` and a subclass::

    from tillgate.testing.conformance import Conformance
    class TestConformance(Conformance):
        driver = BookshopDriver()

Every scenario runs the shop's real pages and Tillgate's real operations against the sandbox over
HTTP, or against another gateway, with the `GatewayDriver` of the fixture `shop_gateway`. It reads
the shop and the gateway through their drivers alone.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from tillgate.testing.conformance.faults import Faults
from tillgate.testing.conformance.money import Money
from tillgate.testing.conformance.notifications import Notifications
from tillgate.testing.conformance.paying import Paying
from tillgate.testing.conformance.refunds import Refunds
from tillgate.testing.conformance.slow import Slow
from tillgate.testing.driver import ShopDriver
from tillgate.testing.scenarios import Scenarios


@pytest.mark.usefixtures("conforming")
class Conformance(Paying, Slow, Notifications, Money, Refunds, Faults, Scenarios):
    """All scenarios. A subclass names its `driver`, or overrides the fixture `shop_driver`."""

    driver: ClassVar[ShopDriver | None] = None
    """How the scenarios talk to the shop."""
