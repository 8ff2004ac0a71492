"""A real pretix, on the sandbox."""

from __future__ import annotations

import pytest

from tests.driver import PretixDriver


@pytest.fixture
def shop_driver(request: pytest.FixtureRequest) -> PretixDriver:
    """The shop of every test."""
    return getattr(request.cls, "driver", None) or PretixDriver()
