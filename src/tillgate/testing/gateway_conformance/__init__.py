"""The gateway conformance kit: the promises of a gateway plugin, tested on an emulator of its
gateway through its driver.

A plugin's author writes a `GatewayDriver` and a subclass::

    from tillgate.testing.gateway_conformance import GatewayConformance
    class TestMyGateway(GatewayConformance):
        driver = MyDriver

Every scenario calls the plugin through `tillgate.hooks` alone, and compares its answers with the
emulator's records.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from tillgate.testing.gateway_conformance.notifying import Notifying
from tillgate.testing.gateway_conformance.paying import PayingAtGateway
from tillgate.testing.gateway_conformance.refunding import Refunding
from tillgate.testing.gateway_conformance.spoiling import Spoiling
from tillgate.testing.gateway_driver import GatewayDriver
from tillgate.testing.scenarios import Scenarios


@pytest.mark.usefixtures("conforming_gateway")
class GatewayConformance(PayingAtGateway, Spoiling, Refunding, Notifying, Scenarios):
    """All scenarios. A subclass names the class of its `driver`."""

    driver: ClassVar[type[GatewayDriver] | None] = None
    """The class of drivers; each scenario makes one."""
