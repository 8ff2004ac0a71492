"""The fixtures of `tillgate.testing`, a pytest plugin that a project names explicitly
(README.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tillgate.sandbox import Options, Sandbox


@pytest.fixture
def sandbox_options() -> Options:
    """Return the options of the sandbox; override it for others."""
    return Options(seed=1, notification_hosts=("127.0.0.1", "localhost", "::1"))


@pytest.fixture
def sandbox(sandbox_options: Options) -> Iterator[Sandbox]:
    """Run a sandbox of the gateway on a free port of this machine for the length of the test."""
    with Sandbox(sandbox_options) as running:
        yield running
