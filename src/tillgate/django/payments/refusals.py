"""Rejected notifications: stored, counted for each account, and shown to staff in a review."""

from __future__ import annotations

from datetime import datetime
from itertools import takewhile
from typing import Final

from django.db.models import Q
from django.utils import timezone

from tillgate.django import dates
from tillgate.django.conf import get_settings
from tillgate.django.models import Notification, NotificationKind, Payment, Refund, Review
from tillgate.django.orders.locking import durable, locked_order
from tillgate.django.payments.keeping import errors_logged
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import ReviewReason
from tillgate.wire.notifications import NotificationSignature


class CannotBeJudged(Exception):
    """A notification came that cannot be judged now. It is not kept: it has to come again."""


ACCOUNT_GONE: Final = (
    "a notification of a refund of %s has to come again: the account that made "
    "the payment could not be found"
)
_LOOKED_AT: Final = 1000
"""Forged notifications are counted among so many newest ones, which bounds the search."""


def review_unjudged(refund: Refund) -> None:
    """Open a review about a notification that cannot be judged: gateways do not repeat theirs for
    ever.
    """
    payment = refund.payment
    facts = {
        "case": "refund",
        "amount": refund.amount,
        "currency": payment.currency,
        "payment": payment.reference,
    }
    with durable():
        open_review(ReviewReason.ACCOUNT_GONE, facts, "webhook", payment)


def review_forged(payment: Payment, actor: str) -> None:
    """Open a review at so many forged notifications of a payment, or of its account."""
    limit = get_settings().forged_notifications_before_review
    if payment.forged_notifications % limit == 0:
        if not _has_forged_review(payment.account):
            facts = {"count": payment.forged_notifications}
            reason = ReviewReason.FORGED_NOTIFICATIONS
            with locked_order(payment.order_id) as payment.order:
                open_review(reason, facts, actor, payment)
    else:
        review_rejected(payment.account, actor)


def keep_rejected(alias: str) -> None:
    """Keep that the plugin refused a notification at the address of an account, within a bound.

    Strangers can send it: once a review is due, nothing more is written.
    """
    limit = get_settings().forged_notifications_before_review
    if len(rejected_since(alias)) < limit:
        forged = Notification.objects.filter(
            payment=None,
            account=alias,
            signature=NotificationSignature.FORGED,
        )
        oldest = forged.order_by("-pk").values_list("pk", flat=True)[limit - 1 :]
        forged.filter(pk__in=list(oldest)).delete()
        Notification.objects.create(
            account=alias,
            kind=NotificationKind.PAYMENT,
            slot=0,
            received_at=timezone.now(),
            method="POST",
            signature=NotificationSignature.FORGED,
        )
    with errors_logged(alias):
        review_rejected(alias, "webhook")


def review_rejected(alias: str, actor: str) -> None:
    """Open one review where the newest notifications of an account are all forged."""
    rows = _newest_forged(alias)
    limit = get_settings().forged_notifications_before_review
    if len(rows) < limit or _has_forged_review(alias):
        return
    refused = [received_at for received_at, _ in rows]
    payments = {payment_id for _, payment_id in rows}
    if len(payments) == 1 and None not in payments:
        return  # the count of the payment itself opens the review, which names it
    since = f"{dates.local(refused[-1]):%Y-%m-%d %H:%M:%S %Z}".rstrip()
    facts = {"case": "account", "account": alias, "count": len(refused), "since": since}
    with durable():
        open_review(ReviewReason.FORGED_NOTIFICATIONS, facts, actor, account=alias)


def _has_forged_review(alias: str) -> bool:
    reviews = Review.objects.filter(reason=ReviewReason.FORGED_NOTIFICATIONS, account=alias)
    return reviews.filter(resolved_at__isnull=True).exists()


def rejected_since(alias: str) -> list[datetime]:
    """Return the times of the newest forged notifications of an account, the newest first.

    None is older than a true one, or than the last closed review about forged ones, and they are
    no more than open a review.
    """
    return [received_at for received_at, _ in _newest_forged(alias)]


def _newest_forged(alias: str) -> list[tuple[datetime, int | None]]:
    kept = Notification.objects.order_by("-pk")
    newest = kept.values_list("pk", flat=True).first() or 0
    reviews = Review.objects.filter(reason=ReviewReason.FORGED_NOTIFICATIONS, account=alias)
    closed = reviews.filter(resolved_at__isnull=False).order_by("-resolved_at")
    since = closed.values_list("resolved_at", flat=True).first()
    judged = kept.filter(
        Q(account=alias) | Q(payment__account=alias),
        pk__gt=newest - _LOOKED_AT,
        signature__in=(NotificationSignature.FORGED, NotificationSignature.MATCHES),
        **({"received_at__gt": since} if since else {}),
    )
    limit = get_settings().forged_notifications_before_review
    rows = judged.values_list("signature", "received_at", "payment_id")[:limit]
    forged = takewhile(lambda row: row[0] == NotificationSignature.FORGED, rows)
    return [(received_at, payment_id) for _, received_at, payment_id in forged]
