"""The kit that every plugin passes, on payments of django-payments: with one variant for all vendors, and with one for each."""

from tests.driver import ChoosingDriver, FixedVendorsDriver
from tillgate.testing.conformance import Conformance


class TestChoosing(Conformance):
    driver = ChoosingDriver()
    distributions = ("django-payments",)


class TestFixedVendors(Conformance):
    driver = FixedVendorsDriver()
    distributions = ("django-payments",)
