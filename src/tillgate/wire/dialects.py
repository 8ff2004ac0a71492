"""Dialect: the gaps that the interface leaves open, as data (README.md beside this). One frozen
value, never a scattered `if`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Final

from tillgate.errors import ConfigurationError
from tillgate.wire.methods import Method, PaymentMethod, read_currencies, read_methods, texts
from tillgate.wire.personal import KEPT_FIELDS
from tillgate.wire.profile import (
    BUILT_IN,
    PRESETS,
    DisputeStatus,
    GatewayProfile,
    RefundOutcome,
    TransactionStatus,
)

__all__ = [
    "DIALECTS",
    "EXAMPLES",
    "REFERENCE",
    "V3",
    "Dialect",
    "DisputeStatus",
    "Encoding",
    "Method",
    "RefundOutcome",
    "SignatureRule",
    "TransactionStatus",
]

_PAY_PARAMETERS: Final = (
    "currency",
    "amount",
    "vendor",
    "reference",
    "terminal",
    "ipnUrl",
    "callbackUrl",
    "timeout",
    "description",
    "goodsInfo",
)
_REFUND_NOTIFICATION: Final = frozenset({"transactionNo", "status", "reference", "verifySign"})
_REFUND_NAMES: Final = frozenset({"refundReference", "refundTransactionNo", "refundAmount"})
_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+/?", re.ASCII)


class Encoding(StrEnum):
    """The encoding of a request's body (unspecified behaviour 3). The interface shows both."""

    JSON = "json"
    FORM = "form"


class SignatureRule(StrEnum):
    """The check of a received signature (unspecified behaviour 7 and 8)."""

    CHECKED = "checked"
    """A signature that is present must be right; a missing one is accepted."""
    REQUIRED = "required"
    """A signature must be present and right."""
    IGNORED = "ignored"
    """Tillgate does not check the signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(GatewayProfile):
    """The profile of a gateway that speaks the built-in wire: its reading of the unspecified
    behaviour. The comments give the rows of the table in README.md.
    """

    plugin: str = BUILT_IN
    required: tuple[str, ...] = ("merchant_no",)
    pay_path: str = "/online/v1/secure-pay"
    query_path: str = "/online/v1/tran-query"  # row 2
    refund_path: str = "/online/v1/refund"  # row 2
    encoding: Encoding = Encoding.JSON  # row 3
    paid_words: frozenset[str] = frozenset({"success"})  # row 6
    failed_words: frozenset[str] = frozenset({"failed", "fail"})  # row 6
    # row 6
    closed_words: frozenset[str] = frozenset({"closed", "reversed", "cancelled", "expired"})
    pending_words: frozenset[str] = frozenset({"pending", "init", "dealing"})  # row 6
    processing_words: frozenset[str] = frozenset()  # row 6
    refunded_words: frozenset[str] = frozenset({"refunded"})  # row 18
    answer_signature: SignatureRule = SignatureRule.CHECKED  # row 7
    notification_signature: SignatureRule = SignatureRule.CHECKED  # row 8
    acknowledgement: str = "success"  # row 9
    # row 10
    macros: tuple[str, ...] = (
        "amount",
        "status",
        "transactionNo",
        "reference",
        "time",
        "note",
    )
    success_code: str = "000100"  # row 12; Endpoints
    not_found_code: str = "000022"  # row 12; Errors
    unknown_codes: frozenset[str] = frozenset({"000000", "000080"})  # row 12
    rights_codes: frozenset[str] = frozenset({"000030"})  # row 12
    # row 12
    refund_refusal_codes: frozenset[str] = frozenset(
        {"000010", "000020", "000021", "000022", "000023", "000030", "000040"},
    )
    settle_currency_is_currency: bool = True  # row 20
    # row 20: a payment in one of them is settled in it, every other in the first
    settle_currencies: tuple[str, ...] = ("USD",)
    currencies: tuple[str, ...] = ("USD",)  # row 20; Create payment
    methods: tuple[Method, ...] = read_methods(tuple(PaymentMethod))  # row 17; Create payment
    pay_parameters: tuple[str, ...] = _PAY_PARAMETERS
    query_parameters: tuple[str, ...] = ("reference",)
    refund_parameters: tuple[str, ...] = ("reference", "amount", "ipnUrl")
    # row 14
    refund_notification_fields: frozenset[str] = field(default=_REFUND_NOTIFICATION, repr=False)
    """The fields that a refund notification may have: with any other it only causes a query."""
    kept_fields: frozenset[str] = KEPT_FIELDS

    def __post_init__(self) -> None:
        # A wrong value must fail here: later it would do harm without an error. A rule given as an
        # unknown text would check nothing, and `"x" in words` would search the letters of a text
        # that was given for a set.
        GatewayProfile.__post_init__(self)  # super() does not know a class with slots
        for name in ("success_code", "not_found_code"):
            if not isinstance(getattr(self, name), str):
                raise ConfigurationError(name, getattr(self, name), "is not text")
        for name in ("pay_path", "query_path", "refund_path"):
            path = getattr(self, name)
            # a path without its slash would run on from the host's name
            if not isinstance(path, str) or not _PATH.fullmatch(path):
                raise ConfigurationError(name, path, "is not a path such as /online/v1/refund")
        for name, kind in _CHOICES.items():
            if getattr(self, name) not in list(kind):
                raise ConfigurationError(
                    name,
                    getattr(self, name),
                    f"is not one of: {', '.join(kind)}",
                )
            object.__setattr__(self, name, kind(getattr(self, name)))
        for name in (
            "failed_words",
            "closed_words",
            "pending_words",
            "processing_words",
            "refunded_words",
            "unknown_codes",
            "rights_codes",
            "refund_refusal_codes",
            "refund_notification_fields",
        ):
            object.__setattr__(self, name, frozenset(texts(name, getattr(self, name))))
        _expect_comparable(self.refund_notification_fields)
        object.__setattr__(
            self,
            "settle_currencies",
            read_currencies("settle_currencies", self.settle_currencies),
        )
        if not self.settle_currencies:
            raise ConfigurationError("settle_currencies", (), "is empty: list at least one")
        for name in ("pay_parameters", "query_parameters", "refund_parameters"):
            object.__setattr__(self, name, texts(name, getattr(self, name)))

    def asks_for(self, setting: str) -> bool:
        """Return whether an account of the gateway has a setting that not every account has."""
        match setting:
            case "store_no":
                return setting in self.required or self.sends("pay", "storeNo")
            case "settle_currency":
                return self.sends("pay", "settleCurrency")
        return GatewayProfile.asks_for(self, setting)

    def status(self, word: str) -> TransactionStatus:
        """Return the meaning of a status word; an unknown word is UNRECOGNISED and never paid
        (unspecified behaviour 6).
        """
        known = {
            "paid": self.paid_words,
            "failed": self.failed_words,
            "closed": self.closed_words,
            "pending": self.pending_words,
        }
        known["processing"] = self.processing_words
        known["refunded"] = self.refunded_words
        return TransactionStatus(
            next((status for status, words in known.items() if word in words), "unrecognised"),
        )

    def settle_currency(self, currency: str) -> str:
        """Return the currency in which the gateway settles a payment unless the account names
        another.
        """
        return currency if currency in self.settle_currencies else self.settle_currencies[0]

    def sends(self, operation: str, parameter: str) -> bool:
        """Return whether requests of "pay", "query" or "refund" have a parameter."""
        return parameter in getattr(self, f"{operation}_parameters")


def _expect_comparable(fields: frozenset[str]) -> None:
    comparable = _REFUND_NOTIFICATION | _REFUND_NAMES
    if unknown := sorted(fields - comparable):
        remedy = f"cannot be compared with a refund: choose from {', '.join(sorted(comparable))}"
        raise ConfigurationError("refund_notification_fields", ", ".join(unknown), remedy)


_CHOICES: Final[dict[str, type[StrEnum]]] = {
    "encoding": Encoding,
    "answer_signature": SignatureRule,
    "notification_signature": SignatureRule,
}


REFERENCE: Final = Dialect(name="reference")
"""The reference path shape of the interface: everything under /online/v1/."""

EXAMPLES: Final = replace(
    REFERENCE,
    name="examples",
    query_path="/app-data-search/v1/tran-query",
    refund_path="/app-data-search/v1/refund",
)
"""The paths of the interface's request examples for query and refund (Endpoints, common rules)."""

