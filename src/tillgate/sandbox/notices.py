"""Notices to the merchant and the shopper's way back: what they say, when they are due, what acknowledges them.

The interface names the events and leaves payload, method, signature and acknowledgement open ("Events"; silences 8, 9 and 10):
what is here follows the family, and every choice is a switch.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote, urlencode, urlsplit

from . import signing
from .options import Options
from .transactions import Refund, Transaction

NoticeKind = Literal["payment", "refund", "forged", "stale"]

_MACRO = re.compile(r"\{([A-Za-z]+)\}")
# Everything that may stand in an address stays as the merchant wrote it, braces included; the rest is escaped.
_ADDRESS_CHARACTERS = "%!#$&'()*+,/:;=?@[]~{}"


@dataclass(frozen=True, slots=True)
class NoticeAttempt:
    """One sending of one notice, ready for the wire; hand it back with `Service.notice_answered`."""

    notice_no: int
    attempt_no: int
    kind: NoticeKind
    transaction_no: str
    method: str
    url: str
    content_type: str
    body: bytes


@dataclass(slots=True)
class Notice:
    """One notice until it is acknowledged or given up."""

    notice_no: int
    kind: NoticeKind
    transaction: Transaction
    url: str
    payload: Mapping[str, str]
    first_at: float
    signature: str
    sends: int = 0
    state: Literal["waiting", "sending", "acknowledged", "given up"] = "waiting"


@dataclass(slots=True)
class Outbox:
    """The notices that wait for their time, earliest first."""

    _waiting: list[tuple[float, int, Notice]] = field(default_factory=list)
    _sending: dict[int, Notice] = field(default_factory=dict)
    count: int = 0

    def put(
        self,
        *,
        kind: NoticeKind,
        transaction: Transaction,
        url: str,
        payload: Mapping[str, str],
        at: float,
        signature: str,
    ) -> Notice:
        """Schedule a notice for its first sending."""
        self.count += 1
        notice = Notice(self.count, kind, transaction, url, payload, at, signature)
        self._wait(notice, at)
        return notice

    def _wait(self, notice: Notice, at: float) -> None:
        notice.state = "waiting"
        heapq.heappush(self._waiting, (at, notice.notice_no, notice))

    def next_due(self) -> float | None:
        """When the next notice is due, if one waits."""
        return self._waiting[0][0] if self._waiting else None

    def in_flight(self) -> int:
        """How many are being sent."""
        return len(self._sending)

    def take_due(self, now: float) -> list[Notice]:
        """Take what is due; each is being sent until `answered` hears of it."""
        due = []
        while self._waiting and self._waiting[0][0] <= now:
            notice = heapq.heappop(self._waiting)[2]
            notice.state = "sending"
            notice.sends += 1
            self._sending[notice.notice_no] = notice
            due.append(notice)
        return due

    def answered(self, attempt: NoticeAttempt, *, acknowledged: bool, now: float, schedule: tuple[float, ...]) -> Notice | None:
        """Hear how a sending went: settled, or waiting for the next place in the schedule, or given up after the last.

        What was being sent when everything was forgotten is heard of yet, and may have the number of a notice that came after.
        """
        notice = self._sending.get(attempt.notice_no)
        if notice is None or notice.transaction.transaction_no != attempt.transaction_no:
            return None
        del self._sending[attempt.notice_no]
        if acknowledged:
            notice.state = "acknowledged"
        elif notice.sends >= len(schedule):
            notice.state = "given up"
        else:
            self._wait(notice, max(now, notice.first_at + schedule[notice.sends] - schedule[0]))
        return notice


def payment_payload(transaction: Transaction, status: str, now: float) -> dict[str, str]:
    """Write what a notice about a payment says, in the family's words."""
    return {
        "transactionNo": transaction.transaction_no,
        "reference": transaction.reference,
        "amount": transaction.amount,
        "currency": transaction.currency,
        "settleCurrency": "USD",
        "status": status,
        "time": datetime.fromtimestamp(now, UTC).strftime("%Y%m%d%H%M%S"),
        "vendorId": f"{transaction.vendor}-{transaction.transaction_no[-8:]}",
    }


def refund_payload(transaction: Transaction, refund: Refund, status: str, now: float) -> dict[str, str]:
    """Write what a notice about a refund says: the payment's words and the refund's own number and amount."""
    return payment_payload(transaction, status, now) | {
        "refundTransactionNo": refund.refund_no,
        "refundAmount": refund.amount,
    }


def attempt(notice: Notice, token: str, options: Options) -> NoticeAttempt:
    """Write one sending down as the switches want it: method, format, signature."""
    payload = dict(notice.payload)
    if notice.signature != "none":
        make = signing.signature if notice.signature == "valid" else signing.wrong
        payload[signing.FIELD] = make(payload, token)
    url, content_type, body = notice.url, "", b""
    if options.notice_method == "GET":
        url = _with_query(url, urlencode(payload))
    elif options.notice_format == "json":
        content_type, body = "application/json", json.dumps(payload).encode()
    else:
        content_type, body = "application/x-www-form-urlencoded", urlencode(payload).encode()
    number = notice.transaction.transaction_no
    return NoticeAttempt(
        notice.notice_no,
        notice.sends,
        notice.kind,
        number,
        options.notice_method,
        ascii_address(url),
        content_type,
        body,
    )


def _with_query(url: str, query: str) -> str:
    parts = urlsplit(url)
    return parts._replace(query="&".join(filter(None, (parts.query, query)))).geturl()


def acknowledges(http_status: int | None, body: bytes, rule: str) -> bool:
    """Say whether an answer settles a notice: HTTP 200 and exactly `success` (silence 9), or any body where so set."""
    return http_status == 200 and (rule == "any" or body == b"success")


def way_back(transaction: Transaction, status: str, options: Options) -> str:
    """Return the callback address with its macros replaced, each value escaped ("Create payment", callbackUrl; silence 10)."""
    values = {
        "amount": transaction.amount,
        "status": status,
        "transactionNo": transaction.transaction_no,
        "reference": transaction.reference,
        "currency": transaction.currency,
        "merchantNo": transaction.merchant_no,
        "vendor": transaction.vendor,
    }

    def replaced(found: re.Match[str]) -> str:
        name = found[1]
        return quote(values[name], safe="") if name in options.macros and name in values else found[0]

    return ascii_address(_MACRO.sub(replaced, transaction.callback_url))


def ascii_address(address: str) -> str:
    """Escape what cannot stand in a header; a host in another script goes through IDNA."""
    if not address.isascii():
        parts = urlsplit(address)
        try:
            host = (parts.hostname or "").encode("idna").decode()
        except UnicodeError:
            host = quote(parts.hostname or "")
        user, at, _ = parts.netloc.rpartition("@")
        port = f":{parts.port}" if parts.port else ""
        address = parts._replace(netloc=user + at + (f"[{host}]" if ":" in host else host) + port).geturl()
    return quote(address, safe=_ADDRESS_CHARACTERS)
