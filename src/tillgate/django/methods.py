"""The payment methods of a shop: those that an account takes, that the owner offers, and that can
take an order's amount.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from tillgate import hooks
from tillgate.account import Account
from tillgate.django.amounts import money_text
from tillgate.django.conf import get_settings
from tillgate.money import Money
from tillgate.wire.methods import Method, PaymentMethod
from tillgate.wire.profile import PRESETS, GatewayProfile

_LABELS: Final[Mapping[str, str | Promise]] = {
    PaymentMethod.ALIPAY: "Alipay",
    PaymentMethod.WECHATPAY: "WeChat Pay",
    PaymentMethod.PAYPAL: "PayPal",
    PaymentMethod.VENMO: "Venmo",
    PaymentMethod.UNIONPAY: "UnionPay",
    PaymentMethod.CREDITCARD: gettext_lazy("Credit or debit card"),
    PaymentMethod.TRUEMONEY: "TrueMoney",
    PaymentMethod.ALIPAY_HK: "AlipayHK",
    PaymentMethod.TNG: "Touch 'n Go",
    PaymentMethod.GCASH: "GCash",
    PaymentMethod.DANA: "DANA",
    PaymentMethod.KAKAOPAY: "KakaoPay",
    PaymentMethod.BKASH: "bKash",
    PaymentMethod.EASYPAISA: "Easypaisa",
    "cashapppay": "Cash App Pay",
    "card": gettext_lazy("Credit or debit card"),
    "bank_transfer": gettext_lazy("Bank transfer"),
    "checkout": gettext_lazy("Card or another way to pay"),
}
"""Tillgate's own names of payment methods for shoppers; `checkout` is a page that lets them
choose, and `bank_transfer` what they may have chosen there.
"""

_KINDS: Final = dict.fromkeys(
    (PaymentMethod.UNIONPAY, PaymentMethod.CREDITCARD, "card", "checkout"),
    "card",
)
"""The kinds of payment methods that are no wallets."""

_MOST_NAMED: Final = 3
"""The number of currencies that a reason names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodChoice:
    """A payment method as a shopper chooses it: its code, its name in the active language, and the
    currencies that it takes.

    `kind` chooses the mark on the pages. `problem` says to the shopper why the method cannot take
    the order, and is empty where it can. `remark` stands beside a method that can, such as one that
    opens in another browser only.
    """

    code: str
    label: str
    currencies: tuple[str, ...]
    problem: str = ""
    kind: str = "wallet"
    remark: str = ""


def label_of(code: str, method: Method | None = None) -> str:
    """Return the name of a payment method for shoppers: the gateway's own label, Tillgate's, or the
    code.
    """
    return (method.label if method else "") or str(
        _LABELS.get(code) or _plugin_labels().get(code, code),
    )


def with_last_digits(name: str, last4: str) -> str:
    """Return the name of a card with its last four digits, such as "Visa ending 4242"."""
    return _("%(brand)s ending %(last4)s") % {"brand": name, "last4": last4}


def _plugin_labels() -> dict[str, str]:
    """Return the labels of the gateway plugins' methods by code: an account may be gone while its
    payments are shown.
    """
    plugins = [
        profile
        for name in GatewayProfile.names()
        if name not in PRESETS and (profile := GatewayProfile.named(name))
    ]
    return {
        method.code: method.label
        for profile in plugins
        for method in profile.methods
        if method.label
    }


def configured_choices() -> tuple[MethodChoice, ...]:
    """Return the payment methods of `TILLGATE["PAYMENT_METHODS"]`, or else those of the interface;
    an account may take fewer.
    """
    codes = get_settings().payment_methods or tuple(map(str, PaymentMethod))
    return tuple(MethodChoice(code=code, label=label_of(code), currencies=()) for code in codes)


def choices_for(account: Account, price: Money | None = None) -> tuple[MethodChoice, ...]:
    """Return the payment methods that the owner offers and the account takes, in the order of
    `TILLGATE["PAYMENT_METHODS"]`.

    With the price of an order, `problem` names why a method cannot take it.
    """
    taken = {method.code: method for method in hooks.payment_methods(account)}
    offered = get_settings().payment_methods
    codes = list(taken) if offered is None else [code for code in offered if code in taken]
    return tuple(
        MethodChoice(
            code=code,
            label=label_of(code, taken[code]),
            currencies=_currencies(account, taken[code]),
            problem=_problem(account, taken[code], price) if price else "",
            kind=taken[code].kind or _KINDS.get(code, "wallet"),
        )
        for code in codes
    )


def _currencies(account: Account, method: Method) -> tuple[str, ...]:
    """Return the currencies of the account that a method takes."""
    return tuple(
        currency
        for currency in account.taken_currencies
        if not method.currencies or currency in method.currencies
    )


def _problem(account: Account, method: Method, price: Money) -> str:
    currencies, currency = _currencies(account, method), price.currency
    if currency not in currencies:
        if 0 < len(currencies) <= _MOST_NAMED:
            return _("takes %(currencies)s only") % {"currencies": ", ".join(currencies)}
        return _("not for orders in %(currency)s") % {"currency": currency}
    least, most = dict(method.minimums).get(currency), dict(method.maximums).get(currency)
    if least is not None and price.amount < least:
        return _("takes orders from %(amount)s") % {"amount": money_text(least, currency)}
    if most is not None and price.amount > most:
        return _("takes orders up to %(amount)s") % {"amount": money_text(most, currency)}
    return _("not for this amount") if method.fault(price.amount, currency) else ""