_V3_WALLETS: Final = {
    "truemoney": ("THB", "1"),
    "alipay_hk": ("HKD", "0.10"),
    "tng": ("MYR", "1"),
    "gcash": ("PHP", "1"),
    "dana": ("IDR", "300"),
    "kakaopay": ("KRW", "50"),
    "bkash": ("BDT", "0.01"),
    "easypaisa": ("PKR", "100"),
}
"""The wallets of one country, each with its currency and the least of it; they take USD too."""
_V3_CURRENCIES: Final = {
    "alipay": ("USD", "CNY", "GBP"),
    "wechatpay": ("USD", "CNY"),
    "unionpay": ("USD", "CNY"),
}


def _v3_method(code: str) -> Method:
    if code in _V3_WALLETS:
        currency, least = _V3_WALLETS[code]
        return Method(
            code=code,
            currencies=(currency, "USD"),
            minimums=((currency, Decimal(least)),),
        )
    return Method(code=code, currencies=_V3_CURRENCIES.get(code, ("USD",)))


V3: Final = replace(
    REFERENCE,
    name="v3",
    required=("merchant_no", "store_no"),
    pay_path="/online/v3/secure-pay",
    query_path="/app-data-search/v3/tran-query",
    refund_path="/app-data-search/v3/refund",
    settle_currency_is_currency=False,
    settle_currencies=("USD", "GBP"),
    currencies=("USD", "CNY", "PHP", "IDR", "KRW", "HKD", "THB", "MYR", "GBP", "BDT", "PKR"),
    methods=(
        *(_v3_method(method) for method in PaymentMethod),
        Method(code="cashapppay", currencies=("USD",)),
    ),
    terminals=("ONLINE", "WAP", "MWEB"),
    pay_parameters=(*_PAY_PARAMETERS, "storeNo", "settleCurrency", "osType"),
    query_parameters=("storeNo", "reference"),
    refund_parameters=(
        "storeNo",
        "reference",
        "refundAmount",
        "currency",
        "settleCurrency",
        "refundReference",
        "ipnUrl",
    ),
    refund_notification_fields=_REFUND_NOTIFICATION | _REFUND_NAMES,
)
"""Version 3 of the public service, as Yuansfer and Pockyt document it (README.md beside this
names the sources).
"""

DIALECTS: Final = {dialect.name: dialect for dialect in (REFERENCE, EXAMPLES, V3)}
"""The presets by name, as an account names them."""

PRESETS.update(DIALECTS)
