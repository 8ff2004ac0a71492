"""The settings: one dictionary `TILLGATE_SALEOR` in the project's settings. An unknown key is an
error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tillgate.shop import SettingsLoader, is_web_address, read_settings

PLUGIN: Final = "saleor"
"""The plugin's name, which Tillgate's rows carry."""

_PORTS: Final = {"http": 80, "https": 443}
_FROZEN: Final = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

_Model = TypeVar("_Model", bound=BaseModel)


def origin_of(address: object) -> str | None:
    """Return the origin of an http(s) address, such as `https://shop.example`, or None if it has
    none.
    """
    if not isinstance(address, str) or not is_web_address(address):
        return None
    parts = urlsplit(address)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (
        f":{parts.port}" if parts.port not in (None, _PORTS[parts.scheme]) else ""
    )


def _origin(value: object) -> str:
    if isinstance(value, str) and (origin := origin_of(value)) == value.rstrip("/").lower():
        return origin
    raise ValueError(f"{value!r} is not an origin such as https://shop.example, without a path")


def _origins(value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple):
        return tuple(_origin(one) for one in value)
    raise ValueError('must be a list of origins such as ["https://shop.example"]')


def _page(value: object) -> str:
    if value == "" or (isinstance(value, str) and is_web_address(value.replace("{id}", ""))):
        return str(value)
    raise ValueError(
        f"{value!r} is not an address such as https://shop.example/checkout?checkout={{id}}",
    )


def _methods(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if (
        isinstance(value, list | tuple)
        and all(isinstance(one, str) and one for one in value)
        and len(set(value)) == len(value)
    ):
        return tuple(map(str, value))
    raise ValueError('must be a list of codes, without repeats, such as ["alipay", "paypal"]')


def _keys(value: object) -> tuple[str, ...]:
    if (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(one, str) and len(one) >= _SHORTEST_KEY for one in value)
    ):
        return tuple(value)
    raise ValueError(
        f"must be a list of random texts of at least {_SHORTEST_KEY} characters, the newest first",
    )


_SHORTEST_KEY: Final = 32

Origins = Annotated[tuple[str, ...], BeforeValidator(_origins)]


class Channel(BaseModel):
    """The payment settings of one channel of a Saleor."""

    model_config = _FROZEN

    account: str = "default"
    """The account of TILLGATE["ACCOUNTS"] that takes the channel's money."""
    payment_methods: Annotated[tuple[str, ...] | None, BeforeValidator(_methods)] = None
    """The payment methods that the channel offers, in this order; all of
    TILLGATE["PAYMENT_METHODS"] when not set.
    """


def _table(value: object, kind: type[_Model], name: str) -> Mapping[str, _Model]:
    """Read a dictionary of inner settings; an error names the inner one."""
    if not isinstance(value, Mapping):
        # pydantic names the field
        raise ValueError("must be a dictionary of dictionaries")  # noqa: TRY004
    return {key: read_settings(f"{name}[{key!r}]", given, kind) for key, given in value.items()}


def _channels(value: object) -> Mapping[str, Channel]:
    return _table(value, Channel, "CHANNELS")


class Saleor(BaseModel):
    """A Saleor that may install the App."""

    model_config = _FROZEN

    storefronts: Origins = ()
    """The origins of its storefronts: shoppers return only to these."""
    checkout_url: Annotated[str, BeforeValidator(_page)] = ""
    """A storefront's page on which the shopper of a checkout chooses another payment method; `{id}`
    is the checkout's identifier.
    """
    dashboards: Origins = ()
    """The origins of its dashboard, which alone may show the App's page; the Saleor's own origin
    when empty.
    """
    parts: bool = False
    """Whether a paid checkout or order may get more money: then the plugin trusts this Saleor to
    ask only for the rest.
    """
    channels: Annotated[Mapping[str, Channel], BeforeValidator(_channels)] = Field(
        default_factory=dict,
    )
    """Channels by slug; every other channel has the account `default` and every payment method."""


def _saleors(value: object) -> Mapping[str, Saleor]:
    table = _table(value, Saleor, "SALEORS")
    return {_origin(origin): saleor for origin, saleor in table.items()}


class Settings(BaseModel):
    """All settings with their defaults. In the project's settings the names are in capitals."""

    model_config = _FROZEN

    saleors: Annotated[Mapping[str, Saleor], BeforeValidator(_saleors)]
    """The Saleors that may install the App, by their origin."""
    encryption_keys: Annotated[tuple[str, ...], BeforeValidator(_keys)] | None = Field(
        default=None,
        repr=False,
    )
    """The keys for tokens in the database: the first encrypts, all decrypt. SECRET_KEY and its
    fallbacks if not set.
    """
    app_id: Annotated[str, Field(pattern=r"^[a-z0-9.-]{1,64}$")] = "tillgate"
    """The App's identifier; storefronts use it as the name of the payment gateway."""
    app_name: Annotated[str, Field(min_length=1, max_length=64)] = "Tillgate"
    """The App's name in Saleor."""

    def saleor(self, api_url: str) -> Saleor | None:
        """Return the settings of the Saleor that has this address, or None when it may not install
        the App.
        """
        origin = origin_of(api_url)
        return self.saleors.get(origin) if origin else None


get_settings: Final = SettingsLoader("TILLGATE_SALEOR", Settings)
"""Return the project's settings, read once; raises `ConfigurationError` naming the wrong one."""
