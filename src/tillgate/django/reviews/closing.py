"""Reviews are closed here: by an answer, by the machine of their subject, or by staff."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from tillgate.django.models import Payment, Review, database
from tillgate.django.orders.locking import joined_order
from tillgate.django.orders.status import write_status, write_status_of
from tillgate.django.orders.timeline import record
from tillgate.django.reviews.opening import ACCOUNT_REASONS, TELLING_REASONS
from tillgate.lifecycle import (
    POLICIES,
    Answer,
    End,
    Found,
    NotFound,
    ReviewReason,
    ReviewStatus,
    Scope,
)
from tillgate.wire.personal import without_personal_data

ITSELF: Final = "tillgate"
"""The name under which Tillgate closes a review without staff."""


def is_over(reason: str, answer: Answer, payment: Payment, *, is_in_order: bool) -> bool:
    """Return whether an answer about a payment closes a review of this reason."""
    policy = POLICIES.get(ReviewReason(reason)) if reason in POLICIES else None
    if policy is None:
        return False
    if End.FOUND in policy.ends and isinstance(answer, Found):
        return True
    if not is_in_order:
        return False
    # "not found" takes back nothing that the gateway said of the payment
    if End.ANSWER in policy.ends:
        return isinstance(answer, Found) or policy.says_nothing or policy.scope is Scope.ACCOUNT
    return End.SETTLED in policy.ends and not payment.is_open


@dataclass(frozen=True, slots=True)
class AppliedAnswer:
    """An answer of the gateway about a payment as it stands now, and whether the answer is in
    order.
    """

    payment: Payment
    answer: Found | NotFound
    is_in_order: bool


def conclude(answers: Collection[AppliedAnswer], by: str = ITSELF) -> None:
    """Close the reviews that answers of the gateway end, if they are older than the query. `by` is
    the name of the asker.

    After an answer in order a dismissal counts no more: the same facts open a new review.
    """
    by_payment = {one.payment.pk: one for one in answers}
    about = Review.objects.filter(
        payment__in=by_payment,
        reason__in=TELLING_REASONS | ACCOUNT_REASONS,
    )
    rows = about.exclude(status=ReviewStatus.RESOLVED).order_by("pk")
    over, dismissed = [], []
    for pk, payment_id, reason, opened_at, status in rows.values_list(
        "pk",
        "payment_id",
        "reason",
        "opened_at",
        "status",
    ):
        one = by_payment[payment_id]
        if status == ReviewStatus.DISMISSED:
            dismissed += [pk] if one.is_in_order else []
        elif is_over(reason, one.answer, one.payment, is_in_order=one.is_in_order) and _is_older(
            reason,
            opened_at,
            one,
        ):
            over.append(pk)
    if dismissed:
        rows = Review.objects.filter(pk__in=dismissed)
        write_status_of(rows, ReviewStatus.DISMISSED, ReviewStatus.RESOLVED)
    if over:
        settle(Review.objects.filter(pk__in=over), "a later answer of the gateway has ended it", by)


def _is_older(reason: str, opened_at: datetime, applied: AppliedAnswer) -> bool:
    """Return whether a review is older than the query. A settled payment is unknown no more in any
    case.
    """
    if POLICIES[ReviewReason(reason)].says_nothing and not applied.payment.is_open:
        return True
    return opened_at < applied.answer.asked_at


def resolve(review_id: int, resolution: str, staff: str, *, dismissed: bool = False) -> Review:
    """Close a review and note how; `dismissed` leaves the case as it is. A closed review stays as
    it was.
    """
    resolution = without_personal_data(resolution)
    order_id = Review.objects.values_list("order_id", flat=True).get(pk=review_id)
    # The order first, as everywhere: an entry in its timeline takes a lock on it too.
    with joined_order(order_id) if order_id else transaction.atomic(using=database()) as order:
        review = Review.objects.select_for_update().get(pk=review_id)
        if review.resolved_at is None:
            changed = write_status(
                review,
                ReviewStatus.DISMISSED if dismissed else ReviewStatus.RESOLVED,
            )
            review.resolved_at, review.resolved_by, review.resolution = (
                timezone.now(),
                staff[:150],
                resolution[:255],
            )
            review.open_key = None
            review.save(
                update_fields=[*changed, "resolved_at", "resolved_by", "resolution", "open_key"],
            )
            if order:
                record(
                    "review.resolved",
                    order,
                    f"staff:{staff}",
                    resolution,
                    payment=review.payment,
                )
    return review


def settle(reviews: QuerySet[Review], resolution: str, by: str = ITSELF) -> None:
    """Close those of some reviews that are open: their cases have ended without staff."""
    for pk in (
        reviews.using(database())
        .filter(resolved_at__isnull=True)
        .order_by("pk")
        .values_list("pk", flat=True)
    ):
        resolve(pk, resolution, by)
