"""GatewayProfile: the properties of any gateway, neutral by default; and the meanings of its
answers.

The profile of the built-in wire is a `Dialect`, which extends it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from pydantic import SecretStr

from tillgate.errors import ConfigurationError
from tillgate.wire.methods import Method, Terminal, read_currencies, read_methods, texts
from tillgate.wire.urls import is_web_address

__all__ = [
    "BUILT_IN",
    "DisputeStatus",
    "GatewayProfile",
    "Option",
    "RefundOutcome",
    "TransactionStatus",
]

BUILT_IN: Final = "gateway"
"""The plugin of the built-in wire."""
_GROUP: Final = "tillgate.profiles"
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


class TransactionStatus(StrEnum):
    """The meaning of a gateway's status word. Only PAID ever counts as paid."""

    PENDING = "pending"
    PROCESSING = "processing"
    """The shopper has finished, and the money is on its way, for days perhaps: a bank debit or a
    voucher.
    """
    PAID = "paid"
    FAILED = "failed"
    CLOSED = "closed"
    REFUNDED = "refunded"
    """It was paid, and some or all of it went back."""
    UNRECOGNISED = "unrecognised"
    """A word that no profile knows; its text is kept beside it."""


class DisputeStatus(StrEnum):
    """The state of a dispute (charge-back)."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


class RefundOutcome(StrEnum):
    """The gateway's answer about a refund. Only SUCCEEDED means that the money went back."""

    SUCCEEDED = "succeeded"
    PENDING = "pending"
    """The gateway has accepted the refund, and has not finished it."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A setting that the accounts of one gateway have beside those of every account.

    `kind` is `str`, `int` or `bool`. A secret is text, and the plugin reads it from a `SecretStr`.
    """

    name: str
    help: str
    kind: type[str] | type[int] | type[bool] = str
    secret: bool = False
    required: bool = False
    default: str | int | bool | None = None

    def __post_init__(self) -> None:
        place = f"options.{self.name}"
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ConfigurationError("options", self.name, "is not a name, such as client_id")
        if not isinstance(self.help, str) or not self.help.strip():
            raise ConfigurationError(f"{place}.help", self.help, "is not a text that explains it")
        if self.kind not in (str, int, bool) or (self.secret and self.kind is not str):
            raise ConfigurationError(
                f"{place}.kind",
                getattr(self.kind, "__name__", self.kind),
                "is not str, int or bool; a secret is str",
            )

    def read(self, value: object) -> str | int | bool | SecretStr:
        """Return the value of an account, or raise `ConfigurationError`. Numbers and truth may come
        as text, as variables of the environment have them.
        """
        given = value.get_secret_value() if isinstance(value, SecretStr) else value
        if self.kind is str and isinstance(given, str) and given == given.strip():
            if given and given.isprintable():
                return SecretStr(given) if self.secret else given
        elif self.kind is int and not isinstance(given, bool) and isinstance(given, str | int):
            if isinstance(given, int) or (given.isascii() and given.isdecimal()):
                return int(given)
        elif self.kind is bool and isinstance(given, bool):
            return given
        elif self.kind is bool and isinstance(given, str) and given.lower() in _TRUE | _FALSE:
            return given.lower() in _TRUE
        wanted = {
            str: "text without spaces around it",
            int: "a whole number",
            bool: "True or False",
        }[self.kind]
        del given
        raise ConfigurationError(
            f"options.{self.name}",
            "***" if self.secret else value,
            f"is not {wanted}: {self.help}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayProfile:
    """The properties of one gateway: addresses, currencies, payment methods and the settings of its
    accounts. src/tillgate/gateways/README.md explains each field.
    """

    name: str
    label: str = ""
    """The gateway's name as people write it, such as "MyPay"; empty: `name` with a capital."""
    plugin: str = ""
    """The plugin that serves the accounts, by its entry-point name; empty: that of the profile."""
    base_url: str = ""
    """The gateway's live address where all merchants have the same: an account need not name it."""
    sandbox_url: str = ""
    """The address of its test system, for accounts that are a sandbox; empty: the same address."""
    required: tuple[str, ...] = ()
    """The settings that an account of the gateway must have, besides its token."""
    options: tuple[Option, ...] = ()
    """The settings that only accounts of this gateway have."""
    currencies: tuple[str, ...] = ()
    """The currencies of the gateway; at least one."""
    methods: tuple[Method, ...] = ()
    terminals: tuple[str, ...] = tuple(map(str, Terminal))
    timeout_minutes: tuple[int, int] = (1, 60 * 24 * 30)
    """The least and the most minutes that a payment page can stay open."""
    macros: tuple[str, ...] = ()
    """The names that the gateway, or the plugin, replaces in the address of the return."""
    paid_words: frozenset[str] = frozenset()
    """The words that mean "paid" in the parameter `status` of a return."""
    acknowledgement: str = ""
    """The body that acknowledges a notification."""
    expired_is_forgotten: bool = False
    """Whether the gateway forgets every payment after its page has closed."""
    settle_currency_is_currency: bool = False
    """Whether an answer that says paid must name the payment's currency as settlement currency."""
    kept_fields: frozenset[str] = frozenset()
    """The fields of notifications and answers that are stored, at every depth; all others are
    dropped, since they may be about the shopper. A container is listed as well as its members.
    """

    def __post_init__(self) -> None:
        # A wrong value must fail here: later it would do harm without an error.
        for name in ("name", "label", "plugin", "base_url", "sandbox_url", "acknowledgement"):
            if not isinstance(getattr(self, name), str):
                raise ConfigurationError(name, getattr(self, name), "is not text")
        if not self.name:
            raise ConfigurationError("name", "", "is empty: name the gateway")
        object.__setattr__(self, "plugin", self.plugin or self.name)
        for name in ("base_url", "sandbox_url"):
            address = getattr(self, name)
            if address and not is_web_address(address):
                raise ConfigurationError(name, address, "is not an absolute http(s) address")
        for name in ("expired_is_forgotten", "settle_currency_is_currency"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(name, getattr(self, name), "is not True or False")
        for name in ("paid_words", "kept_fields"):
            object.__setattr__(self, name, frozenset(texts(name, getattr(self, name))))
        for name in ("required", "macros", "terminals"):
            object.__setattr__(self, name, texts(name, getattr(self, name)))
        object.__setattr__(self, "currencies", read_currencies("currencies", self.currencies))
        if not self.currencies:
            raise ConfigurationError("currencies", (), "is empty: list at least one currency")
        object.__setattr__(self, "methods", read_methods(self.methods))
        object.__setattr__(self, "timeout_minutes", _bounds(self.timeout_minutes))
        object.__setattr__(self, "options", _options(self.options))

    @staticmethod
    def named(name: str) -> GatewayProfile | None:
        """Return a preset or an installed plugin's profile by its name; None for an unknown
        name.
        """
        if name in PRESETS:
            return PRESETS[name]
        found = entry.load() if (entry := _plugins_own().get(name)) else None
        return found if isinstance(found, GatewayProfile) else None

    @staticmethod
    def names() -> list[str]:
        """Return the names of the presets, and of the installed plugins' profiles."""
        return [*PRESETS, *sorted(_plugins_own())]

    @property
    def shown_name(self) -> str:
        """The gateway's name for people."""
        return self.label or self.name[:1].upper() + self.name[1:]

    @property
    def is_of_plugin(self) -> bool:
        """Whether a gateway plugin serves the accounts, and not Tillgate's own client."""
        return self.plugin != BUILT_IN

    def asks_for(self, setting: str) -> bool:
        """Return whether an account of the gateway has a setting that not every account has."""
        match setting:
            case "base_url":
                return not self.base_url
            case "merchant_no" | "store_no":
                return setting in self.required
            case "webhook_secrets":
                return self.is_of_plugin
        return setting != "settle_currency"

    def status(self, word: str) -> TransactionStatus:
        """Return the meaning of the word of a hint; an unknown word is UNRECOGNISED, never paid."""
        is_paid = word in self.paid_words
        return TransactionStatus.PAID if is_paid else TransactionStatus.UNRECOGNISED

    def timeout(self, minutes: int) -> int:
        """Return the minutes for which a payment page stays open when so many are wanted."""
        return min(max(minutes, self.timeout_minutes[0]), self.timeout_minutes[1])

    def read_options(self, given: object) -> dict[str, str | int | bool | SecretStr]:
        """Return the options of an account, with defaults; raise `ConfigurationError` naming the
        plugin, the option and the value.
        """
        if not isinstance(given, Mapping):
            raise ConfigurationError("options", "***", 'is no table such as {"client_id": "..."}')
        declared = {option.name: option for option in self.options}
        if unknown := next((name for name in given if name not in declared), None):
            listed = ", ".join(declared) or "none"
            raise ConfigurationError(
                f"options.{unknown}",
                "***",
                f"is no option of the plugin {self.plugin!r}, which has: {listed}",
            )
        for option in self.options:
            if option.required and given.get(option.name) is None:
                remedy = f"is missing: the plugin {self.plugin!r} needs it: {option.help}"
                raise ConfigurationError(f"options.{option.name}", None, remedy)
        values = {name: given.get(name, declared[name].default) for name in declared}
        return {
            name: declared[name].read(value) for name, value in values.items() if value is not None
        }


PRESETS: Final[dict[str, GatewayProfile]] = {}
"""The profiles of the built-in wire by name, which `tillgate.wire.dialects` adds."""


def _options(given: object) -> tuple[Option, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(one, Option) for one in given):
        raise ConfigurationError("options", given, "is not a tuple of Option")
    names = [option.name for option in given]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError("options", repeated, "is declared twice")
    return tuple(given)


def _bounds(given: object) -> tuple[int, int]:
    match given:
        case (int() as least, int() as most) if 1 <= least <= most:
            return least, most
    raise ConfigurationError(
        "timeout_minutes",
        given,
        "is not the least and the most minutes, such as (30, 1440)",
    )


@functools.cache
def _plugins_own() -> dict[str, EntryPoint]:
    """Return the profiles that gateway plugins have under the entry points `tillgate.profiles`, by
    name.
    """
    # To look through all installed distributions takes tens of milliseconds, and a page asks dozens
    # of times.
    return {entry.name: entry for entry in entry_points(group=_GROUP)}
