"""Account: one set of credentials at the gateway, and its connection settings."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    ValidationError,
)

from tillgate.errors import ConfigurationError
from tillgate.wire.dialects import REFERENCE, Dialect
from tillgate.wire.exchange import Credentials
from tillgate.wire.methods import Method, read_currencies, read_methods
from tillgate.wire.profile import GatewayProfile
from tillgate.wire.urls import is_https, is_public_address, is_web_address, without_user

__all__ = ["Account"]


def _base_url(value: object) -> str:
    if isinstance(value, str) and is_web_address(value) and not set(value) & set("?#{}"):
        return value.rstrip("/")
    remedy = (
        "is not an absolute http(s) address without user name and query, such as "
        "https://pay.example"
    )
    raise ConfigurationError("base_url", without_user(value), remedy)


def _merchant_no(value: object) -> str:
    if isinstance(value, str) and value.isprintable() and value == value.strip():
        return value
    raise ConfigurationError(
        "merchant_no",
        value,
        "is not a merchant number: give the text that the service issued",
    )


def _token(value: object) -> SecretStr:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and text and text == text.strip() and text.isprintable():
        return SecretStr(text)
    # an almost right token is still a secret, and error reports print local variables
    del (
        value,
        text,
    )
    raise ConfigurationError(
        "token",
        "***",
        "is not text, is empty or has spaces around it: give the merchant's secret token",
    )


def _webhook_secrets(value: object) -> tuple[SecretStr, ...]:
    given = (value,) if isinstance(value, str | SecretStr) else value
    if isinstance(given, list | tuple):
        with suppress(ConfigurationError):
            return tuple(_token(one) for one in given)
    del value, given
    raise ConfigurationError(
        "webhook_secrets",
        "***",
        "are not secrets: give one text, or two while you change it",
    )


def _dialect(value: object) -> GatewayProfile:
    found = GatewayProfile.named(value) if isinstance(value, str) else value
    if isinstance(found, GatewayProfile):
        return found
    remedy = (
        f"is not a GatewayProfile or the name of one: {', '.join(GatewayProfile.names())}; is the "
        "plugin of this gateway installed?"
    )
    raise ConfigurationError("dialect", value, remedy)


def _account_currencies(value: object) -> tuple[str, ...]:
    return read_currencies("currencies", value)


def _store_no(value: object) -> str:
    if isinstance(value, str) and value.isprintable() and value == value.strip():
        return value
    raise ConfigurationError(
        "store_no",
        value,
        "is not a store number: give the text that the service issued",
    )


def _settle_currency(value: object) -> str:
    return "" if value == "" else read_currencies("settle_currency", (value,))[0]


class _Options(Mapping[str, Any]):
    """The options of an account, which is hashable. Secrets are `SecretStr`."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)

    def shown(self) -> dict[str, str]:
        """Return the options as text, secrets masked."""
        return {name: str(value) for name, value in self._values.items()}


_NO_OPTIONS: Final = _Options({})


def _options(value: object) -> _Options:
    if isinstance(value, _Options):
        return value
    raise ConfigurationError("options", "***", 'is no table such as {"client_id": "..."}')


_Seconds = Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)]


