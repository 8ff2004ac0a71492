"""A shop, a gateway and a clock for the tests of the Django app: those that a plugin's author gets,
on the smallest shop.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from django.utils import translation

from tests.django import project
from tests.django.gateway import gateway
from tillgate.sandbox import Sandbox
from tillgate.testing.shops import configure, running_sandbox, time_, world
from tillgate.testing.world import World

__all__ = [
    "World",
    "configure",
    "database",
    "gateway",
    "running_sandbox",
    "sandbox",
    "time_",
    "world",
]

_SERVICES = {"postgresql": 5432, "mariadb": 3306}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip by name the tests that need a database that this machine lacks; in CI such a skip is a
    failure.
    """
    if project.DATABASE == "sqlite" or _is_reachable():
        return
    if os.environ.get("CI") == "true":
        pytest.exit(f"CI must have {project.DATABASE}", returncode=1)
    for item in items:
        item.add_marker(pytest.mark.skip(reason=f"needs {project.DATABASE} on this machine"))


def _is_reachable() -> bool:
    settings = project.DATABASES["default"]
    try:
        socket.create_connection((settings["HOST"], int(settings["PORT"])), timeout=2).close()
    except OSError:
        return False
    return True


@pytest.fixture(autouse=True)
def database(transactional_db: None) -> None:
    """Every test commits for real: it tests durable transactions and locks."""


@pytest.fixture(autouse=True)
def guarded(network_in_transactions: list[str]) -> None:
    """I12 in every test."""


@pytest.fixture(autouse=True)
def language() -> Iterator[None]:
    """A visitor's language, which LocaleMiddleware activates for the thread, is not the next
    test's.
    """
    yield
    translation.deactivate()


@pytest.fixture
def sandbox(shop_sandbox: Sandbox) -> Sandbox:
    """The emulator that the shop is on."""
    return shop_sandbox
