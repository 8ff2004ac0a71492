"""The kit that every plugin passes, on the double of a Saleor."""

from tests.driver import SaleorDriver
from tillgate.testing.conformance import Conformance


class TestSaleor(Conformance):
    driver = SaleorDriver()
