"""The plugin manager. A function builds it on first use, so that importing Tillgate loads no
plugin. It holds the plugins with an entry point, and the shop plugins that Django has registered.
"""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
import importlib.util
import inspect
import logging
import re
from typing import Any, Final

import pluggy

from tillgate.errors import ConfigurationError
from tillgate.hooks import hookspecs
from tillgate.hooks.adapter import ADAPTER_NAME, GatewayAdapter
from tillgate.hooks.values import Event

__all__ = [
    "ADAPTER_NAME",
    "ENTRY_POINT_GROUP",
    "IMPORTED_NAME",
    "build_plugin_manager",
    "call_owner",
    "check_hooks",
    "emit",
    "implements",
    "is_loaded",
    "is_registered",
    "plugin_manager",
    "register_shop",
    "remedy_without",
]

ENTRY_POINT_GROUP: Final = "tillgate"
IMPORTED_NAME: Final = "imported"

_HOOKS: Final = tuple(name for name in vars(hookspecs) if name.startswith("tillgate_"))
_OF_ANY_PLUGIN: Final = frozenset(
    f"tillgate_{name}"
    for name in (
        "pay",
        "query",
        "refund",
        "query_refund",
        "close",
        "payment_methods",
        "read_notification",
        "examine_account",
        "account",
        "event",
    )
)
"""The hooks that do not concern an order of one plugin."""
_log = logging.getLogger("tillgate")


class _ImportedOrders:
    """The owner of orders that were imported without a shop: it hears of nothing."""


def build_plugin_manager(*plugins: object, entry_points: bool = True) -> pluggy.PluginManager:
    """Return a new manager with the built-in adapter, the given plugins and, by default, every
    plugin that an entry point names.

    Raises `ConfigurationError` naming the plugin that cannot be loaded or implements a hook that
    does not exist.
    """
    manager = pluggy.PluginManager("tillgate")
    manager.add_hookspecs(hookspecs)
    manager.register(GatewayAdapter(), name=ADAPTER_NAME)
    manager.register(_ImportedOrders(), name=IMPORTED_NAME)
    name = "?"
    try:
        for plugin in plugins:
            name = getattr(plugin, "__name__", type(plugin).__name__)
            manager.register(plugin)
        for name in _installed() if entry_points else ():
            manager.load_setuptools_entrypoints(ENTRY_POINT_GROUP, name)
    except pluggy.PluginValidationError as error:
        raise _unusable(manager, error, name) from error
    except Exception as error:  # a plugin's import may raise anything
        raise ConfigurationError(
            "plugin",
            name,
            f"could not be loaded: {type(error).__name__}: {error}",
        ) from error
    check_hooks(manager)
    return manager


def check_hooks(manager: pluggy.PluginManager) -> None:
    """Raise `ConfigurationError` naming a plugin with a hook that does not exist, would never run,
    or would run for others' orders.

    This check also serves for plugins that were registered with an existing manager: pluggy accepts
    any name, and never calls an unknown one.
    """
    try:
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise _unusable(manager, error) from error
    for _, plugin in manager.list_name_plugin():
        for hook in _HOOKS:
            if fault := _fault_of(manager, plugin, hook):
                raise ConfigurationError(
                    "plugin",
                    _name(manager, plugin),
                    f"cannot be used: {hook} {fault}",
                )


def _fault_of(manager: pluggy.PluginManager, plugin: object, hook: str) -> str | None:
    """Return the reason why a plugin's hook has no effect although pluggy accepts it, or None if it
    works.
    """
    own = [
        implementation
        for implementation in getattr(manager.hook, hook).get_hookimpls()
        if implementation.plugin is plugin
    ]
    if (
        not own
        and inspect.isroutine(inspect.getattr_static(plugin, hook, None))
        and manager.parse_hookimpl_opts(plugin, hook) is None
    ):
        return "has no mark, and is never called: put @hookimpl of tillgate.hooks above it"
    for function, is_wrapper in ((one.function, one.wrapper or one.hookwrapper) for one in own):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            return (
                "is async, and nobody awaits it: write def, and let it call what is async with "
                "asyncio.run"
            )
        if inspect.isgeneratorfunction(function) and not is_wrapper:
            return (
                "has a yield, and what is before it never runs: mark it "
                "@hookimpl(wrapper=True), or return"
            )
        if hook == "tillgate_event" and is_wrapper:
            return (
                "is a wrapper, and never runs: an observer has nothing to wrap, so mark it "
                "@hookimpl and return"
            )
    if own and hook not in _OF_ANY_PLUGIN and not hasattr(plugin, hook):
        # pluggy leaves plugins out of a call by their attributes.
        return (
            "has another name here, and would be called for orders of other plugins: give the "
            "function the hook's name"
        )
    return None


