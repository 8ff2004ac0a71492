"""The observers that come with the app: a structured log, and OpenTelemetry where it is installed.

They are plugins like any other, registered when the app is ready. To disable them, block their
names before that: `hooks.plugin_manager().set_blocked("tillgate-log")`.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping
from typing import Final

from tillgate import hooks
from tillgate.errors import ConfigurationError

LOG_NAME: Final = "tillgate-log"
TELEMETRY_NAME: Final = "tillgate-opentelemetry"

_log = logging.getLogger("tillgate.events")

_WARNINGS: Final = frozenset({"review.opened", "payment.outcome-unknown", "refund.unknown"})
_FIELDS: Final = (
    "order",
    "account",
    "method",
    "amount",
    "status",
    "refund",
    "refund_amount",
    "refund_status",
    "transaction_no",
    "refund_no",
    "reason",
    "actor",
    "message",
)
"""The event fields that go into the log. The list is closed: a plugin's event may contain
unreviewed data.
"""


class LogObserver:
    """Writes each event as one record of the logger `tillgate.events`, with the event's fields as
    attributes of the record.
    """

    @hooks.hookimpl
    def tillgate_event(self, event: hooks.Event) -> None:
        """Log an event."""
        known = {name: event.fields[name] for name in _FIELDS if name in event.fields}
        about = event.reference or known.get("order") or known.get("account") or ""
        level = logging.WARNING if event.name in _WARNINGS else logging.INFO
        message = known.pop("message", "")  # a log record has a message of its own
        extra = {"event": event.name, "reference": event.reference, **known}
        _log.log(level, "%s %s: %s", event.name, about, message, extra=extra)


def _telemetry() -> object | None:
    try:
        is_installed = importlib.util.find_spec("opentelemetry.metrics") is not None
    except ModuleNotFoundError:
        is_installed = False
    if not is_installed:
        return None
    from tillgate.django.operating.telemetry import TelemetryObserver  # only if an observer exists

    return TelemetryObserver()


_BUILT_IN: Final[Mapping[str, Callable[[], object | None]]] = {
    LOG_NAME: LogObserver,
    TELEMETRY_NAME: _telemetry,
}


def register() -> None:
    """Register the observers that are not blocked, once. The system checks report a plugin manager
    that cannot be built.
    """
    try:
        manager = hooks.plugin_manager()
    except ConfigurationError:
        return
    for name, build in _BUILT_IN.items():
        if not manager.has_plugin(name) and not manager.is_blocked(name) and (plugin := build()):
            manager.register(plugin, name=name)
