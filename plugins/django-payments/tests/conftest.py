"""A real shop on django-payments, on the sandbox."""

from __future__ import annotations

import pytest

from tests.driver import ChoosingDriver


@pytest.fixture
def shop_driver(request: pytest.FixtureRequest) -> ChoosingDriver:
    """The shop of every test."""
    return getattr(request.cls, "driver", None) or ChoosingDriver()
