"""The payment providers: one stores the settings for all, and the others are the payment methods that a shopper chooses.

None of them uses the network, because pretix may call them anywhere. They redirect the shopper to the view that starts the payment.
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
from django.utils.translation import gettext_lazy as _
from pretix.base.forms import SecretKeySettingsField, SecretKeySettingsWidget
from pretix.base.models import OrderPayment
from pretix.base.payment import BasePaymentProvider, PaymentException
from pretix.base.settings import SettingsSandbox
from pretix.base.views.redirect import safelink
from pretix.helpers import OF_SELF
from pretix.multidomain.urlreverse import eventreverse_absolute

from tillgate import REFERENCE, ConfigurationError, Dialect, Money, TillgateError, shop
from tillgate.shop import PaymentState
from tillgate_pretix import accounts, personal, refunds
from tillgate_pretix.orders import METHODS, OPEN, identifier_of, method_of, payments_of


class SettingsHolder(BasePaymentProvider):  # type: ignore[misc]  # pretix has no types
    """Stores the account and the payment methods of an event. Shoppers cannot pay with it."""

    identifier = accounts.HOLDER
    verbose_name = "Tillgate"
    is_enabled = False
    is_meta = True

    @property
    def settings_form_fields(self) -> dict[str, Any]:
        """The form: the live account, the one for test mode, the payment methods, then the fields that pretix adds to every provider."""
        own: dict[str, Any] = {
            **self._account_fields(testmode=False),
            **self._account_fields(testmode=True),
            **{accounts.setting_of(method): forms.BooleanField(label=str(label), required=False) for method, label in _labels().items()},
            "expire_unpaid": forms.BooleanField(
                label=_("Free the places as soon as the order cannot be paid any more"),
                help_text=_(
                    "An order expires when the last payment page has closed and the time to try again has passed. "
                    "Otherwise it keeps its places until the payment term of the event is over."
                ),
                required=False,
            ),
        }
        fields = OrderedDict({**own, **super().settings_form_fields})
        fields.move_to_end("_enabled", last=False)
        return fields

    def settings_form_clean(self, cleaned_data: dict[str, Any]) -> dict[str, Any]:
        """Refuse invalid accounts, with the error messages of Tillgate itself."""
        given = {name.removeprefix(self.settings.get_prefix()): value for name, value in cleaned_data.items()}
        faults = {}
        for prefix in ("", "test_"):
            if accounts.is_begun(given, testmode=bool(prefix)):
                try:
                    account = accounts.build(given, testmode=bool(prefix))
                    accounts.refuse_private(account.base_url, testmode=bool(prefix))
                except ConfigurationError as error:
                    faults[self.settings.get_prefix() + error.field] = str(error)
                else:
                    taken = account.taken_currencies
                    if self.event.currency not in taken:
                        wrong = _("The account takes %(ours)s, and this event is in %(theirs)s.")
                        faults[f"{self.settings.get_prefix()}{prefix}currencies"] = wrong % {
                            "ours": ", ".join(taken),
                            "theirs": self.event.currency,
                        }
        if faults:
            raise forms.ValidationError(faults)
        accounts.keep_former(self.event, given)
        return cleaned_data

    def settings_content_render(self, request: HttpRequest) -> str:
        """Tell the owner which former accounts are kept."""
        former = accounts.former_merchants(self.event)
        return _rendered("former.html", request, former=former) if former else ""

    def _account_fields(self, *, testmode: bool) -> dict[str, Any]:
        prefix = "test_" if testmode else ""
        place = str(_("Test mode: {}") if testmode else "{}")

        def shown_for(field: str) -> dict[str, str]:
            chosen = f"#id_{self.settings.get_prefix()}{prefix}dialect"
            return {"data-display-dependency": chosen, "data-display-dependency-regex": _dialects_with(field)}

        def text(field: str, label: Any) -> forms.CharField:
            return forms.CharField(label=place.format(label), required=False, widget=forms.TextInput(attrs=shown_for(field)))

        return {
            f"{prefix}dialect": forms.ChoiceField(
                label=place.format(_("Payment service, or version of the interface")),
                choices=_dialects(self.settings.get(f"{prefix}dialect")),
                required=False,
            ),
            f"{prefix}base_url": forms.URLField(
                label=place.format(_("Address of the payment service")),
                required=False,
                assume_scheme="https",
                widget=forms.URLInput(attrs=shown_for("base_url")),
            ),
            f"{prefix}merchant_no": text("merchant_no", _("Merchant number")),
            f"{prefix}token": SecretKeySettingsField(label=place.format(_("Secret token")), required=not testmode),
            f"{prefix}webhook_secrets": SecretKeySettingsField(
                label=place.format(_("Webhook secret")),
                help_text=self._webhook_help(testmode=testmode),
                required=False,
                widget=_SecretLines(attrs={"rows": 2, **shown_for("webhook_secrets")}),
            ),
            f"{prefix}store_no": text("store_no", _("Store number, for version 3")),
            f"{prefix}currencies": forms.CharField(
                label=place.format(_("Currencies of the account, with commas between them; empty for all of its version")), required=False
            ),
            f"{prefix}settle_currency": text("settle_currency", _("Settlement currency, for version 3")),
        }

    def _webhook_help(self, *, testmode: bool) -> str:
        """Return the address to register for the notifications of the saved account; an unsaved one may get another address."""
        lines = " " + str(_("There may be two secrets while one is replaced, each on its own line."))
        dialect = accounts.dialect_of(self.settings, "test_" if testmode else "")
        if dialect and dialect.is_of_plugin and accounts.is_complete(self.event, testmode=testmode):
            with suppress(ConfigurationError):  # the checks report it
                address = shop.webhook_url(accounts.alias_of_event(self.event, testmode=testmode))
                return str(_("Register this address for notifications at the payment service: {}")).format(address) + lines
        return str(_("Once the account is saved, the address to register for notifications appears here.")) + lines


class _SecretLines(SecretKeySettingsWidget):  # type: ignore[misc]  # pretix has no types
    """A field of several lines that shows no stored secret. A field of one line would join the lines that are pasted into it."""

    template_name = "django/forms/widgets/textarea.html"


def _dialects(saved: str | None) -> list[tuple[str, str]]:
    """Return the choices of dialects. One whose plugin is gone stays, so that no other one is saved in its place."""
    names = [name for name in Dialect.names() if name != REFERENCE.name]
    return [("", REFERENCE.name), *((name, name) for name in dict.fromkeys([*names, *filter(None, [saved])]))]


def _dialects_with(field: str) -> str:
    """Return pretix's expression for the dialects whose accounts have a setting."""
    found = {name: Dialect.named(name) for name in Dialect.names()}
    names = [name for name, dialect in found.items() if dialect and accounts.is_asked_for(field, dialect)]
    return f"/^({'|'.join('' if name == REFERENCE.name else re.escape(name) for name in names)})$/"


