"""The settings of an event, for organizers: a form with the live account, the one for test mode,
and the payment methods.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Final

from django import forms
from django.db import transaction
from django.http import HttpRequest
from django.template.loader import get_template
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _
from pretix.base.forms import SecretKeySettingsField, SecretKeySettingsWidget
from pretix.base.payment import BasePaymentProvider

from tillgate import REFERENCE, ConfigurationError, GatewayProfile, shop
from tillgate_pretix import accounts, connection
from tillgate_pretix.orders import METHODS

_SERVICES: Final = {
    "reference": "2Pay",
    "examples": _("2Pay, with the paths of its software kits"),
    "v3": _("Yuansfer or Pockyt"),
}
"""The names by which organizers know the services of the presets. A plugin's own dialect has the
name of its service.
"""
_ADDRESSES: Final = (
    "2Pay: https://api.2pay.co · Yuansfer: https://mapi.yuansfer.com · Pockyt: "
    "https://mapi.pockyt.io"
)
_DOCUMENTATION: Final = {
    "2Pay": "https://docs.2pay.co",
    "Yuansfer": "https://docs.yuansfer.com",
    "Pockyt": "https://docs.pockyt.io",
}


FOR_ALL_EVENTS: Final = "organizer.settings.general:write"
"""The permission for the settings that all events of an organizer have."""


class SettingsHolder(BasePaymentProvider):  # type: ignore[misc]  # pretix has no types
    """Stores the account and the payment methods of an event. Shoppers cannot pay with it."""

    identifier = accounts.HOLDER
    verbose_name = "Tillgate"
    is_enabled = False
    is_meta = True
    is_trial = False
    """Whether the form is only tried out, and nothing is kept."""

    @property
    def settings_form_fields(self) -> dict[str, Any]:
        """The form: the live account, the one for test mode, the payment methods, then the fields
        that pretix adds to every provider.
        """
        own: dict[str, Any] = {
            **account_fields(self.settings, self._webhook_help(testmode=False), testmode=False),
            **account_fields(self.settings, self._webhook_help(testmode=True), testmode=True),
            **method_fields(),
            "expire_unpaid": forms.BooleanField(
                label=_("Free the places as soon as the order cannot be paid any more"),
                help_text=_(
                    "An order expires when the last payment page has closed and the time to try "
                    "again has passed. "
                    "Otherwise it keeps its places until the payment term of the event is over.",
                ),
                required=False,
            ),
        }
        fields = OrderedDict({**own, **super().settings_form_fields})
        fields["_enabled"].help_text = _who_takes(self.event.currency)
        fields.move_to_end("_enabled", last=False)
        return fields

    def settings_form_clean(self, cleaned_data: dict[str, Any]) -> dict[str, Any]:
        """Refuse invalid accounts, with the error messages of Tillgate itself. Either account is
        enough.
        """
        given = unprefixed(cleaned_data, self.settings)
        raise_faults(given, self.settings, currency=self.event.currency)
        if not self.is_trial:
            accounts.keep_former(self.event, accounts.settings_of(self.event), given)
            # After the commit: no transaction waits for a gateway.
            transaction.on_commit(lambda: connection.test_saved(self.event), robust=True)
        return cleaned_data

    def settings_content_render(self, request: HttpRequest) -> str:
        """Offer to test the connection, lead to the settings for all events, and tell the owner
        which former accounts are kept.
        """
        organizer = self.event.organizer
        user: Any = request.user  # pretix has its own
        may_set_for_all = user.has_organizer_permission(organizer, FOR_ALL_EVENTS, request=request)
        kwargs = {"organizer": organizer.slug}
        context = {
            "all_events_url": may_set_for_all
            and reverse("plugins:tillgate_pretix:organizer", kwargs=kwargs),
            "test_url": connection.test_url(self.event),
            "former": accounts.former_merchants(self.event),
            "health": connection.health(self.event),
        }
        return str(get_template("tillgate_pretix/settings.html").render(context, request))

    def _webhook_help(self, *, testmode: bool) -> str:
        """Return the address to register for the notifications of the saved account; an unsaved one
        may get another address.
        """
        lines = " " + str(
            _("There may be two secrets while one is replaced, each on its own line."),
        )
        dialect = accounts.dialect_of(self.settings, "test_" if testmode else "")
        if dialect and dialect.is_of_plugin and accounts.is_complete(self.event, testmode=testmode):
            with suppress(ConfigurationError):  # the checks report it
                address = shop.webhook_url(accounts.alias_of_event(self.event, testmode=testmode))
                return (
                    str(
                        _("Register this address for notifications at the payment service: {}"),
                    ).format(address)
                    + lines
                )
        return (
            str(
                _(
                    "Once the account is saved, the address to register for notifications appears "
                    "here.",
                ),
            )
            + lines
        )


def method_fields() -> dict[str, Any]:
    """Return the field of each payment method, which says whether shoppers may choose it."""
    return {
        accounts.setting_of(method): forms.BooleanField(
            label=shop.method_label(method),
            required=False,
        )
        for method in METHODS
    }


def unprefixed(cleaned_data: dict[str, Any], kept: Any) -> dict[str, Any]:
    """Return what was typed by the names of settings."""
    return {name.removeprefix(kept.get_prefix()): value for name, value in cleaned_data.items()}


def raise_faults(given: dict[str, Any], kept: Any, *, currency: str | None = None) -> None:
    """Raise `ValidationError` for accounts that are invalid, or do not take the currency; either
    account is enough.
    """
    faults = {}
    begun = [testmode for testmode in (False, True) if accounts.is_begun(given, testmode=testmode)]
    if not begun:
        faults["dialect"] = _("Enter the live account, the account for test mode, or both.")
    for testmode in begun:
        faults |= _faults(given, currency, testmode=testmode)
    if faults:
        raise forms.ValidationError(
            {kept.get_prefix() + name: fault for name, fault in faults.items()},
        )


def _faults(given: dict[str, Any], currency: str | None, *, testmode: bool) -> dict[str, Any]:
    """Return what is wrong with one account, by field."""
    prefix = "test_" if testmode else ""
    dialect = accounts.dialect_of(given, prefix)
    try:
        if (
            (base_url := given.get(f"{prefix}base_url"))
            and dialect
            and dialect.asks_for("base_url")
        ):
            accounts.refuse_private(base_url, testmode=testmode)
        account = accounts.build(given, testmode=testmode)
    except ConfigurationError as error:
        return {error.field: accounts.labelled(str(error))}
    if currency is None or currency in account.taken_currencies:
        return {}
    wrong = _("The account takes %(ours)s, and this event is in %(theirs)s.")
    facts = {"ours": ", ".join(account.taken_currencies), "theirs": currency}
    return {f"{prefix}currencies": wrong % facts}


def account_fields(kept: Any, webhook_help: str, *, testmode: bool) -> dict[str, Any]:
    """Return the fields of one account, for settings of an event or an organizer."""
    prefix = "test_" if testmode else ""
    place = str(_("Test mode: {}") if testmode else "{}")

    def shown_for(field: str) -> dict[str, str]:
        chosen = f"#id_{kept.get_prefix()}{prefix}dialect"
        services = "|".join(map(re.escape, _services_with(field)))
        return {
            "data-display-dependency": chosen,
            "data-display-dependency-regex": f"/^({services})$/",
        }

    def text(field: str) -> forms.CharField:
        return forms.CharField(
            label=place.format(accounts.LABELS[field]),
            required=False,
            widget=forms.TextInput(attrs=shown_for(field)),
        )

    fields = {
        "dialect": forms.ChoiceField(
            label=place.format(accounts.LABELS["dialect"]),
            choices=_services(kept.get(f"{prefix}dialect")),
            help_text=_documentation(),
            required=False,
        ),
        "base_url": forms.URLField(
            label=place.format(accounts.LABELS["base_url"]),
            help_text=_ADDRESSES,
            required=False,
            assume_scheme="https",
            widget=forms.URLInput(attrs=shown_for("base_url")),
        ),
        "merchant_no": text("merchant_no"),
        "token": SecretKeySettingsField(
            label=place.format(accounts.LABELS["token"]),
            required=False,
        ),
        "webhook_secrets": SecretKeySettingsField(
            label=place.format(accounts.LABELS["webhook_secrets"]),
            help_text=webhook_help,
            required=False,
            widget=_SecretLines(attrs={"rows": 2, **shown_for("webhook_secrets")}),
        ),
        "store_no": text("store_no"),
        "currencies": forms.CharField(
            label=place.format(
                _(
                    "Currencies of the account, with commas between them; empty for all of "
                    "the service",
                ),
            ),
            required=False,
        ),
        "settle_currency": text("settle_currency"),
    }
    return {prefix + name: field for name, field in fields.items() if _services_with(name)}


class _SecretLines(SecretKeySettingsWidget):  # type: ignore[misc]  # pretix has no types
    """A field of several lines that shows no stored secret. A field of one line would join the
    lines that are pasted into it.
    """

    template_name = "django/forms/widgets/textarea.html"


def _services(saved: str | None) -> list[tuple[str, Any]]:
    """Return the choices of dialects. One whose plugin is gone stays, so that no other one is saved
    in its place.
    """
    names = [name for name in GatewayProfile.names() if name != REFERENCE.name]
    others = [
        (name, _SERVICES.get(name, name.capitalize()))
        for name in dict.fromkeys([*names, *filter(None, [saved])])
    ]
    return [("", _SERVICES[REFERENCE.name]), *others]


def _who_takes(currency: str) -> str:
    """Say which of the installed payment services take a currency."""
    known = {
        str(label): GatewayProfile.named(name or REFERENCE.name) for name, label in _services(None)
    }
    names = [label for label, one in known.items() if one and currency in one.currencies]
    if names:
        takes = _("Payment services here that take %(currency)s: %(names)s.")
        return str(takes) % {"currency": currency, "names": ", ".join(names)}
    missing = _(
        "No payment service here takes %(currency)s. Stripe and PayU take EUR: their plugins can "
        "be installed into pretix.",
    )
    return str(missing) % {"currency": currency}


def _services_with(field: str) -> list[str]:
    """Return the choices whose accounts have a setting; the empty one is 2Pay."""
    found = {name: GatewayProfile.named(name) for name in GatewayProfile.names()}
    names = [name for name, dialect in found.items() if dialect and dialect.asks_for(field)]
    return ["" if name == REFERENCE.name else name for name in names]


def _documentation() -> str:
    links = ", ".join(
        f'<a href="{url}" target="_blank" rel="noopener">{name}</a>'
        for name, url in _DOCUMENTATION.items()
    )
    return mark_safe(f"{_('Documentation:')} {links}")  # noqa: S308  # all of it is written above
