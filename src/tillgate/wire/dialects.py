"""Dialect: the gaps that the interface leaves open, as data (docs/reference/dialect.md). One frozen
value, never a scattered `if`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from tillgate.errors import ConfigurationError
from tillgate.wire.methods import (
    Method,
    PaymentMethod,
    Terminal,
    read_currencies,
    read_methods,
    texts,
)
from tillgate.wire.personal import KEPT_FIELDS

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
_BUILT_IN: Final = "gateway"
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


class TransactionStatus(StrEnum):
    """The meaning of a gateway's status word. Only PAID ever counts as paid."""

    PENDING = "pending"
    PROCESSING = "processing"
    """The shopper has finished, and the money is on its way, for days perhaps: a bank debit or a
    voucher.
    """
    PAID = "paid"
    FAILED = "failed"
    CLOSED = "closed"
    REFUNDED = "refunded"
    """It was paid, and some or all of it went back."""
    UNRECOGNISED = "unrecognised"
    """A word that no dialect knows; its text is kept beside it."""


class DisputeStatus(StrEnum):
    """The state of a dispute (charge-back)."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


class RefundOutcome(StrEnum):
    """The gateway's answer about a refund. Only SUCCEEDED means that the money went back."""

    SUCCEEDED = "succeeded"
    PENDING = "pending"
    """The gateway has accepted the refund, and has not finished it."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One gateway's reading of the unspecified behaviour. The comments give the rows of the table
    in docs/reference/dialect.md.
    """

    name: str
    gateway: str = _BUILT_IN
    """The plugin that serves the accounts: `gateway` is Tillgate's own."""
    base_url: str = ""
    """The gateway's address where it is the same for all merchants: an account need not name it."""
    required: tuple[str, ...] = ("merchant_no",)
    """The settings that an account of the gateway must have, besides its token."""
    timeout_minutes: tuple[int, int] = (1, 60 * 24 * 30)
    """The least and the most minutes that a payment page can stay open."""
    pay_path: str = "/online/v1/secure-pay"
    query_path: str = "/online/v1/tran-query"  # row 2
    refund_path: str = "/online/v1/refund"  # row 2
    encoding: Encoding = Encoding.JSON  # row 3
    paid_words: frozenset[str] = frozenset({"success"})  # row 6
    failed_words: frozenset[str] = frozenset({"failed", "fail"})  # row 6
    # row 6
    closed_words: frozenset[str] = frozenset({"closed", "reversed", "cancelled", "expired"})
    pending_words: frozenset[str] = frozenset({"pending", "init", "dealing"})  # row 6
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
    expired_is_forgotten: bool = False  # row 19
    settle_currency_is_currency: bool = True  # row 20
    # row 20: a payment in one of them is settled in it, every other in the first
    settle_currencies: tuple[str, ...] = ("USD",)
    currencies: tuple[str, ...] = ("USD",)  # row 20; Create payment
    methods: tuple[Method, ...] = read_methods(tuple(PaymentMethod))  # row 17; Create payment
    terminals: tuple[str, ...] = tuple(map(str, Terminal))  # Create payment
    pay_parameters: tuple[str, ...] = _PAY_PARAMETERS
    query_parameters: tuple[str, ...] = ("reference",)
    refund_parameters: tuple[str, ...] = ("reference", "amount", "ipnUrl")
    # row 14
    refund_notification_fields: frozenset[str] = field(default=_REFUND_NOTIFICATION, repr=False)
    """The fields that a refund notification may have: with any other it only causes a query."""
    kept_fields: frozenset[str] = KEPT_FIELDS
    """The fields of notifications and answers that are stored, at every depth; all others are
    dropped: they may be about the shopper.
    """

    def __post_init__(self) -> None:
        # A wrong value must fail here: later it would do harm without an error. A rule given as an
        # unknown text would check nothing, and `"x" in words` would search the letters of a text
        # that was given for a set.
        for name in (
            "name",
            "gateway",
            "base_url",
            "acknowledgement",
            "success_code",
            "not_found_code",
        ):
            if not isinstance(getattr(self, name), str):
                raise ConfigurationError(name, getattr(self, name), "is not text")
        for name in ("pay_path", "query_path", "refund_path"):
            path = getattr(self, name)
            # a path without its slash would run on from the host's name
            if not isinstance(path, str) or not _PATH.fullmatch(path):
                raise ConfigurationError(name, path, "is not a path such as /online/v1/refund")
        for name in ("expired_is_forgotten", "settle_currency_is_currency"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(name, getattr(self, name), "is not True or False")
        for name, kind in _CHOICES.items():
            if getattr(self, name) not in list(kind):
                raise ConfigurationError(
                    name,
                    getattr(self, name),
                    f"is not one of: {', '.join(kind)}",
                )
            object.__setattr__(self, name, kind(getattr(self, name)))
        for name in (
            "paid_words",
            "failed_words",
            "closed_words",
            "pending_words",
            "refunded_words",
            "unknown_codes",
            "rights_codes",
            "refund_refusal_codes",
            "kept_fields",
            "refund_notification_fields",
        ):
            object.__setattr__(self, name, frozenset(texts(name, getattr(self, name))))
        _expect_comparable(self.refund_notification_fields)
        for name in ("currencies", "settle_currencies"):
            object.__setattr__(self, name, read_currencies(name, getattr(self, name)))
            if not getattr(self, name):
                raise ConfigurationError(name, (), "is empty: list at least one currency")
        object.__setattr__(self, "methods", read_methods(self.methods))
        object.__setattr__(self, "timeout_minutes", _bounds(self.timeout_minutes))
        for name in (
            "required",
            "macros",
            "terminals",
            "pay_parameters",
            "query_parameters",
            "refund_parameters",
        ):
            object.__setattr__(self, name, texts(name, getattr(self, name)))

    @staticmethod
    def named(name: str) -> Dialect | None:
        """Return a preset or an installed plugin's dialect by its name; None for an unknown
        name.
        """
        if name in DIALECTS:
            return DIALECTS[name]
        found = entry.load() if (entry := _plugins_own().get(name)) else None
        return found if isinstance(found, Dialect) else None

    @staticmethod
    def names() -> list[str]:
        """Return the names of the presets, and of the installed plugins' dialects."""
        return [*DIALECTS, *sorted(_plugins_own())]

    @property
    def is_of_plugin(self) -> bool:
        """Whether a gateway plugin serves the accounts, and not Tillgate's own client."""
        return self.gateway != _BUILT_IN

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
        known["refunded"] = self.refunded_words
        return TransactionStatus(
            next((status for status, words in known.items() if word in words), "unrecognised"),
        )

    def timeout(self, minutes: int) -> int:
        """Return the minutes for which a payment page stays open when so many are wanted."""
        return min(max(minutes, self.timeout_minutes[0]), self.timeout_minutes[1])

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


def _bounds(given: object) -> tuple[int, int]:
    match given:
        case (int() as least, int() as most) if 1 <= least <= most:
            return least, most
    raise ConfigurationError(
        "timeout_minutes",
        given,
        "is not the least and the most minutes, such as (30, 1440)",
    )


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
"""Version 3 of the public service, as Yuansfer and Pockyt document it (docs/reference/dialect.md
names the sources).
"""

DIALECTS: Final = {dialect.name: dialect for dialect in (REFERENCE, EXAMPLES, V3)}
"""The presets by name, as an account names them."""


@functools.cache
def _plugins_own() -> dict[str, EntryPoint]:
    """Return the dialects that gateway plugins have under the entry points `tillgate.dialects`, by
    name.
    """
    # To look through all installed distributions takes tens of milliseconds, and a page asks dozens
    # of times.
    return {entry.name: entry for entry in entry_points(group="tillgate.dialects")}