def _unusable(
    manager: pluggy.PluginManager,
    error: pluggy.PluginValidationError,
    name: str = "?",
) -> ConfigurationError:
    said = " ".join(str(error).split())
    if unknown := re.match(r"unknown hook '(\w+)'", said):
        near = difflib.get_close_matches(unknown[1], vars(hookspecs), n=1)
        said = f"unknown hook {unknown[1]!r}" + (f": did you mean {near[0]!r}?" if near else "")
    return ConfigurationError(
        "plugin",
        _name(manager, error.plugin) or name,
        f"cannot be used: {said}",
    )


def _name(manager: pluggy.PluginManager, plugin: object) -> str | None:
    """Return the name of a registered plugin, or its class: pluggy makes up a number for a plugin
    without a name.
    """
    name = manager.get_name(plugin)
    return type(plugin).__name__ if name == str(id(plugin)) else name


def _installed() -> list[str]:
    found = (
        point
        for distribution in importlib.metadata.distributions()
        for point in distribution.entry_points
    )
    return sorted({point.name for point in found if point.group == ENTRY_POINT_GROUP})


@functools.cache
def plugin_manager() -> pluggy.PluginManager:
    """Return the process's manager, built on the first call."""
    return build_plugin_manager()


def register_shop(plugin: object, name: str) -> None:
    """Register a shop plugin with the process's manager; the same again changes nothing."""
    try:
        manager = plugin_manager()
    except ConfigurationError:
        return  # the system checks report a manager that cannot be built
    if is_registered(plugin, name):
        return
    if manager.has_plugin(name):
        raise ConfigurationError(
            "plugin",
            name,
            f"is registered twice: the name is taken by {manager.get_plugin(name)!r}",
        )
    if other := manager.get_name(plugin):
        raise ConfigurationError("plugin", name, f"is registered already, as {other!r}")
    try:
        manager.register(plugin, name=name)
    except pluggy.PluginValidationError as error:
        raise _unusable(manager, error, name) from error


def is_registered(plugin: object, name: str) -> bool:
    """Return whether a name belongs to just this plugin."""
    return plugin_manager().get_plugin(name) is plugin


def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
    """Call a hook of the shop's side on the one plugin that owns the order, and return its result
    or None if it implements no such hook.
    """
    manager = plugin_manager()
    owner = manager.get_plugin(plugin)
    if owner is None:
        shops = [
            name
            for name, _ in manager.list_name_plugin()
            if implements(name, "tillgate_describe_order")
        ]
        near = difflib.get_close_matches(plugin, shops, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"{remedy_without(plugin)};"
        raise ConfigurationError(
            "plugin",
            plugin,
            f"owns an order but is not loaded: {remedy} loaded: "
            f"{', '.join(shops) or 'no shop plugin'}",
        )
    others = [other for other in manager.get_plugins() if other is not owner]
    return manager.subset_hook_caller(hook, others)(**arguments)


def remedy_without(plugin: str) -> str:
    """Return the remedy for a shop plugin that is not loaded, where its package has the usual name
    `tillgate_...`.
    """
    package = f"tillgate_{plugin.replace('-', '_')}"
    if package.isidentifier() and importlib.util.find_spec(package):
        return f"it is installed, so add {package!r} to INSTALLED_APPS"
    return "install it again, and add its app to INSTALLED_APPS"


def is_loaded(plugin: str) -> bool:
    """Return whether there is a plugin of a name."""
    return plugin_manager().get_plugin(plugin) is not None


def implements(plugin: str, hook: str) -> bool:
    """Return whether the plugin of a name implements a hook."""
    manager = plugin_manager()
    return any(
        caller.name == hook for caller in manager.get_hookcallers(manager.get_plugin(plugin)) or ()
    )


def emit(event: Event) -> None:
    """Call every observer. An observer's exception is logged; the other observers and the caller
    continue.
    """
    for implementation in plugin_manager().hook.tillgate_event.get_hookimpls():
        try:
            # pluggy lets a plugin leave arguments out
            implementation.function(*(event for _ in implementation.argnames))
        except Exception:  # noqa: BLE001  # the shop's own code may raise anything
            _log.exception("plugin %s failed on event %s", implementation.plugin_name, event.name)