class MethodProvider(BasePaymentProvider):  # type: ignore[misc]  # pretix has no types
    """Pays with one payment method. Each payment method has a subclass."""

    method: str

    def __init__(self, event: Any) -> None:
        super().__init__(event)
        self.settings = SettingsSandbox("payment", accounts.HOLDER, event)  # one for all

    # Whether it is offered ----------------------------------------------------------------------------------------------------------------

    @property
    def verbose_name(self) -> str:
        """The name for staff."""
        return f"{self.public_name} (Tillgate)"

    @property
    def public_name(self) -> str:
        """The name for shoppers."""
        return shop.method_label(self.method)

    @property
    def settings_form_fields(self) -> dict[str, Any]:
        """No fields: the settings provider stores them."""
        return {}

    @property
    def is_enabled(self) -> bool:
        """Whether the event takes payments through Tillgate, and this method is offered by the event and by the whole installation."""
        chosen = self.settings.get(accounts.setting_of(self.method), as_type=bool)
        return bool(self.settings.get("_enabled", as_type=bool) and chosen and self.method in _offered())

    def is_allowed(self, request: HttpRequest, total: Any = None) -> bool:
        """Whether a cart can be paid this way."""
        return bool(super().is_allowed(request, total)) and self._can_take(request, total, testmode=self.event.testmode)

    def order_change_allowed(self, order: Any, request: HttpRequest | None = None) -> bool:
        """Whether an order that exists can be paid this way."""
        return bool(super().order_change_allowed(order, request)) and self._can_take(request, order.pending_sum, testmode=order.testmode)

    def _can_take(self, request: HttpRequest | None, total: Any, *, testmode: bool) -> bool:
        """Tell whether the method is one of those that take the total. A request asks for all methods, and the account is read once."""
        known = vars(request).setdefault("_tillgate_methods", {}) if request is not None else {}
        asked = self.event.pk, total, testmode
        if asked not in known:
            known[asked] = self._methods_that_take(total, testmode=testmode)
        return self.method in known[asked]

    def _methods_that_take(self, total: Any, *, testmode: bool) -> frozenset[str]:
        """Return the methods with which the account takes the event's currency, and a total that is known and more than nothing."""
        if not accounts.is_complete(self.event, testmode=testmode):
            return frozenset()
        try:
            price = Money(total, self.event.currency) if total is not None and total > 0 else None
            alias = accounts.alias_of_event(self.event, testmode=testmode)
            if self.event.currency not in shop.find_account(alias).taken_currencies:
                return frozenset()
            choices = shop.payment_methods(alias, price)
        except TillgateError:  # the checks report it; a shop with other ways to pay continues without these
            return frozenset()
        return frozenset(one.code for one in choices if not one.problem and self.event.currency in one.currencies)

    @property
    def test_mode_message(self) -> str | None:
        """The message for shoppers in test mode."""
        if accounts.is_complete(self.event, testmode=True):
            return str(_("In test mode the test account of the payment service is used, and no money moves."))
        return None

    # Paying -------------------------------------------------------------------------------------------------------------------------------

    def payment_form_render(self, request: HttpRequest, total: Any = None, order: Any = None) -> str:
        """Show the shopper the next step."""
        return _rendered("choose.html", request, method=self.public_name)

    def checkout_prepare(self, request: HttpRequest, cart: Any) -> bool:
        """Accept without a question."""
        return True

    def payment_is_valid_session(self, request: HttpRequest) -> bool:
        """Accept and store nothing."""
        return True

    def checkout_confirm_render(self, request: HttpRequest, order: Any = None, info_data: Any = None) -> str:
        """Show the shopper the next step."""
        return _rendered("choose.html", request, method=self.public_name)

    def payment_prepare(self, request: HttpRequest, payment: Any) -> str:
        """Continue immediately: the order exists, and the payment page shows its amount."""
        return self.execute_payment(request, payment)

    def execute_payment(self, request: HttpRequest, payment: Any) -> str:
        """Return the address that starts the payment, outside the widget's frame if the shop is in one. It is the same on every call."""
        start = str(eventreverse_absolute(self.event, "plugins:tillgate_pretix:start", kwargs=_named(payment)))
        return str(safelink(start, framebreak=True)) if request.session.get("iframe_session") else start

    @property
    def abort_pending_allowed(self) -> bool:
        """Whether another payment may start: always, because Tillgate detects money that this payment still brings."""
        return True

    def payment_pending_render(self, request: HttpRequest, payment: Any) -> str:
        """Show the shopper the state of the payment."""
        newest = _newest(payment)
        is_under_review = newest is not None and newest.reported_paid
        return _rendered("pending.html", request, payment=newest, method=self.public_name, is_under_review=is_under_review)

    # For staff ----------------------------------------------------------------------------------------------------------------------------

    def payment_control_render(self, request: HttpRequest, payment: Any) -> str:
        """Show staff Tillgate's data about a payment."""
        return _rendered("control.html", request, payment=refunds.paid_payment_of(payment) or _newest(payment))

    def payment_control_render_short(self, payment: Any) -> str:
        """Return the transaction number for lists."""
        return self.matching_id(payment) or ""

    def matching_id(self, payment: Any) -> str | None:
        """Return the payment service's own number of a payment."""
        return payment.info_data.get("transaction_no") or None

    def api_payment_details(self, payment: Any) -> dict[str, Any]:
        """Return the data of a payment for the REST API."""
        return {"reference": payment.info_data.get("reference"), "transaction_no": self.matching_id(payment)}

    def shred_payment_info(self, obj: Any) -> None:
        """Keep the numbers, which identify no person and are necessary for refunds; remove everything else, at Tillgate too."""
        kept = {name: value for name, value in obj.info_data.items() if name in ("reference", "transaction_no", "refund")}
        obj.info_data = kept
        obj.save(update_fields=["info"])
        personal.erase(obj.order)

    # Refunding ----------------------------------------------------------------------------------------------------------------------------

    def cancel_payment(self, payment: Any) -> None:
        """Cancel a payment, unless it is paid: pretix may hold an older copy, and would overwrite the paid status."""
        with transaction.atomic():
            state = OrderPayment.objects.select_for_update(of=OF_SELF).get(pk=payment.pk).state
            if state in (OrderPayment.PAYMENT_STATE_CONFIRMED, OrderPayment.PAYMENT_STATE_REFUNDED):
                raise PaymentException(_("This payment was received in the meantime and cannot be canceled any more."))
            super().cancel_payment(payment)

    def payment_refund_supported(self, payment: Any) -> bool:
        """Whether a payment can be refunded: always, if Tillgate made it."""
        return refunds.paid_payment_of(payment) is not None

    def payment_partial_refund_supported(self, payment: Any) -> bool:
        """Whether a part can be refunded: the same."""
        return self.payment_refund_supported(payment)

    def execute_refund(self, refund: Any) -> None:
        """Refund money. A refund with an unknown result stays in transit."""
        refunds.execute(refund)


