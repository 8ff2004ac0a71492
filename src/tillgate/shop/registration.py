"""Registration: a shop plugin registers itself in the `ready()` of its `AppConfig`."""

from __future__ import annotations

from django.apps import apps

from tillgate import hooks
from tillgate.errors import ConfigurationError

__all__ = ["register"]


def register(plugin: object, name: str) -> None:
    """Register a shop plugin, a module or an object with hooks, under the name that Tillgate's rows
    carry. Call it in `AppConfig.ready()`.

    The same plugin may be registered again, since Django's tests call `ready()` again. A taken name
    and a later call are a `ConfigurationError`.
    """
    if apps.ready and not hooks.is_registered(plugin, name):
        raise ConfigurationError(
            "plugin",
            name,
            "is registered when Tillgate may have called the hooks already: call "
            "tillgate.shop.register in AppConfig.ready()",
        )
    hooks.register_shop(plugin, name)
