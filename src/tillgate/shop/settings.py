"""Settings: one dictionary in the project's settings, read by a pydantic model."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.core.signals import setting_changed
from pydantic import BaseModel, ValidationError

from tillgate.django.conf import Settings
from tillgate.errors import ConfigurationError
from tillgate.wire.urls import is_public_address, is_web_address

__all__ = [
    "SettingsLoader",
    "is_public_address",
    "is_web_address",
    "read_settings",
    "setting_names",
]

Model = TypeVar("Model", bound=BaseModel)


class SettingsLoader(Generic[Model]):
    """Reads a plugin's settings once; call it for the model.

    The keys of the dictionary are the model's fields in capitals. An unknown key, or a value that
    the model refuses, is a `ConfigurationError` that names it. A test that overrides the setting
    gets the new one.
    """

    def __init__(self, name: str, model: type[Model]) -> None:
        self._name, self._model = name, model
        self._read: Model | None = None
        setting_changed.connect(self._forget, weak=False)

    def __call__(self) -> Model:
        """Return the settings."""
        if self._read is None:
            self._read = read_settings(self._name, getattr(settings, self._name, {}), self._model)
        return self._read

    def cache_clear(self) -> None:
        """Forget the settings that were read."""
        self._read = None

    def _forget(self, *, setting: str, **_: Any) -> None:
        if setting == self._name:
            self.cache_clear()


def read_settings(place: str, given: object, model: type[Model]) -> Model:
    """Return a dictionary of settings as a model; raises `ConfigurationError` as `SettingsLoader`
    does, with `place` before the key.

    A validator of the model may read an inner dictionary with it. An error does not show the value
    of a field with `repr=False`.
    """
    known = {field.upper(): field for field in model.model_fields}
    if not isinstance(given, Mapping):
        raise ConfigurationError(place, given, "must be a dictionary")
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key).upper(), known, n=1)
            remedy = (
                f"did you mean {near[0]!r}?"
                if near
                else f"the settings are {', '.join(sorted(known))}"
            )
            raise ConfigurationError(place, key, f"is not a setting; {remedy}")
    try:
        return model(**{known[key]: value for key, value in given.items()})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = str(first["loc"][0])
        key, is_shown = field.upper(), model.model_fields[field].repr
        shown = given.get(key) if is_shown else "***"
        fault = ConfigurationError(
            f"{place}[{key!r}]",
            shown,
            f"cannot be used: {first['msg'].removeprefix('Value error, ')}",
        )
    raise fault


def setting_names() -> frozenset[str]:
    """Return the names of the settings in `TILLGATE`, in small letters, for a project that keeps
    them in a file of its own.
    """
    return frozenset(Settings.model_fields)
