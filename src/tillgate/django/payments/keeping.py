"""Notifications as they are kept: a bounded number, each cut to a bounded size."""

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

COUNT_REPEATED: Final = (
    "UPDATE {payments} SET repeated_notifications = repeated_notifications + 1 WHERE id = %s"
)
_COUNT: Final = (
    "UPDATE {payments} SET notifications = %s, last_notification = %s WHERE id = %s "
    "AND notifications = %s"
)
_REPLACE: Final = (
    "UPDATE {kept} SET kind = %s, received_at = %s, method = %s, signature = %s, evidence = %s"
    " WHERE payment_id = %s AND slot = %s AND COALESCE(refund_id, 0) = %s"
)
_ADD: Final = (
    "INSERT INTO {kept} (kind, received_at, method, signature, evidence, payment_id, slot, "
    "refund_id)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
)


@functools.cache
def sql(statement: str, alias: str) -> str:
    """Return a statement about our tables, by the names that the project gives them there."""
    quote = connections[alias].ops.quote_name
    return statement.format(
        payments=quote(Payment._meta.db_table),
        kept=quote(Notification._meta.db_table),
    )


@contextmanager
def kept_all_the_same(reference: str) -> Iterator[None]:
    """Log every error: the sender's notification is stored. A lock may be held too long, and the
    worker does the remaining work.
    """
    try:
        yield
    except Exception:
        _log.exception("what a notification of %s leads to could not be done", reference)


def digest(
    kind: NotificationKind,
    received: Received,
    method: str,
    signature: NotificationSignature,
) -> str:
    """Return a hash that two notifications share which say the same, through the same door."""
    said = [
        kind.value,
        method,
        signature.value,
        received.fault,
        sorted(received.evidence().items()),
    ]
    return hashlib.blake2b(json.dumps(said).encode(), digest_size=16).hexdigest()


def signature_of(account: Account | None, received: Received) -> NotificationSignature:
    """Return the state of a notification's signature, by the dialect of the account that made the
    payment (unspecified 8).
    """
    if account is None:
        return NotificationSignature.ABSENT
    return signature_by(account.dialect, received, account.token.get_secret_value())


def is_late(payment: Payment, said: str, *, is_forged: bool) -> bool:
    """Count a notification of a paid payment that says no more than paid, and return whether it is
    one. Tail polls find later changes.

    The row is changed as it was read; when it has changed since, it is for `claim_poll` to read it
    again.
    """
    if payment.status != PaymentStatus.PAID or is_forged:
        return False
    with connections[database()].cursor() as cursor:
        cursor.execute(
            sql(_COUNT, database()),
            [payment.notifications + 1, said, payment.pk, payment.notifications],
        )
        if cursor.rowcount:
            payment.notifications += 1
        return bool(cursor.rowcount)


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
    """Keep the so manieth notification of a payment or refund in one of its slots, in place of the
    oldest when all are taken.
    """
    connection = connections[database()]
    received_at = connection.ops.adapt_datetimefield_value(timezone.now())
    kept = [
        kind.value,
        received_at,
        method[:8],
        signature.value,
        connection.ops.adapt_json_value(evidence, None),
    ]
    slot, refund_id = (count - 1) % _KEPT_PER_PAYMENT, refund.pk if refund else None
    with connection.cursor() as cursor:
        if count > _KEPT_PER_PAYMENT:
            cursor.execute(sql(_REPLACE, database()), [*kept, payment.pk, slot, refund_id or 0])
            if cursor.rowcount:
                return
        cursor.execute(sql(_ADD, database()), [*kept, payment.pk, slot, refund_id])


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
