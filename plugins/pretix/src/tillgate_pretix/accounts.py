"""The accounts of an event, one live and one for test mode. They are in the event's settings, like
those of every pretix payment provider.

Each order records whether it was placed in test mode, and only the account of that mode can pay it.
So play money pays no valid ticket, and a test of the shop costs no real money.

Tillgate queries and refunds a payment with the account that made it. So an alias stands for one
merchant at one address. If an event changes to another merchant, it keeps the former account once
payments were made with it.

The dialect decides which settings an account has. An event may keep others, which a former dialect
needed.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_variables
from django_scopes import scopes_disabled
from pretix.base.models import Event
from pretix.base.settings import SettingsSandbox

from tillgate import (
    REFERENCE,
    Account,
    ConfigurationError,
    GatewayProfile,
    Money,
    TillgateError,
    shop,
)

HOLDER: Final = "tillgate"
"""The identifier of the provider that stores the settings for all methods."""

FIELDS: Final = ("base_url", "merchant_no", "token")
"""The setting names of an account; the account for test mode has the prefix `test_`."""
OPTIONS: Final = ("dialect", "webhook_secrets", "store_no", "currencies", "settle_currency")
"""The setting names that an account may leave empty."""
LABELS: Final[dict[str, Any]] = {
    "dialect": _("Payment service"),
    "base_url": _("Address of the payment service"),
    "merchant_no": _("Merchant number"),
    "token": _("Secret token"),
    "webhook_secrets": _("Webhook secret"),
    "store_no": _("Store number"),
    "settle_currency": _("Settlement currency"),
}
"""The labels of settings in the form."""
_NAMES: Final = re.compile(rf"(?<!\w)'[^']*'|\b(?:test_)?({'|'.join(LABELS)})\b(?: \(--[^)]*\))?")
"""The names of settings in Tillgate's messages, with the options of its command, and quoted
words, which are the gateway's or the organizer's.
"""
SECRETS: Final = ("token", "webhook_secrets")
"""The setting names whose values no page and no history shows."""

_PRIVATE: Final = (
    "is in a private network: only with allow_http_to_private_networks in "
    "pretix.cfg may organizers enter it"
)
LIVE: Final = "pretix-"
"""The beginning of the names of all accounts of pretix."""
_TEST: Final = "pretix-test-"


def settings_of(event: Any) -> Any:
    """Return the settings of this plugin that an event has, of its own or of its organizer's; or
    those of an organizer.
    """
    return SettingsSandbox("payment", HOLDER, event)


def alias_of(order: Any) -> str:
    """Return the alias of the account that pays an order now, as Tillgate's rows store it."""
    return alias_of_event(order.event, testmode=order.testmode)


def alias_of_event(event: Any, *, testmode: bool) -> str:
    """Return the alias of the account that an event has for a mode."""
    return _alias(event, settings_of(event), testmode=testmode)


def prefixes_of(event: Any) -> tuple[str, str]:
    """Return the beginnings of the names of all accounts of an event, present and former."""
    return f"{LIVE}{event.pk}-", f"{_TEST}{event.pk}-"


def find(alias: str) -> Account | None:
    """Return the account of an alias, or None if the alias is not the plugin's or the event has no
    account.
    """
    testmode, event = alias.startswith(_TEST), event_of_alias(alias)
    for values in _known(event, testmode=testmode) if event is not None else ():
        if _alias(event, values, testmode=testmode) == alias:
            return build(values, testmode=testmode)
    return None


def event_of_alias(alias: str) -> Any:
    """Return the event of an account's alias, or None if the alias is not the plugin's or the event
    is gone.
    """
    event_id = alias.removeprefix(_TEST if alias.startswith(_TEST) else LIVE).partition("-")[0]
    if not alias.startswith(LIVE) or not event_id.isdecimal():
        return None
    with scopes_disabled():
        return Event.objects.select_related("organizer").filter(pk=int(event_id)).first()


def is_complete(event: Any, *, testmode: bool) -> bool:
    """Tell whether an event has an account for that mode."""
    given = _given(settings_of(event), _prefix(testmode=testmode))
    return all(given.get(field, "given") for field in FIELDS)


def is_begun(values: Any, *, testmode: bool) -> bool:
    """Tell whether settings have at least a part of an account."""
    given = _given(values, _prefix(testmode=testmode))
    return any(given.get(field) for field in FIELDS)


def are_alike(values: Any, others: Any, *, testmode: bool) -> bool:
    """Tell whether two settings have the same account."""
    prefix = _prefix(testmode=testmode)
    return _given(values, prefix) == _given(others, prefix)


def dialect_of(values: Any, prefix: str) -> GatewayProfile | None:
    """Return the dialect that settings name, or None if the plugin that has it is not installed."""
    return GatewayProfile.named(values.get(f"{prefix}dialect") or REFERENCE.name)


def setting_of(method: str) -> str:
    """Return the name of the setting that says whether an event offers a payment method."""
    return f"method_{method}"


def labelled(text: str) -> str:
    """Return a message of Tillgate's with the labels of the form instead of the names of
    settings.
    """
    return _NAMES.sub(
        lambda found: f"“{LABELS[found[1]]}”" if found[1] else found[0],
        text,
    )


def _prefix(*, testmode: bool) -> str:
    return "test_" if testmode else ""


