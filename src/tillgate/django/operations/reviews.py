"""Reviews: cases for staff. Later answers update them, and an answer, the machine of their subject or staff close them.

The table in `tillgate.lifecycle.review` has a policy for each reason; this module applies it to rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from tillgate import hooks
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment, Refund, Review, database
from tillgate.django.operations.locking import joined_order
from tillgate.django.operations.status import queue_event, write_status, write_status_of
from tillgate.django.operations.timeline import record
from tillgate.lifecycle import (
    POLICIES,
    Answer,
    Claim,
    End,
    Found,
    NotFound,
    ReviewFacts,
    ReviewReason,
    ReviewStatus,
    Scope,
    claim_of,
    facts_version,
    reasons,
)
from tillgate.wire.personal import without_personal_data
from tillgate.wire.texts import storable

ACCOUNT_REASONS: Final = reasons(scope=Scope.ACCOUNT)
TELLING_REASONS: Final = reasons(updates=True)
UNAPPLIED_REASONS: Final = TELLING_REASONS - reasons(blocks_refunds=True)
"""Reasons why an answer about a payment is not applied to it."""
HELD_REASONS: Final = reasons(holds_money=True)
"""Reasons of a paid payment whose money does not pay, or not all of it."""

_STAY_DISMISSED: Final = frozenset({ReviewReason.ACCOUNT_GONE, ReviewReason.CREATIONS_REFUSED})
"""Reasons of an account that no answer to another question touches."""

ITSELF: Final = "tillgate"
"""The name under which Tillgate closes a review without staff."""

_LONGEST_FACT: Final = 500


def is_over(reason: str, answer: Answer, payment: Payment, *, is_in_order: bool) -> bool:
    """Return whether an answer about a payment closes a review of this reason."""
    policy = POLICIES.get(ReviewReason(reason)) if reason in POLICIES else None
    if policy is None:
        return False
    if End.FOUND in policy.ends and isinstance(answer, Found):
        return True
    if not is_in_order:
        return False
    if End.ANSWER in policy.ends:  # "not found" takes back nothing that the gateway said of the payment
        return isinstance(answer, Found) or policy.says_nothing or policy.scope is Scope.ACCOUNT
    return End.SETTLED in policy.ends and not payment.is_open


def open_key(reason: ReviewReason, subject: Payment | Refund | OutboxEvent | None, account: str) -> str:
    """Return the key that one open review at most has: its reason and its subject."""
    if reason in ACCOUNT_REASONS or (subject is None and account):
        return f"{reason}:account:{account}"
    return f"{reason}:{type(subject).__name__.lower()}:{subject.pk if subject else ''}"


def open_among(keys: Iterable[str]) -> dict[str, str]:
    """Return the versions of the open reviews that have some of these keys, by the key."""
    asked = set(keys)
    rows = Review.objects.filter(open_key__in=asked).values_list("open_key", "version")
    return {key: version for key, version in rows if key in asked}


def open_reviews_of(reviews: Iterable[Review]) -> Iterator[ReviewFacts]:
    """Yield the open ones of some reviews as `interpret` reads them: only where they may count, so most answers cost no statement."""
    for one in reviews:
        if one.resolved_at is None:
            yield ReviewFacts(reason=one.reason, opened_at=one.opened_at, reported_paid=one.reported_paid, facts=one.facts)


def version_of(reason: str, facts: Mapping[str, Any], *, subject: str, reported_paid: bool = False) -> tuple[dict[str, str], str]:
    """Return facts as they are stored, with their subject, and their version."""
    stored = {name: without_personal_data(storable(str(value)))[:_LONGEST_FACT] for name, value in facts.items()}
    if "detail" not in stored:  # a plugin's own text names its subject itself
        stored["subject"] = subject
    return stored, facts_version(reason, stored, reported_paid=reported_paid)


def open_review(
    reason: ReviewReason,
    facts: Mapping[str, Any] | str,
    actor: str,
    *,
    order: Order | None = None,
    payment: Payment | None = None,
    refund: Refund | None = None,
    outbox_event: OutboxEvent | None = None,
    account: str = "",
    reported_paid: bool = False,
    evidence: Mapping[str, Any] | None = None,
) -> Review | None:
    """Open a review within the running transaction, and return it; None where the same case is open, or was dismissed with the same facts.

    `facts` are the compared values, from which the message is rendered, or a plugin's own whole text. Where the reason's policy says so,
    new facts update the open review.
    """
    subject = account if reason in ACCOUNT_REASONS else payment.reference if payment else ""
    facts = {"detail": facts} if isinstance(facts, str) else facts
    stored, version = version_of(reason, facts, subject=subject, reported_paid=reported_paid)
    key = open_key(reason, outbox_event or refund or payment, account)
    if reason is ReviewReason.ROWS_LOST:  # each payment that the database does not have is a case of its own
        key = f"{reason}:database:{version if account else ''}"
    if known := Review.objects.filter(open_key=key).first():
        claim = claim_of(reason, stored, reported_paid=reported_paid)
        if reason in TELLING_REASONS and order and known.version != version and not _is_milder(claim, known, payment):
            _update(known, stored, version, actor, order, reported_paid=reported_paid)
        return None
    if _is_dismissed(reason, version, payment=payment, refund=refund, outbox_event=outbox_event, account=account):
        return None
    review = Review(
        order=order,
        payment=payment,
        refund=refund,
        outbox_event=outbox_event,
        account=account,
        reason=str(reason),
        reported_paid=reported_paid,
        facts=stored,
        version=version,
        evidence={name: str(value)[:_LONGEST_FACT] for name, value in (evidence or {}).items()},
        open_key=key,
        opened_at=timezone.now(),
        recorded=[version],
    )
    try:
        with transaction.atomic(using=database()):
            review.save(force_insert=True)
    except IntegrityError:
        # A locking read sees the other worker's commit, though this transaction began before. It comes second: on InnoDB all refused
        # workers hold a lock of that row already, and would wait for each other's.
        known_by_now = Review.objects.filter(open_key=key)
        if known_by_now.first() is None and known_by_now.select_for_update().first() is None:
            raise
        return None  # another worker opened it in the same moment
    if order and outbox_event is None:
        # A failing delivery is not announced by another event, which would wait behind it.
        queue_event(order, OutboxEventKind.REVIEW_OPENED, payment=payment, review=review)
    about = {"reason": str(reason)}
    if order:
        record("review.opened", order, actor, review.message, payment=payment, refund=refund, evidence=about, told=about)
    else:  # an account's review is in no order's timeline, and observers receive its event too
        fields = {**about, "account": account, "actor": actor, "message": review.message}
        said = hooks.Event(name="review.opened", at=review.opened_at, fields=fields)
        transaction.on_commit(lambda: hooks.emit(said), using=database())
    return review


def _is_milder(claim: Claim, known: Review, payment: Payment | None) -> bool:
    """Return whether an answer about an open payment claims less than an earlier one: "reported paid" must not be forgotten."""
    return payment is not None and payment.is_open and claim < known.claim


def _update(known: Review, facts: dict[str, str], version: str, actor: str, order: Order, *, reported_paid: bool) -> None:
    """Give an open review the facts of a later answer, and mail it once more: it may be a charge-back. Each version is mailed once."""
    known.facts, known.version, known.reported_paid, known.opened_at = facts, version, reported_paid, timezone.now()
    known.mailed_at = (known.mailed_at or known.opened_at) if version in known.mailed else None
    is_new = version not in known.recorded
    if is_new:
        known.recorded, known.alerted_at = [*known.recorded, version], None
    known.save(update_fields=["facts", "version", "reported_paid", "opened_at", "mailed_at", "recorded", "alerted_at"])
    if is_new:
        about = {"reason": known.reason}
        record("review.opened", order, actor, known.message, payment=known.payment, evidence=about, told=about)


def _is_dismissed(reason: ReviewReason, version: str, *, account: str, **about: Any) -> bool:
    """Return whether staff dismissed the very same facts.

    A case of an open payment cannot be dismissed. A dismissal does not cover an account whose gateway answers now and then either.
    """
    if reason in UNAPPLIED_REASONS and about["payment"] is not None and about["payment"].is_open:
        return False
    if reason in ACCOUNT_REASONS:
        if reason not in _STAY_DISMISSED:
            return False
        about = {"account": account}
    return Review.objects.filter(reason=str(reason), status=ReviewStatus.DISMISSED, version=version, **about).exists()


def reported_paid(payment_ids: Collection[int]) -> set[int]:
    """Return the payments that the gateway reports paid though a check failed: their shoppers should not pay once more."""
    rows = Review.objects.filter(payment__in=payment_ids, resolved_at__isnull=True, reported_paid=True)
    return set(rows.values_list("payment_id", flat=True))


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer of the gateway about a payment as it stands now, and whether the answer is in order."""

    payment: Payment
    answer: Found | NotFound
    is_in_order: bool


