"""A real pretix, on the sandbox."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pytest
from pretix.base.models import _transactions

from tests.driver import PretixDriver


@pytest.fixture(scope="session", autouse=True)
def _stack_without_source() -> Iterator[None]:
    """Read no source lines: in tests pretix takes the stack whenever an order is saved, a fifth of
    all time, and looks only at the names of the files.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_transactions, "inspect", SimpleNamespace(stack=partial(inspect.stack, 0)))
        yield


@pytest.fixture
def shop_driver(request: pytest.FixtureRequest) -> PretixDriver:
    """The shop of every test."""
    return getattr(request.cls, "driver", None) or PretixDriver()
