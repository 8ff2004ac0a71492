"""The account of an event: in the event's settings, as every payment provider of pretix keeps its own. A live one, and one for test mode.

An order knows whether it was placed in test mode, and is paid with the account of that mode: play money pays no ticket that is valid, and
nobody pays real money to try the shop.
"""

from __future__ import annotations

from typing import Any, Final

from django_scopes import scopes_disabled
from pretix.base.models import Event
from pretix.base.settings import SettingsSandbox

from tillgate.account import Account
from tillgate.errors import ConfigurationError

__all__ = ["FIELDS", "HOLDER", "alias_of", "aliases_of", "build", "find", "is_complete", "settings_of"]

HOLDER: Final = "tillgate"
"""The identifier of the provider that keeps the settings for all."""

FIELDS: Final = ("base_url", "merchant_no", "token")
"""What an account is made of; with `test_` before it, the one for test mode."""

_LIVE: Final = "pretix-"
_TEST: Final = "pretix-test-"


def settings_of(event: Any) -> Any:
    """Return an event's settings of this plugin."""
    return SettingsSandbox("payment", HOLDER, event)


def alias_of(order: Any) -> str:
    """Return the name under which Tillgate's rows know the account that an order is paid with."""
    live, test = aliases_of(order.event)
    return test if order.testmode else live


def aliases_of(event: Any) -> tuple[str, str]:
    """Return the names of both accounts of an event."""
    return f"{_LIVE}{event.pk}", f"{_TEST}{event.pk}"


def find(alias: str) -> Account | None:
    """Return the account of an alias, or None when it is not one of ours or the event has none."""
    testmode = alias.startswith(_TEST)
    event_id = alias.removeprefix(_TEST if testmode else _LIVE)
    if not alias.startswith(_LIVE) or not event_id.isdecimal():
        return None
    with scopes_disabled():
        event = Event.objects.filter(pk=int(event_id)).first()
    return build(settings_of(event), testmode=testmode) if event is not None and is_complete(event, testmode=testmode) else None


def is_complete(event: Any, *, testmode: bool) -> bool:
    """Tell whether an event has an account for that mode."""
    values = settings_of(event)
    return all(values.get(f"{'test_' if testmode else ''}{field}") for field in FIELDS)


def build(values: Any, *, testmode: bool) -> Account:
    """Return the account that settings describe; raise `ConfigurationError` naming the field as the form does."""
    prefix = "test_" if testmode else ""
    base_url, merchant_no, token = (values.get(prefix + field) or "" for field in FIELDS)
    try:
        return Account(base_url=base_url, merchant_no=merchant_no, token=token, sandbox=testmode)
    except ConfigurationError as error:
        fault = ConfigurationError(prefix + error.field, error.value, error.remedy)
    del values, token
    raise fault  # outside the except block, and without the token: error reports print local variables (I11)
