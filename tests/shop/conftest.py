"""A shop, a gateway and a clock, as in the tests of the Django app."""

from tests.django.conftest import (
    configure,
    database,
    guarded,
    language,
    pytest_collection_modifyitems,
    running_sandbox,
    sandbox,
    time_,
    world,
)

__all__ = [
    "configure",
    "database",
    "guarded",
    "language",
    "pytest_collection_modifyitems",
    "running_sandbox",
    "sandbox",
    "time_",
    "world",
]
