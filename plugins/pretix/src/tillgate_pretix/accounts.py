"""The accounts of an event, one live and one for test mode. They are in the event's settings, like those of every pretix payment provider.

Each order records whether it was placed in test mode, and only the account of that mode can pay it. So play money pays no valid ticket, and
a test of the shop costs no real money.

Tillgate queries and refunds a payment with the account that made it. So an alias stands for one merchant at one address. If an event
changes to another merchant, it keeps the former account once payments were made with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from django.views.decorators.debug import sensitive_variables
from django_scopes import scopes_disabled
from pretix.base.models import Event
from pretix.base.settings import SettingsSandbox

from tillgate import Account, ConfigurationError, shop

__all__ = [
    "FIELDS",
    "HOLDER",
    "OPTIONS",
    "alias_of",
    "alias_of_event",
    "build",
    "find",
    "former_merchants",
    "is_complete",
    "keep_former",
    "prefixes_of",
    "settings_of",
]

HOLDER: Final = "tillgate"
"""The identifier of the provider that stores the settings for all methods."""

FIELDS: Final = ("base_url", "merchant_no", "token")
"""The setting names of an account; the account for test mode has the prefix `test_`."""
OPTIONS: Final = ("dialect", "store_no", "currencies", "settle_currency")
"""The setting names that an account may leave empty."""

_LIVE: Final = "pretix-"
_TEST: Final = "pretix-test-"


def settings_of(event: Any) -> Any:
    """Return an event's settings of this plugin."""
    return SettingsSandbox("payment", HOLDER, event)


def alias_of(order: Any) -> str:
    """Return the alias of the account that pays an order now, as Tillgate's rows store it."""
    return alias_of_event(order.event, testmode=order.testmode)


def alias_of_event(event: Any, *, testmode: bool) -> str:
    """Return the alias of the account that an event has for a mode."""
    return _alias(event, settings_of(event), testmode=testmode)


def prefixes_of(event: Any) -> tuple[str, str]:
    """Return the beginnings of the names of all accounts of an event, present and former."""
    return f"{_LIVE}{event.pk}-", f"{_TEST}{event.pk}-"


def find(alias: str) -> Account | None:
    """Return the account of an alias, or None if the alias is not the plugin's or the event has no account."""
    testmode = alias.startswith(_TEST)
    event_id = alias.removeprefix(_TEST if testmode else _LIVE).partition("-")[0]
    if not alias.startswith(_LIVE) or not event_id.isdecimal():
        return None
    with scopes_disabled():
        event = Event.objects.filter(pk=int(event_id)).first()
    for values in _known(event, testmode=testmode) if event is not None else ():
        if _alias(event, values, testmode=testmode) == alias:
            return build(values, testmode=testmode)
    return None


def is_complete(event: Any, *, testmode: bool) -> bool:
    """Tell whether an event has an account for that mode."""
    return all(settings_of(event).get(name) for name in _names(testmode=testmode))


def _names(*, testmode: bool) -> tuple[str, ...]:
    return tuple(f"{'test_' if testmode else ''}{field}" for field in FIELDS)


def _alias(event: Any, values: Any, *, testmode: bool) -> str:
    base_url, merchant_no, _token = _names(testmode=testmode)
    maker = sha256(f"{values.get(base_url)} {values.get(merchant_no)}".encode()).hexdigest()[:8]
    return f"{_TEST if testmode else _LIVE}{event.pk}-{maker}"


# Former accounts --------------------------------------------------------------------------------------------------------------------------


def _former(event: Any) -> list[dict[str, str]]:
    former: list[dict[str, str]] = settings_of(event).get("former", as_type=list, default=[])
    return former


def _known(event: Any, *, testmode: bool) -> Iterator[Any]:
    """Yield the accounts of a mode: first the present one, with the newest token, then the former ones."""
    if is_complete(event, testmode=testmode):
        yield settings_of(event)
    yield from (values for values in _former(event) if _names(testmode=testmode)[0] in values)


@sensitive_variables()
def keep_former(event: Any, given: Any) -> None:
    """Keep the accounts that new settings are about to replace, if payments were made with them."""
    kept = _former(event)
    for testmode in (False, True):
        prefix = "test_" if testmode else ""
        ours = {name: settings_of(event).get(name) for name in (*_names(testmode=testmode), *(prefix + option for option in OPTIONS))}
        alias = _alias(event, ours, testmode=testmode)
        if _alias(event, given, testmode=testmode) != alias and shop.has_payments(alias):
            kept = [ours, *(values for values in kept if _alias(event, values, testmode=testmode) != alias)]
    if kept:
        settings_of(event).set("former", kept)


def former_merchants(event: Any) -> list[tuple[str, str]]:
    """Return merchant number and address of the former accounts of an event, the newest first."""
    names = [list(_names(testmode=testmode)) for testmode in (False, True)]
    return [(values[number], values[url]) for values in _former(event) for url, number, _token in names if url in values]


def _options(values: Any, prefix: str) -> dict[str, Any]:
    given = {name: str(values.get(prefix + name) or "").strip() for name in OPTIONS}
    options: dict[str, Any] = {name: text for name, text in given.items() if text}
    if "currencies" in options:
        options["currencies"] = [code.strip().upper() for code in options["currencies"].split(",") if code.strip()]
    return options


def build(values: Any, *, testmode: bool) -> Account:
    """Return the account that settings describe; raise `ConfigurationError` naming the field as the form does."""
    prefix = "test_" if testmode else ""
    base_url, merchant_no, token = (values.get(prefix + field) or "" for field in FIELDS)
    try:
        return Account(base_url=base_url, merchant_no=merchant_no, token=token, sandbox=testmode, **_options(values, prefix))
    except ConfigurationError as error:
        fault = ConfigurationError(prefix + error.field, error.value, error.remedy)
    del values, token
    raise fault  # outside the except block, and without the token: error reports print local variables (I11)
