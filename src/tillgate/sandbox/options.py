"""All options as one frozen value: each unspecified behaviour of the interface is a field, each
fault a probability.

The rows in the comments are those of the table of unspecified behaviour in
src/tillgate/wire/README.md.
"""

from __future__ import annotations

import difflib
import http
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from . import contract, money
from .errors import UnknownOption, WrongOption
from .faults import FAULTS, check_probabilities

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "empty_parameters": ("either", "skip", "keep"),
    "prefixes": tuple(contract.PATHS),
    "encodings": ("both", "json", "form"),
    "pay_amount": ("text", "number"),
    "query_amount": ("number", "text", "missing"),
    "answer_signature": ("none", "valid", "wrong"),
    "notification_method": ("POST", "GET"),
    "notification_format": ("form", "json"),
    "notification_signature": ("valid", "none", "wrong"),
    "acknowledgement": ("success", "any"),
    "repeated_reference": ("refuse", "replay"),
    "refund_outcome": ("succeeded", "pending", "failed"),
    "refund_info": ("finished", "status", "none"),
    "goods_characters": ("plain", "any"),
    "extra_fields": ("allow", "refuse"),
    "json_numbers": ("allow", "refuse"),
    "address_scheme": ("any", "https"),
}


def _published() -> Mapping[str, str]:
    return MappingProxyType({contract.PUBLISHED_MERCHANT_NO: contract.PUBLISHED_TEST_TOKEN})


@dataclass(frozen=True, kw_only=True)
class Options:
    """How this emulator behaves; build it with the fields to change, or from text with
    `Options.read`.
    """

    seed: int | None = None
    merchants: Mapping[str, str] = field(default_factory=_published, repr=False)
    merchant_name: str = "Test shop"
    public_url: str = ""

    # Requests.
    empty_parameters: str = "either"  # row 1
    prefixes: str = "all"  # row 2
    encodings: str = "both"  # row 3
    reference_pattern: str = (
        ""  # row 11: a regular expression for the whole reference; empty accepts every one
    )
    repeated_reference: str = "refuse"  # row 13
    goods_characters: str = "plain"  # row 15
    rate_limit_per_second: int = 0  # row 16: 0 sets no limit
    minimum_amount: str = "0.01"  # row 17
    maximum_amount: str = ""  # row 17: empty sets no limit
    extra_fields: str = "allow"
    json_numbers: str = "allow"  # merchantNo and timeout as numbers of JSON
    stores: tuple[str, ...] = (contract.PUBLISHED_STORE_NO,)  # version 3
    currencies: tuple[str, ...] = contract.V3_CURRENCIES  # version 3
    address_scheme: str = "any"  # "It must be secure and reliable": https refuses plain http

    # Answers.
    pay_amount: str = "text"  # row 4
    query_amount: str = "number"  # rows 4 and 5
    answer_signature: str = "none"  # row 7
    refusal_http_status: int = 400  # row 12
    refund_message: str = "refund success"  # row 14
    refund_outcome: str = "succeeded"  # row 14
    refund_info: str = "finished"  # row 14: the refunds in a query's answer, version 3
    answer_currency: str = "own"  # row 20: empty leaves it out
    answer_settle_currency: str = "own"  # row 20: empty leaves it out

    # The status words (rows 6, 18 and 19).
    word_pending: str = "pending"
    word_processing: str = "processing"
    word_paid: str = "success"
    word_failed: str = "failed"
    word_expired: str = "closed"
    word_reversed: str = "reversed"
    word_partly_refunded: str = "success"  # row 18
    word_refunded: str = "success"  # row 18
    expired_is_forgotten: bool = (
        False  # row 19: after the time-out the query says "order not found"
    )

    # Notifications (rows 8 and 9) and the shopper's return (row 10).
    notification_method: str = "POST"
    notification_format: str = "form"
    notification_signature: str = "valid"
    notification_on_paid: bool = True
    notification_on_failed: bool = False
    notification_on_expired: bool = False
    notification_on_refund: bool = True
    acknowledgement: str = "success"
    notification_schedule_seconds: tuple[float, ...] = (0, 15, 60, 300, 900, 1800, 3600, 7200)
    notification_timeout_seconds: float = 10.0
    notification_hosts: tuple[
        str,
        ...,
    ] = ()  # empty: any; of a server bound to more than loopback, any public address
    macros: tuple[str, ...] = ("amount", "status", "transactionNo", "reference", "time", "note")

    # Faults: `{"lost_response": 0.1, "query.server_error": 0.5}`, and the details of each.
    faults: Mapping[str, float] = field(default_factory=dict)
    magic_amounts: bool = True
    delay_seconds: float = 3.0
    late_seconds: float = 60.0
    slow_seconds: float = 172_800.0
    drip_pause_seconds: float = 0.2
    cut_after_bytes: int = -1
    huge_body_bytes: int = 10 * 1024 * 1024

    journal_entries: int = 20_000

    def __post_init__(self) -> None:
        for name, is_right, allowed in self._rules():
            if not is_right:
                raise WrongOption(
                    name,
                    tuple(self.merchants) if name == "merchants" else getattr(self, name),
                    allowed,
                )
        try:
            re.compile(self.reference_pattern)
        except re.error as error:
            raise WrongOption(
                "reference_pattern",
                self.reference_pattern,
                f"a regular expression ({error})",
            ) from error
        check_probabilities(self.faults)
        object.__setattr__(self, "merchants", MappingProxyType(dict(self.merchants)))
        object.__setattr__(self, "faults", MappingProxyType(dict(self.faults)))

    def _rules(self) -> Iterator[tuple[str, bool, str]]:
        """Yield the name of each option, whether its value is right, and the allowed values."""
        for name, choices in _CHOICES.items():
            yield name, getattr(self, name) in choices, f"one of {', '.join(choices)}"
        yield (
            "public_url",
            not self.public_url or _is_address(self.public_url),
            "an http or https address, such as https://pay.example",
        )
        for name in _COUNTS:
            yield name, 0 <= getattr(self, name) <= _MOST, f"from 0 to {_MOST:,}"
        has_body = (
            200 <= self.refusal_http_status < 500
            and self.refusal_http_status in _STATUSES_WITH_A_BODY
        )
        yield (
            "refusal_http_status",
            has_body,
            "a status from 200 to 499 that HTTP knows, and that has a body",
        )
        schedule = self.notification_schedule_seconds
        rises = (
            bool(schedule)
            and all(map(_is_duration, schedule))
            and list(schedule) == sorted(schedule)
        )
        yield (
            "notification_schedule_seconds",
            rises,
            f"rising numbers up to {_MOST:,}, at least one",
        )
        for name in ("macros", "notification_hosts", "stores"):
            yield name, all(isinstance(text, str) for text in getattr(self, name)), "texts"
        are_money = all(
            isinstance(code, str) and money.decimals_of(code) is not None
            for code in self.currencies
        )
        yield (
            "currencies",
            bool(self.currencies) and are_money,
            "codes of currencies by ISO 4217, at least one",
        )
        yield "minimum_amount", money.plain(self.minimum_amount) is not None, "a plain decimal"
        yield (
            "maximum_amount",
            not self.maximum_amount or money.plain(self.maximum_amount) is not None,
            "a plain decimal",
        )
        are_named = self.merchants and all(
            number and isinstance(token, str) and token for number, token in self.merchants.items()
        )
        yield (
            "merchants",
            bool(are_named),
            "at least one merchantNo, each with a token, which is text",
        )

    @classmethod
    def read(cls, given: Mapping[str, object], base: Options | None = None) -> Options:
        """Build options from names and values of a command line, a file or the control API.

        Text becomes the type of the field, and a fault's value is its probability. An unknown name
        is an error that suggests a known one.
        """
        start = base or cls()
        known: dict[str, Any] = {item.name: getattr(start, item.name) for item in fields(cls)}
        values = dict(known)
        for name, value in given.items():
            if name in known:
                values[name] = _read_value(name, value, known[name])
            else:
                values["faults"] = {**values["faults"], **_read_fault(name, value, tuple(known))}
        return cls(**values)


