"""Notifications to the merchant and the shopper's return, in the form of the gateway's family
(unspecified behaviour 8, 9 and 10).
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

NotificationKind = Literal["payment", "refund", "forged", "stale"]

_MACRO = re.compile(r"\{([A-Za-z]+)\}")


@dataclass(frozen=True, slots=True)
class NotificationAttempt:
    """One sending of one notification, ready for the wire. Report its result with
    `Service.notification_answered`.
    """

    notification_no: int
    attempt_no: int
    kind: NotificationKind
    transaction_no: str
    method: str
    url: str
    content_type: str
    body: bytes


@dataclass(slots=True)
class Notification:
    """One notification until it is acknowledged or the schedule ends."""

    notification_no: int
    kind: NotificationKind
    transaction: Transaction
    url: str
    payload: Mapping[str, str]
    first_at: float
    signature: str
    sends: int = 0
    state: Literal["waiting", "sending", "acknowledged", "abandoned"] = "waiting"


@dataclass(slots=True)
class Outbox:
    """The waiting notifications, earliest first."""

    _waiting: list[tuple[float, int, Notification]] = field(default_factory=list)
    _sending: dict[int, Notification] = field(default_factory=dict)
    count: int = 0

    def put(
        self,
        kind: NotificationKind,
        transaction: Transaction,
        url: str,
        payload: Mapping[str, str],
        *,
        at: float,
        signature: str,
    ) -> Notification:
        """Schedule a notification for its first sending."""
        self.count += 1
        notification = Notification(self.count, kind, transaction, url, payload, at, signature)
        self._wait(notification, at)
        return notification

    def _wait(self, notification: Notification, at: float) -> None:
        notification.state = "waiting"
        heapq.heappush(self._waiting, (at, notification.notification_no, notification))

    def next_due(self) -> float | None:
        """Return the time of the next notification, if one waits."""
        return self._waiting[0][0] if self._waiting else None

    def in_flight(self) -> int:
        """Return the number of notifications that are being sent."""
        return len(self._sending)

    def take_due(self, now: float) -> list[Notification]:
        """Take the due notifications; each counts as being sent until `answered` has its result."""
        due = []
        while self._waiting and self._waiting[0][0] <= now:
            notification = heapq.heappop(self._waiting)[2]
            notification.state = "sending"
            notification.sends += 1
            self._sending[notification.notification_no] = notification
            due.append(notification)
        return due

    def answered(
        self,
        attempt: NotificationAttempt,
        *,
        acknowledged: bool,
        now: float,
        schedule: tuple[float, ...],
    ) -> Notification | None:
        """Record the result of a sending: the notification is settled, waits for its next time, or
        ends after the last time.
        """
        notification = self._sending.get(attempt.notification_no)
        if (
            notification is None
            or notification.transaction.transaction_no != attempt.transaction_no
        ):
            return None
        del self._sending[attempt.notification_no]
        if acknowledged:
            notification.state = "acknowledged"
        elif notification.sends >= len(schedule):
            notification.state = "abandoned"
        else:
            self._wait(
                notification,
                max(now, notification.first_at + schedule[notification.sends] - schedule[0]),
            )
        return notification


def payload(
    transaction: Transaction,
    refund: Refund | None,
    status: str,
    now: float,
) -> dict[str, str]:
    """Write the content of a notification about a payment or a refund of it, in the family's
    words.
    """
    about = {"transactionNo": transaction.transaction_no, "reference": transaction.reference}
    # in version 1 "exactly transactionNo, status, reference, verifySign"; 3 names the refund
    if refund:
        names = {"refundReference": refund.reference, "refundTransactionNo": refund.refund_no}
        named = names | {"refundAmount": refund.amount} if refund.reference else {}
        return about | {"status": status} | named
    about |= {
        "amount": transaction.amount,
        "currency": transaction.currency,
        "settleCurrency": transaction.settle_currency,
        "status": status,
        "time": _moment(now),
        "vendorId": f"{transaction.vendor}-{transaction.transaction_no[-8:]}",
    }
    return about | ({"note": transaction.note} if transaction.note else {})


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%d%H%M%S")


def attempt(notification: Notification, token: str, options: Options) -> NotificationAttempt:
    """Prepare one sending as the switches say: method, format, signature."""
    payload = dict(notification.payload)
    if notification.signature != "none":
        make = signing.signature if notification.signature == "valid" else signing.wrong
        payload[signing.FIELD] = make(payload, token)
    url, content_type, body = notification.url, "", b""
    if options.notification_method == "GET":
        parts = urlsplit(url)
        url = parts._replace(
            query="&".join(filter(None, (parts.query, urlencode(payload)))),
        ).geturl()
    elif options.notification_format == "json":
        content_type, body = "application/json", json.dumps(payload).encode()
    else:
        content_type, body = "application/x-www-form-urlencoded", urlencode(payload).encode()
    numbers = (
        notification.notification_no,
        notification.sends,
        notification.kind,
        notification.transaction.transaction_no,
    )
    return NotificationAttempt(
        *numbers,
        options.notification_method,
        url,
        content_type,
        body,
    )


def acknowledges(http_status: int | None, body: bytes, rule: str) -> bool:
    """Return whether an answer, HTTP 200 with `success`, or with any body, settles a notification
    (unspecified behaviour 9).
    """
    return http_status == 200 and (rule == "any" or body == b"success")


def way_back(transaction: Transaction, status: str, options: Options, now: float) -> str:
    """Return the callback address with its macros replaced, each value escaped ("Create payment";
    unspecified behaviour 10).
    """
    values = {
        "amount": transaction.amount,
        "status": status,
        "transactionNo": transaction.transaction_no,
        "reference": transaction.reference,
        "currency": transaction.currency,
        "merchantNo": transaction.merchant_no,
        "vendor": transaction.vendor,
        "time": _moment(now),
        "note": transaction.note,
    }

    def replaced(found: re.Match[str]) -> str:
        name = found[1]
        return (
            quote(values[name], safe="") if name in options.macros and name in values else found[0]
        )

    return _MACRO.sub(replaced, transaction.callback_url)
