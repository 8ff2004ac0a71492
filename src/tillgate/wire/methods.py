"""Payment methods as data: a dialect, an account or a gateway plugin lists them, with their
currencies and limits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from tillgate.errors import ConfigurationError

__all__ = [
    "CODE",
    "KINDS",
    "Method",
    "PaymentMethod",
    "Terminal",
    "read_currencies",
    "read_methods",
    "texts",
]

CODE = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)
KINDS: Final = ("wallet", "card", "bank", "counter")
"""The kinds of payment methods, each with a mark on the pages. Money is paid at a counter for a
voucher, or in cash.
"""


class PaymentMethod(StrEnum):
    """The payment methods of the interface."""

    ALIPAY = "alipay"
    WECHATPAY = "wechatpay"
    PAYPAL = "paypal"
    VENMO = "venmo"
    UNIONPAY = "unionpay"
    CREDITCARD = "creditcard"
    TRUEMONEY = "truemoney"
    ALIPAY_HK = "alipay_hk"
    TNG = "tng"
    GCASH = "gcash"
    DANA = "dana"
    KAKAOPAY = "kakaopay"
    BKASH = "bkash"
    EASYPAISA = "easypaisa"


class Terminal(StrEnum):
    """The shopper's device: a desktop browser, a phone's browser, or an app."""

    ONLINE = "ONLINE"
    WAP = "WAP"
    ANDROID = "ANDROID"
    IOS = "IOS"


Limit = tuple[str, Decimal]
"""A currency, and the least or the most of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A payment method of a gateway: its code, the currencies that it takes, and the least and the
    most of them.

    `label` is its name for shoppers; empty stands for Tillgate's own name of the code. No
    currencies: it takes all of the account. `steps` are for currencies with amounts that must be
    multiples of more than the smallest unit. `kind` chooses the mark on the pages: `wallet`,
    `card`, `bank` or `counter`; empty stands for Tillgate's own kind of the code.
    """

    code: str
    label: str = ""
    currencies: tuple[str, ...] = ()
    minimums: tuple[Limit, ...] = ()
    maximums: tuple[Limit, ...] = ()
    steps: tuple[Limit, ...] = ()
    kind: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.code, str) or not CODE.fullmatch(self.code):
            raise ConfigurationError(
                "methods",
                self.code,
                "is not the code of a payment method: 1 to 32 letters, digits, _ and -",
            )
        if not isinstance(self.label, str):
            raise ConfigurationError(f"methods.{self.code}.label", self.label, "is not text")
        if self.kind not in ("", *KINDS):
            raise ConfigurationError(
                f"methods.{self.code}.kind",
                self.kind,
                f"is not a kind of payment method: {', '.join(KINDS)}",
            )
        object.__setattr__(
            self,
            "currencies",
            read_currencies(f"methods.{self.code}.currencies", self.currencies),
        )
        for name in ("minimums", "maximums", "steps"):
            object.__setattr__(
                self,
                name,
                _limits(f"methods.{self.code}.{name}", getattr(self, name)),
            )

    def fault(self, amount: Decimal, currency: str) -> str | None:
        """Return why the method cannot take an amount of a currency, or None if it can."""
        if self.currencies and currency not in self.currencies:
            return f"{self.code} takes {', '.join(self.currencies)}, and no {currency}"
        least, most = dict(self.minimums).get(currency), dict(self.maximums).get(currency)
        if least is not None and amount < least:
            return f"{self.code} takes at least {currency} {least}"
        if most is not None and amount > most:
            return f"{self.code} takes at most {currency} {most}"
        step = dict(self.steps).get(currency)
        if step is not None and amount % step:
            return f"{self.code} takes amounts in steps of {currency} {step}"
        return None


def texts(name: str, given: object) -> tuple[str, ...]:
    """Return a collection of texts, or raise `ConfigurationError`."""
    if (
        isinstance(given, Collection)
        and not isinstance(given, str | Mapping)
        and all(isinstance(text, str) for text in given)
    ):
        return tuple(given)
    raise ConfigurationError(name, given, 'is not a collection of texts, such as {"success"}')


def read_currencies(name: str, given: object) -> tuple[str, ...]:
    """Return the codes of currencies, or raise `ConfigurationError`. Only the form is checked: ISO
    4217's table takes a while to read.
    """
    codes = texts(name, given)
    if wrong := next(
        (
            code
            for code in codes
            if not (len(code) == 3 and code.isascii() and code.isalpha() and code.isupper())
        ),
        None,
    ):
        raise ConfigurationError(name, wrong, 'is not the code of a currency, such as "USD"')
    return codes


def _limits(name: str, given: object) -> tuple[Limit, ...]:
    # Without ISO 4217's table, as with the currencies: importing Tillgate reads the limits of its
    # presets.
    pairs = given.items() if isinstance(given, Mapping) else given
    try:
        # any object may arrive here
        limits = tuple((currency, _bound(bound)) for currency, bound in pairs)  # type: ignore[attr-defined]
    except (TypeError, ValueError, ArithmeticError):
        raise ConfigurationError(
            name,
            given,
            'is not limits by currency, such as {"KRW": "50"}',
        ) from None
    read_currencies(name, [currency for currency, _ in limits])
    return limits


def _bound(given: object) -> Decimal:
    if (
        not isinstance(given, str | int | Decimal)
        or not Decimal(given).is_finite()
        or Decimal(given) <= 0
    ):
        raise ValueError(given)
    return Decimal(given)


def read_methods(given: object, name: str = "methods") -> tuple[Method, ...]:
    """Return payment methods that are given as `Method`, as its code or as a dictionary of its
    fields; raise `ConfigurationError`.
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Collection):
        raise ConfigurationError(
            name,
            given,
            'is not a list of payment methods, such as ["alipay", {"code": "gcash", "currencies": '
            '["PHP"]}]',
        )
    methods = tuple(_method(one, name) for one in given)
    codes = [method.code for method in methods]
    if repeated := next((code for code in codes if codes.count(code) > 1), None):
        raise ConfigurationError(name, repeated, "is listed twice")
    return methods


def _method(given: object, name: str = "methods") -> Method:
    if isinstance(given, Method):
        return given
    fields: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"code": given}
    if unknown := next(
        (field for field in fields if field not in Method.__dataclass_fields__),
        None,
    ):
        raise ConfigurationError(
            name,
            unknown,
            f"is no field of a payment method: {', '.join(Method.__dataclass_fields__)}",
        )
    return Method(**fields)