def _labels() -> dict[str, str]:
    return {method: shop.method_label(method) for method in METHODS}


def _offered() -> set[str]:
    try:
        return {method.code for method in shop.payment_methods(None)}
    except ConfigurationError:  # the checks report it; a shop with other ways to pay continues without this one
        return set()


def _named(payment: Any) -> dict[str, Any]:
    return {"order": payment.order.code, "secret": payment.order.secret, "payment": payment.pk}


def _newest(payment: Any) -> PaymentState | None:
    """Return the newest of Tillgate's payments for one of pretix's: one that it started, or that a second press joined."""
    begun = sorted(payments_of(payment.order), key=lambda one: -int(one.id))
    own = (one for one in begun if one.data.get("payment") == payment.pk)
    wanted = (str(method_of(payment.provider)), payment.amount)
    alike = (one for one in begun if payment.state in OPEN and one.is_open and (one.method, one.amount) == wanted)
    return next(own, None) or next(alike, None)


def _rendered(template: str, request: HttpRequest, **context: Any) -> str:
    return str(get_template(f"tillgate_pretix/{template}").render({"request": request, **context}))


def _provider_of(method: str) -> type[MethodProvider]:
    own = {"identifier": identifier_of(method), "method": method, "__module__": __name__}
    return type(f"{method.title()}Provider", (MethodProvider,), own)


PROVIDERS: Final[list[type[Any]]] = [SettingsHolder, *map(_provider_of, METHODS)]
"""The providers that pretix registers: the settings provider, then the payment methods."""
