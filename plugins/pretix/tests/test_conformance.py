"""The kit that every plugin passes, on orders of a real pretix."""

from tests.driver import PretixDriver
from tillgate.testing.conformance import Conformance


class TestConformance(Conformance):
    driver = PretixDriver()
    distributions = ("pretix",)
