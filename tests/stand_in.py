"""A plugin in the place of the built-in adapter, for tests of the core without a wire."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pluggy

from tillgate.hooks import plugin_manager
from tillgate.hooks.manager import ADAPTER_NAME


@contextmanager
def standing_in(plugin: object, manager: pluggy.PluginManager | None = None) -> Iterator[None]:
    """Let a plugin answer for the accounts of the built-in wire."""
    manager = manager or plugin_manager()
    real = manager.unregister(name=ADAPTER_NAME)
    manager.register(plugin, name=ADAPTER_NAME)
    try:
        yield
    finally:
        manager.unregister(plugin)
        manager.register(real, name=ADAPTER_NAME)