class Account(BaseModel):
    """Credentials at one gateway: frozen, comparable, hashable. No secret of it appears in a repr,
    log or error (I11).

    `sandbox=True` allows http addresses. `dialect` is a `GatewayProfile`, the name of a preset
    (`reference`, `examples` or `v3`), or that of an installed gateway plugin; it decides whether
    `base_url`, `merchant_no` and `store_no` are needed, and which `options` there are. `currencies`
    and `methods` are those that the merchant's contract allows; empty stands for all of the
    dialect. `settle_currency` replaces the currency in which the dialect settles a payment.
    `webhook_secrets` sign the notifications to the account's own address; there are two while one
    is replaced.

    A connection must be made within `connect_timeout_seconds`, each read must bring data within
    `read_timeout_seconds`, and a whole call, its retries included, ends within `deadline_seconds`.
    A query is tried `query_attempts` times; pay and refund are never repeated. `max_connections`
    bounds the connections for payments and queries, and those for refunds.

    `public_addresses_only=True` connects to addresses of the internet alone, even when the host's
    name resolves to another address. It is for a `base_url` that comes from people without access
    to the services of your own network.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )

    base_url: Annotated[str, BeforeValidator(_base_url)]
    merchant_no: Annotated[str, BeforeValidator(_merchant_no)] = ""
    token: Annotated[SecretStr, BeforeValidator(_token)]
    sandbox: bool = False
    dialect: Annotated[GatewayProfile, BeforeValidator(_dialect)] = REFERENCE
    currencies: Annotated[tuple[str, ...], BeforeValidator(_account_currencies)] = ()
    methods: Annotated[tuple[Method, ...], BeforeValidator(read_methods)] = ()
    store_no: Annotated[str, BeforeValidator(_store_no)] = ""
    webhook_secrets: Annotated[tuple[SecretStr, ...], BeforeValidator(_webhook_secrets)] = ()
    settle_currency: Annotated[str, BeforeValidator(_settle_currency)] = ""
    options: Annotated[_Options, PlainValidator(_options), PlainSerializer(_Options.shown)] = (
        _NO_OPTIONS
    )
    connect_timeout_seconds: _Seconds = 5.0
    read_timeout_seconds: _Seconds = 20.0
    deadline_seconds: _Seconds = 30.0
    query_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    max_connections: Annotated[int, Field(ge=1, le=1000)] = 64
    public_addresses_only: bool = False

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            token: str | SecretStr,
            base_url: str = "",
            merchant_no: str = "",
            sandbox: bool = False,
            dialect: GatewayProfile | str = REFERENCE,
            currencies: Collection[str] = (),
            methods: Collection[Method | str | Mapping[str, Any]] = (),
            store_no: str = "",
            webhook_secrets: str | SecretStr | Collection[str | SecretStr] = (),
            settle_currency: str = "",
            options: Mapping[str, Any] = _NO_OPTIONS,
            connect_timeout_seconds: float = 5.0,
            read_timeout_seconds: float = 20.0,
            deadline_seconds: float = 30.0,
            query_attempts: int = 3,
            max_connections: int = 64,
            public_addresses_only: bool = False,
        ) -> None: ...

    else:

        def __init__(self, **fields: Any) -> None:
            try:
                _fill_in(fields)
                super().__init__(**fields)
            except ConfigurationError as error:
                fault = error.with_traceback(None)  # its frames hold the fields too
            except ValidationError as error:
                fault = _first_fault(error, fields)
            else:
                own_fault = self._fault()
                if own_fault is None:
                    return
                fault = own_fault
            fields.clear()
            # Outside the except block and without the fields: error reports print local variables,
            # which I11 forbids.
            raise fault

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed, validated like any other account: pydantic's own
        method would accept any value.
        """
        return type(self)(
            **{name: getattr(self, name) for name in type(self).model_fields} | dict(update or {}),
        )

    def _fault(self) -> ConfigurationError | None:
        """Return the error about fields that do not go together, or None."""
        if not (self.sandbox or is_https(self.base_url)):
            remedy = (
                "is not https, and only a sandbox account may use http: sandbox=True, "
                "--sandbox-account, TILLGATE_SANDBOX=true"
            )
            return ConfigurationError("base_url", self.base_url, remedy)
        if self.public_addresses_only and not _may_be_public(self.base_url):
            return ConfigurationError(
                "base_url",
                self.base_url,
                "is in a private network, and the account has public_addresses_only",
            )
        if missing := next(
            (name for name in self.dialect.required if not getattr(self, name)),
            None,
        ):
            return ConfigurationError(
                missing,
                None,
                f"is missing: the dialect {self.dialect.name} needs it",
            )
        taken = self.dialect.currencies
        if unknown := next(
            (currency for currency in self.currencies if currency not in taken),
            None,
        ):
            return ConfigurationError(
                "currencies",
                unknown,
                f"is not a currency of the dialect {self.dialect.name}: {', '.join(taken)}",
            )
        return None

    @property
    def taken_currencies(self) -> tuple[str, ...]:
        """The currencies that the account takes."""
        return self.currencies or self.dialect.currencies

    @property
    def taken_methods(self) -> tuple[Method, ...]:
        """The payment methods that the account takes."""
        return self.methods or self.dialect.methods

    @property
    def credentials(self) -> Credentials:
        """The parts of this account that the built-in wire needs; raise `ConfigurationError` where
        a plugin speaks with its gateway.
        """
        if self.dialect.is_of_plugin or not isinstance(self.dialect, Dialect):
            remedy = (
                f"is served by the plugin {self.dialect.plugin!r}: call tillgate.hooks.pay, query "
                "and refund in place of this client"
            )
            raise ConfigurationError("dialect", self.dialect.name, remedy)
        return Credentials(
            base_url=self.base_url,
            merchant_no=self.merchant_no,
            token=self.token.get_secret_value(),
            dialect=self.dialect,
            sandbox=self.sandbox,
            currencies=self.taken_currencies,
            methods=self.taken_methods,
            store_no=self.store_no,
            settle_currency=self.settle_currency,
        )


def _fill_in(fields: dict[str, Any]) -> None:
    """Add the address of a gateway that has the same for all merchants, and read the options."""
    profile = _dialect(fields.get("dialect", REFERENCE))
    address = (profile.sandbox_url if fields.get("sandbox") else "") or profile.base_url
    if address and not fields.get("base_url"):
        fields["base_url"] = address
    if profile.options or fields.get("options", _NO_OPTIONS) != _NO_OPTIONS:
        fields["options"] = _Options(profile.read_options(fields.get("options", _NO_OPTIONS)))
    elif "options" in fields:
        fields["options"] = _NO_OPTIONS


def _may_be_public(base_url: str) -> bool:
    """Return whether a host is a name, which only the transport can judge, or a public address."""
    host = urlsplit(base_url).hostname or ""
    try:
        return is_public_address(host)
    except ValueError:
        return True


def _first_fault(error: ValidationError, fields: Mapping[str, Any]) -> ConfigurationError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return ConfigurationError(name, None, "is missing")
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, Account.model_fields, n=1)
        return ConfigurationError(
            name,
            "***",
            "is no setting of an account" + (f": did you mean {near[0]}?" if near else ""),
        )
    shown = fields.get(name) if name in _SHOWN else "***"  # an unknown name may be a misspelt token
    return ConfigurationError(name, shown, f"cannot be used in an account: {first['msg']}")


SECRETS: Final = ("token", "webhook_secrets", "options")
"""The settings that no text shows."""

_SHOWN = frozenset(Account.model_fields) - set(SECRETS)
