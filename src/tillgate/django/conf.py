"""The settings: one dictionary `TILLGATE` in the project's settings. An unknown key is an error."""

from __future__ import annotations

import contextlib
import difflib
import functools
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.signals import setting_changed
from django.urls import get_script_prefix, reverse
from django.utils import translation
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from tillgate.account import Account
from tillgate.errors import ConfigurationError
from tillgate.lifecycle.payment import DISPUTABLE
from tillgate.wire.messages import DEFAULT_TIMEOUT_MINUTES
from tillgate.wire.methods import CODE
from tillgate.wire.urls import is_https, is_web_address, without_user

_LONGEST: Final = {"account": 128, "merchant_no": 64, "base_url": 255}
"""The column lengths of a payment, which stores the account that made it. Settings cannot import
models.
"""
_SHORTEST_SECRET: Final = 16
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SECRET: Final = frozenset(
    {"ACCOUNTS", "ALERT_WEBHOOK_URL", "ALERT_WEBHOOK_SECRET", "MONITOR_TOKEN"},
)
"""The settings with values that no error may show."""


def _accounts(value: object) -> Mapping[str, Account]:
    if not isinstance(value, Mapping) or not all(
        isinstance(fields, Mapping) for fields in value.values()
    ):
        raise ConfigurationError(
            "TILLGATE['ACCOUNTS']",
            "***",
            'is not a dictionary of accounts such as {"default": {"BASE_URL": ...}}',
        )
    for alias in value:
        if not isinstance(alias, str) or not 0 < len(alias) <= _LONGEST["account"]:
            remedy = (
                f"is not an alias: give text of 1 to {_LONGEST['account']} characters, such "
                'as "default"'
            )
            raise ConfigurationError("TILLGATE['ACCOUNTS']", alias, remedy)
    alike = {str(alias).casefold(): alias for alias in value}
    for alias in value:
        if alike[alias.casefold()] != alias:  # MariaDB treats them as equal
            remedy = (
                f"differs from {alike[alias.casefold()]!r} in capitals only: give them names "
                "that differ more"
            )
            raise ConfigurationError("TILLGATE['ACCOUNTS']", alias, remedy)
    return {
        alias: _account(f"TILLGATE['ACCOUNTS'][{alias!r}]", fields)
        for alias, fields in value.items()
    }


def _account(place: str, fields: Mapping[str, Any]) -> Account:
    """Make an account; an error message uses the names of the project's settings."""
    known = [name.upper() for name in Account.model_fields]
    _refuse_unknown(place, fields, known)
    base_url = fields.get("BASE_URL")
    if (
        isinstance(base_url, str)
        and is_web_address(base_url)
        and not is_https(base_url)
        and not fields.get("SANDBOX")
    ):
        remedy = (
            'is not https, which only a sandbox may do without: add "SANDBOX": True if it is one'
        )
        raise ConfigurationError(f"{place}['BASE_URL']", base_url, remedy)
    try:
        account = Account(**{name.lower(): field for name, field in fields.items()})
    except ConfigurationError as error:
        name, _, rest = error.field.partition(".")
        fault = ConfigurationError(
            f"{place}[{name.upper()!r}]{rest and f'.{rest}'}",
            error.value,
            error.remedy,
        )
    else:
        name = next(
            (
                name
                for name in ("merchant_no", "base_url")
                if len(getattr(account, name)) > _LONGEST[name]
            ),
            "",
        )
        if not name:
            return account
        remedy = f"is too long: payments keep at most {_LONGEST[name]} characters of it"
        fault = ConfigurationError(f"{place}[{name.upper()!r}]", getattr(account, name), remedy)
    raise fault


def _refuse_unknown(place: str, given: Iterable[object], known: list[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name).upper(), known, n=1)
            remedy = (
                f"did you mean {near[0]!r}?" if near else f"the settings are {', '.join(known)}"
            )
            raise ConfigurationError(place, name, f"is not a setting: {remedy}")


