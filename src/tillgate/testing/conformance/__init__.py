"""The conformance kit: the promises of Tillgate, tested on a shop of any framework through its driver.

A plugin's author writes a `ShopDriver` and a subclass::

    from tillgate.testing.conformance import Conformance
    class TestConformance(Conformance):
        driver = BookshopDriver()

Every scenario runs the shop's real pages and Tillgate's real operations against the sandbox over HTTP. It reads the shop through the
driver alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from tillgate.testing.conformance.faults import Faults
from tillgate.testing.conformance.money import Money
from tillgate.testing.conformance.notifications import Notifications
from tillgate.testing.conformance.paying import Paying
from tillgate.testing.conformance.refunds import Refunds
from tillgate.testing.driver import ShopDriver

__all__ = ["Conformance"]

_PREFIX = "test_"


@pytest.mark.usefixtures("conforming")
class Conformance(Paying, Notifications, Money, Refunds, Faults):
    """All scenarios. A subclass names its `driver`, or overrides the fixture `shop_driver`."""

    driver: ClassVar[ShopDriver | None] = None
    """How the scenarios talk to the shop."""

    distributions: ClassVar[tuple[str, ...]] = ()
    """Further distributions for the report to name with their versions, such as the shop's framework."""

    declined: ClassVar[Mapping[str, str]] = {}
    """Scenarios that the shop declines, by name without `test_`, each with the reason. A declined scenario that holds is a failure."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Refuse to decline an unknown scenario, or to decline without a reason."""
        super().__init_subclass__(**arguments)
        for name, reason in cls.declined.items():
            if name not in cls.scenarios():
                raise TypeError(f"{cls.__name__}.declined: {name!r} is not a scenario; the scenarios are {', '.join(cls.scenarios())}")
            if not reason.strip():
                raise TypeError(f"{cls.__name__}.declined: {name!r} needs a reason")

    @classmethod
    def scenarios(cls) -> dict[str, str]:
        """Return the name of every scenario and its promise, in order."""
        found = {}
        for group in Conformance.__bases__:
            for name, test in vars(group).items():
                if name.startswith(_PREFIX):
                    found[name.removeprefix(_PREFIX)] = " ".join((test.__doc__ or "").split())
        return found
