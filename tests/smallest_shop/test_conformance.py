"""The smallest shop keeps every promise: the kit as a plugin's author runs it, nothing declined."""

from tests.smallest_shop.driver import SmallestShopDriver
from tillgate.testing.conformance import Conformance


class TestConformance(Conformance):
    driver = SmallestShopDriver()
