"""The kit that every plugin passes, on Oscar's orders."""

from tests.driver import OscarDriver
from tillgate.testing.conformance import Conformance


class TestOscar(Conformance):
    driver = OscarDriver()
    distributions = ("django-oscar",)
