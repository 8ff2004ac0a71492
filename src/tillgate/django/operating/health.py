"""The health of the payments, as far as the database knows it: accounts, worker, queues, open
reviews, and money that waits for staff.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import Q
from django.utils import timezone

from tillgate import money
from tillgate.account import Account
from tillgate.django.accounts import find_account
from tillgate.django.checks import clocks_apart
from tillgate.django.conf import get_settings
from tillgate.django.heartbeats import last_beat
from tillgate.django.models import (
    Notification,
    NotificationKind,
    Payment,
    Refund,
    Review,
)
from tillgate.django.operating.findings import accounts_in_use
from tillgate.django.payments.admission import open_refusals
from tillgate.django.payments.refusals import rejected_since
from tillgate.django.reviews.opening import HELD_REASONS
from tillgate.django.worker.lanes import answered_at, silent_since
from tillgate.django.worker.run import queue
from tillgate.django.worker.runner import Waiting
from tillgate.lifecycle import RefundStatus
from tillgate.money import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountHealth:
    """One account. `account` is None where it is not configured.

    `refused_creations` tells why the gateway creates no payments. `refused_notifications` counts
    the newest notifications that were forged, up to the number of a review.
    """

    alias: str
    account: Account | None
    answered_at: datetime | None
    silent_since: datetime | None
    refused_creations: tuple[str, ...]
    notified_at: datetime | None
    refused_notifications: int
    refused_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The whole: `worker_at` is when the worker last ran, and `queue` the due work by chore.

    `held` is money that waits for staff, `refunds` money of queued refunds. `clocks_apart` is by
    how many seconds the database's clock is ahead of this machine's, 0.0 if by few.
    """

    accounts: tuple[AccountHealth, ...]
    worker_at: datetime | None
    is_worker_late: bool
    clocks_apart: float
    queue: tuple[Waiting, ...]
    refunds_queued: int
    open_reviews: int
    held: tuple[Money, ...]
    refunds: tuple[Money, ...]
    at: datetime


def health() -> Health:
    """Return the health now. It reads the database only."""
    now, late = timezone.now(), timedelta(minutes=get_settings().worker_late_minutes)
    worker_at = last_beat()
    queued = Refund.objects.filter(status=RefundStatus.QUEUED).values_list(
        "amount",
        "payment__currency",
    )
    opened = Review.objects.filter(resolved_at__isnull=True)
    held = Payment.objects.filter(
        pk__in=opened.filter(Q(reason__in=HELD_REASONS) | Q(reported_paid=True)).values("payment"),
    )
    return Health(
        accounts=tuple(map(_account, accounts_in_use())),
        worker_at=worker_at,
        is_worker_late=worker_at is None or now - worker_at > late,
        clocks_apart=clocks_apart(),
        queue=queue(),
        refunds_queued=len(queued),
        open_reviews=opened.count(),
        held=totals(held.values_list("amount", "currency")),
        refunds=totals(queued),
        at=now,
    )


def _account(alias: str) -> AccountHealth:
    try:
        account = find_account(alias)
    except (
        Exception
    ):  # a plugin that keeps it may raise anything; the test of the connection shows it
        account = None
    refused = rejected_since(alias)
    received = (
        Notification.objects.filter(payment__account=alias)
        .exclude(kind=NotificationKind.RETURN)
        .order_by("-pk")
    )
    return AccountHealth(
        alias=alias,
        account=account,
        answered_at=answered_at(alias),
        silent_since=silent_since(alias),
        refused_creations=tuple(review.message for review in open_refusals().filter(account=alias)),
        notified_at=received.values_list("received_at", flat=True).first(),
        refused_notifications=len(refused),
        refused_at=refused[0] if refused else None,
    )


def totals(amounts: Iterable[tuple[Decimal, str]]) -> tuple[Money, ...]:
    """Return the sum of the amounts of each currency."""
    by_currency = defaultdict[str, list[Decimal]](list)
    for amount, currency in amounts:
        by_currency[currency].append(amount)
    return tuple(
        Money(money.total(found), currency) for currency, found in sorted(by_currency.items())
    )
