"""For authors of plugins: record a conversation with the gateway once, replay it in every test run.

Install `tillgate[testing]` and name the fixtures in the `conftest.py` beside your tests; nothing
loads on its own::

    pytest_plugins = ["tillgate.testing.fixtures"]

README.md lists the fixtures and the rest, and cassettes.md shows a test that uses
them.
"""

from tillgate.testing.cassettes import Cassette
from tillgate.testing.leaks import find_leaks

__all__ = ["Cassette", "find_leaks"]
