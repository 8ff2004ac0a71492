"""The settings: one dictionary `TILLGATE_OSCAR` in the project's settings. An unknown key is an error; every key is optional."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any

from django.conf import settings
from django.core.signals import setting_changed
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tillgate.errors import ConfigurationError

__all__ = ["Settings", "get_settings"]

_Name = Annotated[str, Field(min_length=1, max_length=100, strict=True)]


class Settings(BaseModel):
    """All settings with their defaults. In the project's settings the names are in capitals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pending_status: _Name = "Pending payment"
    """The status of an order that waits to be paid: the only one in which it can be."""
    paid_status: _Name = "Paid"
    """The status of an order that was paid."""
    cancelled_status: _Name = "Cancelled"
    """The status of an order that was cancelled because it was not paid."""
    source_type: _Name = "Online payment"
    """The name of Oscar's payment source; the order's pages show it too."""
    paid_event: _Name = "Paid"
    """The type of Oscar's payment event for money that has arrived."""
    refund_event: _Name = "Refund"
    """The type of Oscar's payment event for money refunded; the dashboard offers it."""
    other_ways_to_pay: bool | None = None
    """Whether the shop takes other payments too. If not set: true for a shop that wrote its own checkout step for other payments."""


@functools.cache
def get_settings() -> Settings:
    """Return the project's settings, read once; raise `ConfigurationError` naming the wrong one."""
    given = getattr(settings, "TILLGATE_OSCAR", {})
    known = {name.upper(): name for name in Settings.model_fields}
    if not isinstance(given, Mapping):
        raise ConfigurationError("TILLGATE_OSCAR", given, "must be a dictionary")
    for name in given:
        if name not in known:
            raise ConfigurationError("TILLGATE_OSCAR", name, f"is not a setting; the settings are {', '.join(sorted(known))}")
    try:
        return Settings(**{known[name]: value for name, value in given.items()})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0]).upper()
        fault = ConfigurationError(f"TILLGATE_OSCAR[{name!r}]", given.get(name), f"cannot be used: {first['msg']}")
    raise fault


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "TILLGATE_OSCAR":
        get_settings.cache_clear()


setting_changed.connect(_forget)
