"""Notifications that the gateway sends to ipnUrl, in any of their possible shapes (Events;
unspecified behaviour 8).

Tillgate reads every shape, keeps it as evidence and trusts none of it (I7).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl

from tillgate import money
from tillgate.money import Money, WireNumber, json_decoder
from tillgate.wire import signing
from tillgate.wire.dialects import Dialect, SignatureRule
from tillgate.wire.profile import GatewayProfile, TransactionStatus
from tillgate.wire.texts import storable

__all__ = [
    "LARGEST_NOTIFICATION_BYTES",
    "NOT_READ",
    "NOT_WHOLE",
    "Notification",
    "NotificationSignature",
    "confirms_refund",
    "may_be_signed",
    "read_notification",
    "signature_by",
]

LARGEST_NOTIFICATION_BYTES: Final = 64 * 1024
_MOST_FIELDS = 200
_SIGNATURE: Final = signing.SIGNATURE.encode()
_LONGEST_SIGNED: Final = 8 * 1024
_MOST_SIGNED: Final = 100
"""Of a notification at an unknown address; those of the documented gateways have about a dozen
members.
"""
_NEEDED: Final = frozenset({"transactionNo", "status", "reference", signing.SIGNATURE})
"""The fields that every refund notification has; without one of them it confirms nothing."""
_MAY_BE_MISSING: Final = frozenset({"refundTransactionNo", "refundAmount"})
NOT_READ: Final = "?"
"""The name under which evidence describes the unreadable part of a notification."""
NOT_WHOLE: Final = "..."
"""The name under which evidence says that the rest of a notification was not kept."""


class NotificationSignature(StrEnum):
    """The result of checking a notification's verifySign."""

    ABSENT = "absent"
    MATCHES = "matches"
    FORGED = "forged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """The readable part of a notification. `fault` describes the unreadable part; `repeated` holds
    the names that came with two values.

    `body` holds the parameters of the body alone: a shop or a proxy may add parameters to the
    address, which are not signed.
    """

    parameters: Mapping[str, str] = field(repr=False)
    repeated: frozenset[str] = frozenset()
    body: Mapping[str, str] = field(default_factory=dict, repr=False)
    fault: str | None = None

    def signature(self, token: str) -> NotificationSignature:
        """Check the notification's signature with the token. A repeated name never matches, since
        its signed value is ambiguous.
        """
        if not self.parameters.get(signing.SIGNATURE):
            return NotificationSignature.ABSENT
        signed = (
            [self.parameters, self.body] if self.body.get(signing.SIGNATURE) else [self.parameters]
        )
        matches = not self.repeated and any(
            signing.verify(parameters, token) for parameters in signed
        )
        return NotificationSignature.MATCHES if matches else NotificationSignature.FORGED

    def evidence(self) -> dict[str, str]:
        """Return the parameters without the signature (I11)."""
        return {name: value for name, value in self.parameters.items() if name != signing.SIGNATURE}


def read_notification(content_type: str = "", query: str = "", body: bytes = b"") -> Notification:
    """Read a notification from a JSON or form body and from the query string, in that order of
    preference; never raise.

    Nested JSON values stay JSON text, without a verifySign of their own. Numbers keep their text.
    """
    faults = []
    pairs: list[tuple[str, str]] = []
    if len(body) > LARGEST_NOTIFICATION_BYTES:
        faults.append(
            f"the body is longer than {LARGEST_NOTIFICATION_BYTES} bytes and was not read",
        )
    elif body.strip():
        try:
            text = body.decode()
            pairs += (
                _json_pairs(text)
                if "json" in content_type.lower() or text.lstrip()[:1] in "{["
                else _form_pairs(text)
            )
        except (ValueError, RecursionError) as error:
            faults.append(f"the body was not understood ({type(error).__name__})")
    in_body, _ = _first_of_each(pairs)
    try:
        pairs += _form_pairs(query[:LARGEST_NOTIFICATION_BYTES])
    except ValueError:
        faults.append("the query string was not understood")
    parameters, repeated = _first_of_each(pairs)
    return Notification(
        parameters=parameters,
        repeated=repeated,
        body=in_body,
        fault="; ".join(faults) or None,
    )


def may_be_signed(query: str, body: bytes) -> bool:
    """Return whether the text of a notification is worth parsing: it names a signature, is short,
    and has few members.

    Cheap, for texts that anyone can send: it parses nothing.
    """
    if len(body) > _LONGEST_SIGNED or not (_SIGNATURE in body or signing.SIGNATURE in query):
        return False
    return sum(body.count(sign) for sign in b",&{[") <= _MOST_SIGNED


def signature_by(
    profile: GatewayProfile,
    received: Notification,
    token: str,
) -> NotificationSignature:
    """Return the state of a notification's verifySign, by the rule of the dialect; absent for a
    gateway that speaks otherwise.
    """
    if not isinstance(profile, Dialect):
        return NotificationSignature.ABSENT
    rule = profile.notification_signature
    if rule is SignatureRule.IGNORED:
        return NotificationSignature.ABSENT
    signature = received.signature(token)
    if rule is SignatureRule.REQUIRED and signature is NotificationSignature.ABSENT:
        return NotificationSignature.FORGED
    return signature


def confirms_refund(
    received: Notification,
    dialect: GatewayProfile,
    *,
    reference: str,
    transaction_no: str | None,
    refund_id: str,
    refund_no: str | None,
    refunded: Money,
) -> bool:
    """Return whether a notification on a refund's own address says that the refund is done.

    Closed by default (unspecified behaviour 14): it must have the shape that the dialect documents,
    and each field must agree with the known value. A field without a known value agrees with
    nothing. The caller checks the signature.
    """
    given = received.parameters
    if not isinstance(dialect, Dialect):
        return False
    needed = dialect.refund_notification_fields - _MAY_BE_MISSING | _NEEDED
    # Parameters that the address adds to a body are not signed.
    is_whole = not received.body or received.body == given
    if received.fault or received.repeated or not is_whole:
        return False
    if not needed <= given.keys() <= dialect.refund_notification_fields:
        return False
    agrees = {
        "status": dialect.status(given["status"]) is TransactionStatus.PAID,
        "transactionNo": given["transactionNo"] == transaction_no,
        "reference": given["reference"] == reference,
        "refundReference": given.get("refundReference") == refund_id,
        "refundTransactionNo": given.get("refundTransactionNo") == refund_no,
        "refundAmount": _is_amount(given.get("refundAmount", ""), refunded),
    }
    return all(agrees[name] for name in given if name != signing.SIGNATURE)


def _is_amount(value: str, wanted: Money) -> bool:
    return money.read_amount(value, wanted.currency) == wanted.amount


def _first_of_each(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], frozenset[str]]:
    parameters: dict[str, str] = {}
    repeated = set()
    for name, value in pairs:
        if parameters.setdefault(name, value) != value:
            repeated.add(name)
    return parameters, frozenset(repeated)


def _form_pairs(text: str) -> list[tuple[str, str]]:
    pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    return [(storable(name), storable(value)) for name, value in pairs]


def _json_pairs(text: str) -> list[tuple[str, str]]:
    pairs = _NOTIFICATIONS.decode(text)
    if not isinstance(pairs, _Pairs) or len(pairs) > _MOST_FIELDS:
        raise ValueError("not an object of a sensible size")
    return [(storable(name), storable(_wire_text(value))) for name, value in pairs]


class _Pairs(list[tuple[str, object]]):
    """A JSON object as its pairs, which keep a repeated name."""


_NOTIFICATIONS = json_decoder(_Pairs)


def _wire_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, WireNumber):
        return value.text
    if value is None:
        return ""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, _Pairs):
        return {name: _plain(member) for name, member in value if name != signing.SIGNATURE}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    return value.text if isinstance(value, WireNumber) else value