def _given(values: Any, prefix: str) -> dict[str, str]:
    """Return the settings that an account of the dialect has, empty ones too; without its plugin
    only those that every account has.
    """
    dialect = dialect_of(values, prefix)
    names = [
        name
        for name in (*FIELDS, *OPTIONS)
        if (dialect.asks_for(name) if dialect else name in ("token", "dialect"))
    ]
    return {name: str(values.get(prefix + name) or "").strip() for name in names}


def _alias(event: Any, values: Any, *, testmode: bool) -> str:
    given = _given(values, _prefix(testmode=testmode))
    maker = f"{given.get('base_url', given['dialect'])} {given.get('merchant_no', '')}"
    return f"{_TEST if testmode else LIVE}{event.pk}-{sha256(maker.encode()).hexdigest()[:8]}"


# Former accounts ----------------------------------------------------------------------------------


def _former(event: Any) -> list[dict[str, str]]:
    former: list[dict[str, str]] = settings_of(event).get("former", as_type=list, default=[])
    return former


def _known(event: Any, *, testmode: bool) -> Iterator[Any]:
    """Yield the accounts of a mode: first the present one, with the newest token, then the former
    ones.
    """
    if is_complete(event, testmode=testmode):
        yield settings_of(event)
    yield from (
        values for values in _former(event) if f"{_prefix(testmode=testmode)}token" in values
    )


@sensitive_variables()
def keep_former(event: Any, before: Any, given: Any) -> None:
    """Keep the accounts that new settings replace, if payments were made with them. `before` are
    the settings that an event had, and `given` the new ones.
    """
    kept = _former(event)
    for testmode in (False, True):
        names = [_prefix(testmode=testmode) + name for name in (*FIELDS, *OPTIONS)]
        ours = {name: before.get(name) for name in names}
        alias = _alias(event, ours, testmode=testmode)
        if _alias(event, given, testmode=testmode) != alias and shop.has_payments(alias):
            kept = [
                ours,
                *(values for values in kept if _alias(event, values, testmode=testmode) != alias),
            ]
    if kept:
        settings_of(event).set("former", kept)


def former_merchants(event: Any) -> list[tuple[str, str]]:
    """Return merchant number and address of the former accounts of an event, the newest first.

    A gateway that needs neither is named by its dialect.
    """
    kept = [
        (values, prefix)
        for values in _former(event)
        for prefix in ("", "test_")
        if f"{prefix}token" in values
    ]
    found = [_given(values, prefix) for values, prefix in kept]
    return [
        (given.get("merchant_no", ""), given.get("base_url", given["dialect"])) for given in found
    ]


@sensitive_variables()
def build(values: Any, *, testmode: bool) -> Account:
    """Return the account that settings describe; raise `ConfigurationError` naming the field as the
    form does.

    An account of a gateway plugin takes the payment methods that the event offers.
    """
    prefix = _prefix(testmode=testmode)
    fields: dict[str, Any] = {name: text for name, text in _given(values, prefix).items() if text}
    for name in ("currencies", "webhook_secrets"):
        if name in fields:
            fields[name] = [
                part
                for part in re.split(
                    r"[\s,]+",
                    fields[name].upper() if name == "currencies" else fields[name],
                )
                if part
            ]
    dialect = dialect_of(values, prefix)
    if dialect and dialect.is_of_plugin:
        fields["methods"] = [
            method
            for method in dialect.methods
            if str(values.get(setting_of(method.code))) == "True"
        ]
    try:
        return Account(
            sandbox=testmode,
            public_addresses_only=not settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS,
            **fields,
        )
    except ConfigurationError as error:
        fault = ConfigurationError(prefix + error.field, error.value, error.remedy)
    del values, fields
    # outside the except block, and without the token: error reports print local variables (I11)
    raise fault


def methods_that_take(event: Any, total: Any, *, testmode: bool) -> frozenset[str]:
    """Return the methods with which the account takes the event's currency, and a total that is
    known and more than nothing.
    """
    if not is_complete(event, testmode=testmode):
        return frozenset()
    try:
        price = Money(total, event.currency) if total is not None and total > 0 else None
        alias = alias_of_event(event, testmode=testmode)
        if event.currency not in shop.find_account(alias).taken_currencies:
            return frozenset()
        choices = shop.payment_methods(alias, price)
    except (
        TillgateError
    ):  # the checks report it; a shop with other ways to pay continues without these
        return frozenset()
    return frozenset(
        one.code for one in choices if not one.problem and event.currency in one.currencies
    )


def refuse_private(base_url: str, *, testmode: bool) -> None:
    """Raise `ConfigurationError` for a name that leads to a private network or nowhere, unless
    pretix's own option allows it.

    Tillgate judges the address again whenever it connects. Here organizers learn of it while they
    look at the form.
    """
    if settings.ALLOW_HTTP_TO_PRIVATE_NETWORKS:
        return
    try:
        found = socket.getaddrinfo(urlsplit(base_url).hostname, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        remedy = "leads nowhere: no such name is known. Check the spelling"
    else:
        if all(shop.is_public_address(str(address[0])) for *_, address in found):
            return
        remedy = _PRIVATE
    raise ConfigurationError(f"{_prefix(testmode=testmode)}base_url", base_url, remedy)