def _addresses(value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and all(
        isinstance(one, str) and "@" in one for one in value
    ):
        return tuple(value)
    raise ConfigurationError(
        "TILLGATE['REVIEW_MAIL_TO']",
        value,
        'must be a list of addresses, such as ["owner@shop.example"]',
    )


def _sender(value: object) -> str | None:
    if value is None or (isinstance(value, str) and "@" in value and value.isprintable()):
        return value
    raise ConfigurationError(
        "TILLGATE['REVIEW_MAIL_FROM']",
        value,
        'must be an address, such as "payments@shop.example"',
    )


def _alert_url(value: object) -> SecretStr | None:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if text is None or is_web_address(text):
        return None if text is None else SecretStr(str(text))
    # Error reports print local variables, and anyone who knows the address can write there.
    del value, text
    raise ConfigurationError(
        "TILLGATE['ALERT_WEBHOOK_URL']",
        "***",
        "must be an absolute https address, such as https://hooks.example/alerts",
    )


def _monitor_token(value: object) -> SecretStr | None:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if text is None or (isinstance(text, str) and len(text) >= _SHORTEST_SECRET and text.isascii()):
        return None if text is None else SecretStr(text)
    del value, text  # error reports print local variables
    raise ConfigurationError(
        "TILLGATE['MONITOR_TOKEN']",
        "***",
        f"must be a random ASCII text of {_SHORTEST_SECRET} characters or more",
    )


def _networks(value: object) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        if isinstance(value, list | tuple):
            return tuple(map(ip_network, value))
    except ValueError:
        pass
    raise ConfigurationError(
        "TILLGATE['MONITOR_NETWORKS']",
        value,
        'must be a list of networks, such as ["10.0.0.0/8"]',
    )


def _public_url(value: object) -> str:
    if isinstance(value, str) and is_web_address(value) and not set(value) & set("?#{}"):
        return value.rstrip("/")
    problem = "is missing: give" if value is None else "is not"
    remedy = (
        f"{problem} the shop's own absolute address, such as https://shop.example, without "
        "user name and query"
    )
    raise ConfigurationError("TILLGATE['PUBLIC_URL']", without_user(value), remedy)


def _methods(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        wrong = [
            method for method in value if not isinstance(method, str) or not CODE.fullmatch(method)
        ]
        if not wrong and len(set(value)) == len(value):
            return tuple(map(str, value))
        value = wrong or value
    raise ConfigurationError(
        "TILLGATE['PAYMENT_METHODS']",
        value,
        'must be a list of codes, without repeats, such as ["alipay", "paypal"]',
    )


_Minutes = Annotated[int, Field(ge=1, le=60 * 24 * 30)]
_Days = Annotated[int, Field(ge=1, le=36_500)]


class Settings(BaseModel):
    """All settings with their defaults. In the project's settings the names are in capitals."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )

    accounts: Annotated[Mapping[str, Account], BeforeValidator(_accounts)] = Field(
        default_factory=dict,
    )
    """The accounts by alias; a payment stores the alias of its account. A plugin may supply
    more.
    """
    public_url: Annotated[str, BeforeValidator(_public_url)]
    """The shop's own address, at which the gateway and shoppers reach the pages of
    `tillgate.django.urls`.
    """
    shop_name: str = ""
    """The shop's name on Tillgate's pages; the host of `public_url` if empty."""
    payment_methods: Annotated[tuple[str, ...] | None, BeforeValidator(_methods)] = None
    """The payment methods that shoppers may choose, in display order; None for all that the account
    takes.
    """
    timeout_minutes: _Minutes = DEFAULT_TIMEOUT_MINUTES
    """How long the payment page stays open."""
    order_unpaid_after_minutes: _Minutes = 60
    """How long a shopper may pay again after the last open payment ended, before the shop event
    `order_unpaid`.
    """
    order_payable_for_minutes: _Minutes = 60 * 24
    """How long after its first payment an order can be tried, and no shorter than the setting
    before.
    """
    notification_throttle_seconds: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """Notifications and returns query a payment at most once in this time; the worker's polls do
    not count.
    """
    queries_per_second: Annotated[float, Field(ge=0)] = 20.0
    """The most queries a worker sends to one account in a second; 0 sets no limit."""
    poll_connections: Annotated[int, Field(ge=1, le=100)] = 8
    """The most queries a worker has under way at one account."""
    disputable_days: Annotated[int, Field(ge=30, le=3650)] = DISPUTABLE.days
    """How long a payment is polled once a month after its end: banks may take paid money back, and
    money may come late.
    """
    worker_late_minutes: _Minutes = 15
    """How long the worker may be away before the checks complain."""
    delivery_tries_before_review: Annotated[int, Field(ge=1, le=100)] = 3
    """The number of failures of a shop's handler before a review opens; the worker retries after
    that too.
    """
    forged_notifications_before_review: Annotated[int, Field(ge=1)] = 20
    """The number of forged notifications of one payment before a review opens."""
    review_mail_to: Annotated[tuple[str, ...], BeforeValidator(_addresses)] = ()
    """The recipients of mail about open reviews; the project's MANAGERS if empty."""
    review_mail_minutes: _Minutes = 15
    """The least time between two such mails, and between two alerts."""
    review_mail_from: Annotated[str | None, BeforeValidator(_sender)] = None
    """The sender of that mail; None for the project's DEFAULT_FROM_EMAIL."""
    alert_webhook_url: Annotated[SecretStr | None, BeforeValidator(_alert_url)] = None
    """An address that receives the same by POST; None for no alerts."""
    alert_webhook_secret: SecretStr | None = None
    """The key that signs the alerts."""
    monitor_token: Annotated[SecretStr | None, BeforeValidator(_monitor_token)] = None
    """The token that lets a monitor read `health/` and `metrics/`; None for none."""
    monitor_networks: Annotated[tuple[Any, ...], BeforeValidator(_networks)] = ()
    """The networks from which both can be read without it, by the address that Django sees."""
    details_kept_days: _Days | None = 600
    """How long after its last change an order keeps notifications, the gateway's answers and texts;
    None for ever.
    """
    payments_kept_days: _Days | None = None
    """How long after its last change an order is kept with its payments, refunds and reviews; None
    for ever.
    """

    @model_validator(mode="after")
    def _check_retention(self) -> Settings:
        payments, details = self.payments_kept_days, self.details_kept_days
        if payments is not None and (details is None or payments < details):
            remedy = (
                "is less than DETAILS_KEPT_DAYS "
                f"({'None, for ever' if details is None else details}): give as many days or "
                "more"
            )
            raise ConfigurationError("TILLGATE['PAYMENTS_KEPT_DAYS']", payments, remedy)
        return self

    @model_validator(mode="after")
    def _check_alerts(self) -> Settings:
        if self.alert_webhook_url is None:
            return self
        if self.alert_webhook_secret is None or len(self.alert_webhook_secret) < _SHORTEST_SECRET:
            remedy = (
                f"is missing or too short: give a random text of {_SHORTEST_SECRET} "
                "characters or more, which signs the alerts"
            )
            raise ConfigurationError("TILLGATE['ALERT_WEBHOOK_SECRET']", "***", remedy)
        is_trial = settings.DEBUG or any(account.sandbox for account in self.accounts.values())
        address = self.alert_webhook_url.get_secret_value()
        if not is_https(address) and not (is_trial and urlsplit(address).hostname in _LOOPBACK):
            remedy = "must be https; with DEBUG or a sandbox it may be http to this machine"
            raise ConfigurationError("TILLGATE['ALERT_WEBHOOK_URL']", "***", remedy)
        return self

    def address(self, name: str, *arguments: object) -> str:
        """Return the public address of a page.

        Django knows the shop's mount path in threads that answer a request, and with
        FORCE_SCRIPT_NAME also in the thread that set it up. The worker uses other threads. Under
        `i18n_patterns` the language of those is `LANGUAGE_CODE`, such as en-us in a shop whose
        pages are at /en/.
        """
        language = translation.get_language() or settings.LANGUAGE_CODE
        # Django uses a `LANGUAGE_CODE` that is none of `LANGUAGES` as it is
        with contextlib.suppress(LookupError):
            language = translation.get_supported_language_variant(language)
        with translation.override(language):
            path = reverse(name, args=arguments)
        mount = settings.FORCE_SCRIPT_NAME
        if mount is not None:
            path = f"{mount.rstrip('/')}/{path.removeprefix(get_script_prefix())}"
        return self.public_url + path


@functools.cache
def get_settings() -> Settings:
    """Return the project's settings, read once; raise `ConfigurationError` naming the wrong one."""
    given = getattr(settings, "TILLGATE", None)
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            "TILLGATE",
            None,
            'is not set: add TILLGATE = {"ACCOUNTS": {"default": {...}}, "PUBLIC_URL": ...} to '
            "the settings",
        )
    _refuse_unknown("TILLGATE", given, [name.upper() for name in Settings.model_fields])
    if "PUBLIC_URL" not in given:
        _public_url(None)
    try:
        return Settings(**{name.lower(): value for name, value in given.items()})
    except ConfigurationError as error:
        fault = error.with_traceback(None)  # its frames hold the tokens
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = str(first["loc"][0]).upper()
        shown = "***" if name in _SECRET else given.get(name)
        fault = ConfigurationError(f"TILLGATE[{name!r}]", shown, f"cannot be used: {first['msg']}")
    del given
    raise fault


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "TILLGATE":
        get_settings.cache_clear()


setting_changed.connect(_forget)
