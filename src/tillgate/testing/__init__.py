"""For authors of plugins: a gateway on real HTTP, a shop with all its actors, the conformance kits,
and a search for secrets.

Install `tillgate[testing]` and name the fixtures in the `conftest.py` beside your tests; nothing
loads on its own::

    pytest_plugins = ["tillgate.testing.fixtures"]

README.md lists the fixtures and the rest.
"""

from tillgate.testing.leaks import holds_secret

__all__ = ["holds_secret"]
