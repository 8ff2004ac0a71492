"""Notifications are stored here: a bounded number, each cut to a bounded size."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from django.db import connections
from django.utils import timezone

from tillgate.account import Account
from tillgate.django.models import Notification, NotificationKind, Payment, Refund, database
from tillgate.lifecycle import PaymentStatus
from tillgate.wire.notifications import (
    NOT_READ,
    NOT_WHOLE,
    NotificationSignature,
    signature_by,
)
from tillgate.wire.notifications import Notification as Received
from tillgate.wire.personal import kept_texts

_log = logging.getLogger("tillgate")

_KEPT_PER_PAYMENT: Final = 20
_KEPT_BYTES: Final = 8 * 1024


@functools.cache
def count_statement(alias: str) -> str:
    """Return the statement for every repeated notification. It is written in SQL, since the ORM
    takes eight times as long.
    """
    table = connections[alias].ops.quote_name(Payment._meta.db_table)
    return f"UPDATE {table} SET repeated_notifications = repeated_notifications + 1 WHERE id = %s"  # noqa: S608  # the name is of our table


@contextmanager
def errors_logged(reference: str) -> Iterator[None]:
    """Log every error: the sender's notification is stored. A lock may be held too long, and the
    worker does the remaining work.
    """
    try:
        yield
    except Exception:
        _log.exception(
            "failed to process a notification of %s (stored; the worker will retry)", reference
        )


def digest(
    kind: NotificationKind,
    received: Received,
    method: str,
    signature: NotificationSignature,
) -> str:
    """Return a hash that two notifications share which say the same, through the same door."""
    parts = [
        kind.value,
        method,
        signature.value,
        received.fault,
        sorted(received.evidence().items()),
    ]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def signature_of(account: Account | None, received: Received) -> NotificationSignature:
    """Return the state of a notification's signature, by the dialect of the account that made the
    payment (unspecified 8).
    """
    if account is None:
        return NotificationSignature.ABSENT
    return signature_by(account.dialect, received, account.token.get_secret_value())


def count_repeated(payment: Payment) -> None:
    """Count a notification of a paid payment that says no more than the one before."""
    with connections[database()].cursor() as cursor:
        cursor.execute(count_statement(database()), [payment.pk])


def is_late(payment: Payment, hashed: str, *, is_forged: bool) -> bool:
    """Count a notification of a paid payment that says no more than paid, and return whether it is
    one. Tail polls find later changes.

    A row that another process has changed stays as it is: `claim_poll` reads it again.
    """
    if payment.status != PaymentStatus.PAID or is_forged:
        return False
    unchanged = Payment.objects.filter(pk=payment.pk, notifications=payment.notifications)
    count = payment.notifications + 1
    if not unchanged.update(notifications=count, last_notification=hashed):
        return False
    payment.notifications = count
    return True


def keep(
    payment: Payment,
    kind: NotificationKind,
    evidence: Mapping[str, str],
    method: str,
    signature: NotificationSignature,
    *,
    count: int,
    refund: Refund | None = None,
) -> None:
    """Store the notification number `count` of a payment or refund in its slot, overwriting the
    oldest.
    """
    slot = {"payment": payment, "refund": refund, "slot": (count - 1) % _KEPT_PER_PAYMENT}
    columns = {
        "kind": kind,
        "received_at": timezone.now(),
        "method": method[:8],
        "signature": signature.value,
        "evidence": evidence,
    }
    is_taken = count > _KEPT_PER_PAYMENT
    if not (is_taken and Notification.objects.filter(**slot).update(**columns)):
        Notification.objects.create(**slot, **columns)


def bounded(received: Received, names: Collection[str]) -> dict[str, str]:
    """Return the fields of these names to store, within a bound and without personal data."""
    evidence: dict[str, str] = {}
    size = 0
    for name, value in kept_texts(received.evidence(), names).items():
        size += len(json.dumps([name, value]))
        if size > _KEPT_BYTES:
            evidence[NOT_WHOLE] = "the rest was not kept"
            break
        evidence[name] = value
    if repeated := [name for name in sorted(received.repeated) if name in names]:
        also = ", and the rest" if NOT_WHOLE in evidence else ""
        evidence[NOT_WHOLE] = f"not kept: another value of {', '.join(repeated)}" + also
    if received.fault:
        evidence[NOT_READ] = received.fault
    return evidence