def conclude(heard: Collection[Heard], by: str = ITSELF) -> None:
    """Close the reviews that answers of the gateway end, if they are older than the query. `by` is the name of the asker.

    After an answer in order a dismissal counts no more: the same facts open a new review.
    """
    by_payment = {one.payment.pk: one for one in heard}
    about = Review.objects.filter(payment__in=by_payment, reason__in=TELLING_REASONS | ACCOUNT_REASONS)
    rows = about.exclude(status=ReviewStatus.RESOLVED).order_by("pk")
    over, dismissed = [], []
    for pk, payment_id, reason, opened_at, status in rows.values_list("pk", "payment_id", "reason", "opened_at", "status"):
        one = by_payment[payment_id]
        if status == ReviewStatus.DISMISSED:
            dismissed += [pk] if one.is_in_order else []
        elif is_over(reason, one.answer, one.payment, is_in_order=one.is_in_order) and _is_older(reason, opened_at, one):
            over.append(pk)
    if dismissed:
        rows = Review.objects.filter(pk__in=dismissed)
        write_status_of(rows, ReviewStatus.DISMISSED, ReviewStatus.RESOLVED)
    if over:
        settle(Review.objects.filter(pk__in=over), "a later answer of the gateway has ended it", by)


def _is_older(reason: str, opened_at: datetime, heard: Heard) -> bool:
    """Return whether a review is older than the query. A settled payment is unknown no more in any case."""
    if POLICIES[ReviewReason(reason)].says_nothing and not heard.payment.is_open:
        return True
    return opened_at < heard.answer.asked_at


