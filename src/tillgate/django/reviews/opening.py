"""Reviews are opened here: cases for staff. Later answers update them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from tillgate import hooks
from tillgate.django.models import (
    Order,
    OutboxEvent,
    OutboxEventKind,
    Payment,
    Refund,
    Review,
    database,
)
from tillgate.django.orders.status import queue_event
from tillgate.django.orders.timeline import record
from tillgate.lifecycle import (
    Claim,
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

_LONGEST_FACT: Final = 500


def open_key(
    reason: ReviewReason,
    subject: Payment | Refund | OutboxEvent | None,
    account: str,
) -> str:
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
    """Yield the open ones of some reviews as `interpret` reads them: only where they may count, so
    most answers cost no statement.
    """
    for one in reviews:
        if one.resolved_at is None:
            yield ReviewFacts(
                reason=one.reason,
                opened_at=one.opened_at,
                reported_paid=one.reported_paid,
                facts=one.facts,
            )


def version_of(
    reason: str,
    facts: Mapping[str, Any],
    *,
    subject: str,
    reported_paid: bool = False,
) -> tuple[dict[str, str], str]:
    """Return facts as they are stored, with their subject, and their version."""
    stored = {
        name: without_personal_data(storable(str(value)))[:_LONGEST_FACT]
        for name, value in facts.items()
    }
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
    """Open a review within the running transaction, and return it; None where the same case is
    open, or was dismissed with the same facts.

    `facts` are the compared values, from which the message is rendered, or a plugin's own whole
    text. Where the reason's policy says so, new facts update the open review.
    """
    subject = account if reason in ACCOUNT_REASONS else payment.reference if payment else ""
    facts = {"detail": facts} if isinstance(facts, str) else facts
    stored, version = version_of(reason, facts, subject=subject, reported_paid=reported_paid)
    key = open_key(reason, outbox_event or refund or payment, account)
    # each payment that the database does not have is a case of its own
    if reason is ReviewReason.ROWS_LOST:
        key = f"{reason}:database:{version if account else ''}"
    if known := Review.objects.filter(open_key=key).first():
        claim = claim_of(reason, stored, reported_paid=reported_paid)
        if (
            reason in TELLING_REASONS
            and order
            and known.version != version
            and not _is_milder(claim, known, payment)
        ):
            _update(known, stored, version, actor, order, reported_paid=reported_paid)
        return None
    if _is_dismissed(
        reason,
        version,
        payment=payment,
        refund=refund,
        outbox_event=outbox_event,
        account=account,
    ):
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
        # A locking read sees the other worker's commit, though this transaction began before. It
        # comes second: on InnoDB all refused workers hold a lock of that row already, and would
        # wait for each other's.
        known_by_now = Review.objects.filter(open_key=key)
        if known_by_now.first() is None and known_by_now.select_for_update().first() is None:
            raise
        return None  # another worker opened it in the same moment
    if order and outbox_event is None:
        # A failing delivery is not announced by another event, which would wait behind it.
        queue_event(order, OutboxEventKind.REVIEW_OPENED, payment=payment, review=review)
    about = {"reason": str(reason)}
    if order:
        record(
            "review.opened",
            order,
            actor,
            review.message,
            payment=payment,
            refund=refund,
            evidence=about,
            told=about,
        )
    else:  # an account's review is in no order's timeline, and observers receive its event too
        fields = {**about, "account": account, "actor": actor, "message": review.message}
        said = hooks.Event(name="review.opened", at=review.opened_at, fields=fields)
        transaction.on_commit(lambda: hooks.emit(said), using=database())
    return review


def _is_milder(claim: Claim, known: Review, payment: Payment | None) -> bool:
    """Return whether an answer about an open payment claims less than an earlier one: "reported
    paid" must not be forgotten.
    """
    return payment is not None and payment.is_open and claim < known.claim


def _update(
    known: Review,
    facts: dict[str, str],
    version: str,
    actor: str,
    order: Order,
    *,
    reported_paid: bool,
) -> None:
    """Give an open review the facts of a later answer, and mail it once more: it may be a
    charge-back. Each version is mailed once.
    """
    known.facts, known.version, known.reported_paid, known.opened_at = (
        facts,
        version,
        reported_paid,
        timezone.now(),
    )
    known.mailed_at = (known.mailed_at or known.opened_at) if version in known.mailed else None
    is_new = version not in known.recorded
    if is_new:
        known.recorded, known.alerted_at = [*known.recorded, version], None
    known.save(
        update_fields=[
            "facts",
            "version",
            "reported_paid",
            "opened_at",
            "mailed_at",
            "recorded",
            "alerted_at",
        ],
    )
    if is_new:
        about = {"reason": known.reason}
        record(
            "review.opened",
            order,
            actor,
            known.message,
            payment=known.payment,
            evidence=about,
            told=about,
        )


def _is_dismissed(reason: ReviewReason, version: str, *, account: str, **about: Any) -> bool:
    """Return whether staff dismissed the very same facts.

    A case of an open payment cannot be dismissed. A dismissal does not cover an account whose
    gateway answers now and then either.
    """
    if reason in UNAPPLIED_REASONS and about["payment"] is not None and about["payment"].is_open:
        return False
    if reason in ACCOUNT_REASONS:
        if reason not in _STAY_DISMISSED:
            return False
        about = {"account": account}
    return Review.objects.filter(
        reason=str(reason),
        status=ReviewStatus.DISMISSED,
        version=version,
        **about,
    ).exists()


def reported_paid(payment_ids: Collection[int]) -> set[int]:
    """Return the payments that the gateway reports paid though a check failed: their shoppers
    should not pay once more.
    """
    rows = Review.objects.filter(
        payment__in=payment_ids,
        resolved_at__isnull=True,
        reported_paid=True,
    )
    return set(rows.values_list("payment_id", flat=True))
