"""The kit that every plugin passes, on payments of django-payments: with one variant for all
payment methods, and with one for each.
"""

from tests.driver import ChoosingDriver, FixedMethodsDriver
from tillgate.testing.conformance import Conformance


class TestChoosing(Conformance):
    driver = ChoosingDriver()
    distributions = ("django-payments",)


class TestFixedMethods(Conformance):
    driver = FixedMethodsDriver()
    distributions = ("django-payments",)