def resolve(review_id: int, resolution: str, staff: str, *, dismissed: bool = False) -> Review:
    """Close a review and note how; `dismissed` leaves the case as it is. A closed review stays as it was."""
    resolution = without_personal_data(resolution)
    order_id = Review.objects.values_list("order_id", flat=True).get(pk=review_id)
    # The order first, as everywhere: an entry in its timeline takes a lock on it too.
    with joined_order(order_id) if order_id else transaction.atomic(using=database()) as order:
        review = Review.objects.select_for_update().get(pk=review_id)
        if review.resolved_at is None:
            changed = write_status(review, ReviewStatus.DISMISSED if dismissed else ReviewStatus.RESOLVED)
            review.resolved_at, review.resolved_by, review.resolution = timezone.now(), staff[:150], resolution[:255]
            review.open_key = None
            review.save(update_fields=[*changed, "resolved_at", "resolved_by", "resolution", "open_key"])
            if order:
                record("review.resolved", order, f"staff:{staff}", resolution, payment=review.payment)
    return review


def settle(reviews: QuerySet[Review], resolution: str, by: str = ITSELF) -> None:
    """Close those of some reviews that are open: their cases have ended without staff."""
    for pk in reviews.using(database()).filter(resolved_at__isnull=True).order_by("pk").values_list("pk", flat=True):
        resolve(pk, resolution, by)