_COUNTS = (
    "rate_limit_per_second",
    "notification_timeout_seconds",
    "delay_seconds",
    "late_seconds",
    "slow_seconds",
    "drip_pause_seconds",
    "huge_body_bytes",
    "journal_entries",
)


_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_FAR_TOO_MUCH = 10**300
_MOST = 10**9
"""An upper bound for seconds, bytes and entries: larger than any useful value, and small enough for
arithmetic.
"""
_STATUSES_WITH_A_BODY = {int(status) for status in http.HTTPStatus} - {204, 205, 304}


def _is_duration(value: object) -> bool:
    # a number, as the left side proves
    return type(value) in (int, float) and 0 <= value <= _MOST  # type: ignore[operator]


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and not parts.query
            and not parts.fragment
        )
    except ValueError:
        return False


def _read_fault(name: str, value: object, names: tuple[str, ...]) -> dict[str, float]:
    try:
        # the name first: a misspelt switch is the likelier mistake
        check_probabilities({name: 0.0})
        probability = {name: float(str(value))}
        check_probabilities(probability)
    except UnknownOption:
        raise UnknownOption(
            name,
            *difflib.get_close_matches(name.rpartition(".")[2], (*names, *FAULTS), n=1),
        ) from None
    except ValueError:
        raise WrongOption(name, value, "a probability from 0 to 1") from None
    return probability


def _read_value(name: str, value: object, current: object) -> object:
    """Convert text to the type of the field; every other value must have that type already."""
    wanted: type = int if name == "seed" else type(current)
    allowed = (
        "a JSON object" if isinstance(current, Mapping) else f"a value of type {wanted.__name__}"
    )
    if isinstance(value, str) and wanted is not str:
        try:
            value = _WORDS[value.lower()] if value.lower() in _WORDS else json.loads(value)
        except ValueError:
            allowed = "JSON, such as 3, true or [0, 60]"
    if isinstance(value, list) and wanted is tuple:
        value = tuple(value)
    if type(value) is int and wanted is float:
        # too large for any switch
        value = float(value) if abs(value) < _FAR_TOO_MUCH else float("inf")
    if (
        type(value) is wanted
        or (isinstance(current, Mapping) and isinstance(value, Mapping))
        or (name == "seed" and value is None)
    ):
        return value
    if name == "merchants":  # the value may hold a token
        raise WrongOption(name, "***", 'JSON such as {"the merchantNo": "its token"}')
    raise WrongOption(name, value, allowed)
