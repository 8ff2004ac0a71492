"""The sources of an account at a terminal: options, then `TILLGATE_*` in the environment, then a
TOML file.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tillgate.account import Account
from tillgate.errors import ConfigurationError
from tillgate.wire.dialects import REFERENCE
from tillgate.wire.profile import GatewayProfile

__all__ = ["DEFAULT_FILE", "FIELDS", "Configured", "load_account"]

DEFAULT_FILE: Final = "tillgate.toml"
"""The file that is read from the current folder if it exists and no other file is named."""

FIELDS: Final = tuple(Account.model_fields)
"""The names of an account's settings: options are spelt --base-url, the environment
TILLGATE_BASE_URL, the file base_url.
"""

_LISTS: Final = ("currencies", "methods", "webhook_secrets")
"""The settings that a variable gives as codes with commas between them: `PHP,USD`."""

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """An account, and the source of each of its settings that was given."""

    account: Account
    sources: Mapping[str, str]


def load_account(
    options: Mapping[str, Any],
    *,
    name: str | None = None,
    file: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Configured:
    """Return the account that the options, the environment and the table `[accounts.NAME]` of the
    file describe together.

    Options that are None count as not given. For an account that the caller names, its table comes
    before the environment. Raises `ConfigurationError` with the setting and the places to set it.
    """
    path = (
        file
        or environment.get("TILLGATE_CONFIG")
        or (DEFAULT_FILE if Path(DEFAULT_FILE).exists() else None)
    )
    if name and not path:
        raise ConfigurationError(
            "account",
            name,
            f"cannot be found: there is no {DEFAULT_FILE} here; give --config or TILLGATE_CONFIG",
        )
    table = _read_file(path, name or "default") if path else {}
    variables = _read_environment(environment)
    given = {
        field: (value, f"--{field.replace('_', '-')}")
        for field, value in options.items()
        if value is not None
    }
    found = {**variables, **table, **given} if name else {**table, **variables, **given}
    if missing := [
        field for field in _needed(found.get("dialect", ("reference", ""))[0]) if field not in found
    ]:
        places = ", ".join(
            f"--{field.replace('_', '-')} or TILLGATE_{field.upper()}" for field in missing
        )
        remedy = (
            f"{'is' if len(missing) == 1 else 'are'} not set: give {places}, or set them in "
            f"[accounts.{name or 'default'}] of a TOML file"
        )
        raise ConfigurationError(
            " and ".join(missing),
            None,
            f"{remedy} (`tillgate sandbox` runs a gateway to try)",
        )
    values = {field: value for field, (value, _) in found.items()}
    return Configured(
        account=Account(**values),
        sources={field: source for field, (_, source) in found.items()},
    )


def _needed(name: object) -> list[str]:
    """Return the settings that an account must be given, by the name of its dialect."""
    profile = (GatewayProfile.named(name) if isinstance(name, str) else None) or REFERENCE
    return [*filter(profile.asks_for, ("base_url", "merchant_no")), "token"]


def _read_file(path: str, name: str) -> dict[str, tuple[Any, str]]:
    try:
        content = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError("config", path, f"cannot be read: {error}") from None
    for key in content:
        if key != "accounts":
            raise ConfigurationError(
                "config",
                path,
                f"holds {key!r}, which is not known: accounts are tables such as [accounts.{name}]",
            )
    accounts = content.get("accounts", {})
    if not isinstance(accounts, dict) or not all(
        isinstance(table, dict) for table in accounts.values()
    ):
        raise ConfigurationError("config", path, f"must hold tables such as [accounts.{name}]")
    if name not in accounts and (accounts or name != "default"):
        raise ConfigurationError(
            "account",
            name,
            f"is not in {path}, which has: {', '.join(accounts) or 'none'}",
        )
    table = accounts.get(name, {})
    for key in table:
        if key not in FIELDS:
            raise ConfigurationError(
                "config",
                path,
                f"sets {key!r} in [accounts.{name}], which is no setting{_nearest(key, FIELDS)}",
            )
    return {field: (value, path) for field, value in table.items()}


def _read_environment(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    known = {f"TILLGATE_{field.upper()}": field for field in FIELDS}
    for variable in environment:
        # Other programs may use the prefix for their own purposes; a name close to one of ours is a
        # slip.
        if (
            variable.startswith("TILLGATE_")
            and variable not in known
            and (near := _nearest(variable, known))
        ):
            raise ConfigurationError(variable, "***", f"is no setting{near}")
    return {
        field: (_read_variable(field, environment[variable]), variable)
        for variable, field in known.items()
        if variable in environment
    }


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.85)
    return f": did you mean {near[0]}?" if near else ""


def _read_variable(field: str, text: str) -> Any:
    kind = Account.model_fields[field].annotation
    if kind is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ConfigurationError(f"TILLGATE_{field.upper()}", text, "is not true or false")
    if field == "options":
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise ConfigurationError("TILLGATE_OPTIONS", "***", "is not NAME=VALUE,NAME=VALUE")
        return {name.strip(): value.strip() for name, _, value in pairs}
    if field in _LISTS:
        return tuple(part for part in (part.strip() for part in text.split(",")) if part)
    return text
