"""After a restore or a failover: the database may have lost its last changes, though the gateway
and the shoppers know of them.

PostgreSQL gives each promoted or restored server another timeline: that mark shows it. Elsewhere
staff note it by the command. The worker asks about each queued refund in any case before it sends
it, so only a gateway without a list of refunds in its answers needs the mark.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import Error as DatabaseFault
from django.db import connections
from django.utils import timezone

from tillgate.account import Account
from tillgate.django import dates
from tillgate.django.heartbeats import set_heartbeat
from tillgate.django.models import Heartbeat, Payment, Refund, Review, TimelineEntry, database
from tillgate.django.orders.locking import durable, outside_transactions, reconnect_if_cut
from tillgate.django.refunds.settling import mark_unknown
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import Answer, Found, NotFound, RefundStatus, ReviewReason
from tillgate.wire.dialects import TransactionStatus

_log = logging.getLogger("tillgate")

DATABASE: Final = "database"
"""The heartbeat of the database itself: `at` is when it was first seen, or last restored; its
detail names its server.
"""
_ASKED_SINCE: Final = timedelta(days=30)
"""The payments of so long a time before a restore are asked about: they may have been paid or
refunded since.
"""
_RECENT: Final = timedelta(days=3)
"""So long after a restore an account's own address may tell of a lost payment; later it tells of
other software's.
"""
_NO_MONEY: Final = frozenset(
    {
        TransactionStatus.PENDING,
        TransactionStatus.PROCESSING,
        TransactionStatus.FAILED,
        TransactionStatus.CLOSED,
    },
)
_MESSAGE: Final = "the database was restored: its request may have left before"
_SERVER: Final = """
SELECT system_identifier, CASE WHEN pg_is_in_recovery() THEN ''
    ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END
FROM pg_control_system()
"""
_unnamed: Final[set[str]] = set()
"""The databases that do not tell this process their server: it has no right to ask, or they have no
timeline.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The consequences of a restore: how many queued refunds are unknown now, and how many payments
    are asked about.
    """

    refunds: int
    payments: int


def note_restored(since: datetime, actor: str, until: datetime | None = None) -> Restored:
    """Note that the database lost its changes after `since`, and open a review.

    A refund that was queued then, or `until` a later moment, may have been sent: it is unknown, and
    never sent again (I6). The worker asks about the payments of the 30 days before. Safe to repeat.
    """
    outside_transactions("restored")
    until = until or since
    queued = (
        Refund.objects.filter(status=RefundStatus.QUEUED, created_at__lte=until)
        .order_by("pk")
        .values_list("pk", flat=True)
    )
    refunds = sum(mark_unknown(pk, actor, _MESSAGE) for pk in queued)
    payments = Payment.objects.filter(
        created_at__gte=since - _ASKED_SINCE,
        created_at__lte=until,
    ).update(next_poll_at=timezone.now())
    with durable():
        facts = {"since": f"{dates.local(since):%Y-%m-%d %H:%M:%S %Z}".rstrip(), "refunds": refunds}
        open_review(ReviewReason.ROWS_LOST, facts, actor)
    set_heartbeat(DATABASE, {"server": _server(), "restored": True})
    return Restored(refunds=refunds, payments=payments)


def look_for_restore() -> bool:
    """Return whether another server or timeline has taken over since the last call of any process,
    and if so, do as `note_restored`.
    """
    row = Heartbeat.objects.filter(name=DATABASE).first()
    server = _server()
    if row is None:
        first = Heartbeat(name=DATABASE, at=timezone.now(), detail={"server": server})
        Heartbeat.objects.bulk_create([first], ignore_conflicts=True)
        return False
    known = row.detail.get("server")
    if known and server and known != server:
        _log.error(
            "the database was restored, or another server took over: queued refunds are not sent, "
            "and staff have a review",
        )
        now = timezone.now()
        newest = TimelineEntry.objects.order_by("-pk").values_list("at", flat=True).first()
        note_restored(newest or now, "worker", now)
        return True
    if server and not known:
        Heartbeat.objects.filter(name=DATABASE, at=row.at).update(
            detail={**row.detail, "server": server},
        )
    return False


def _server() -> str:
    """Return the server of the database with its timeline, or "" where it does not tell."""
    connection = connections[database()]
    if connection.vendor != "postgresql" or connection.alias in _unnamed:
        return ""
    try:
        with connection.cursor() as cursor:
            cursor.execute(_SERVER)
            identifier, timeline = cursor.fetchone()
    except DatabaseFault as error:
        if connection.is_usable():
            _log.info(
                "the database does not tell its timeline, so staff must note a failover "
                "themselves: %s",
                error,
            )
            _unnamed.add(connection.alias)
        reconnect_if_cut()
        return ""
    return f"{identifier}:{timeline}" if timeline else ""


def was_restored() -> bool:
    """Return whether a restore was noticed in the last three days."""
    at = Heartbeat.objects.filter(name=DATABASE, at__gte=timezone.now() - _RECENT)
    return any(detail.get("restored") for detail in at.values_list("detail", flat=True))


def has_review(reference: str, alias: str) -> bool:
    """Return whether a lost payment has, or had, a review."""
    reviews = Review.objects.filter(reason=ReviewReason.ROWS_LOST, account=alias)
    return reviews.filter(facts__reference=reference).exists()


def review_lost_payment(
    alias: str,
    account: Account,
    reference: str,
    evidence: Mapping[str, str],
    answer: Answer,
) -> None:
    """Open a review about a lost payment that a signed notification names, if money is behind it.

    The gateway's answer to a query says so; the notification's own word counts where there is none.
    """
    if isinstance(answer, NotFound) or has_review(reference, alias):
        return
    status = account.dialect.status(evidence.get("status", ""))
    amount, currency = evidence.get("amount", "?"), evidence.get("currency", "")
    if isinstance(answer, Found):
        found = answer.transaction
        status, currency = found.status, found.currency or currency
        amount = str(found.amount or amount)
    if status in _NO_MONEY:
        return
    facts = {"case": "payment", "reference": reference, "amount": amount}
    with durable():
        open_review(
            ReviewReason.ROWS_LOST,
            facts | ({"currency": currency} if currency else {}),
            "webhook",
            account=alias,
        )
