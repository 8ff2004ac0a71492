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
"""Reasons of a paid payment with money that does not pay the order, or not all of it."""

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
    about: Order | Payment | Refund | OutboxEvent | None = None,
    *,
    account: str = "",
    reported_paid: bool = False,
    evidence: Mapping[str, Any] | None = None,
) -> Review | None:
    """Open a review within the running transaction, and return it; None where the same case is
    open, or was dismissed with the same facts.

    `facts` are the compared values, from which the message is rendered, or a plugin's own whole
    text. Where the reason's policy says so, new facts update the open review. `account` is needed
    where no payment has it.
    """
    rows = _rows_of(reason, about, account)
    order, payment = rows["order"], rows["payment"]
    account = rows["account"]
    subject = account if reason in ACCOUNT_REASONS else payment.reference if payment else ""
    facts = {"detail": facts} if isinstance(facts, str) else facts
    stored, version = version_of(reason, facts, subject=subject, reported_paid=reported_paid)
    key = open_key(reason, rows["outbox_event"] or rows["refund"] or payment, account)
    # each payment that the database does not have is a case of its own
    if reason is ReviewReason.ROWS_LOST:
        key = f"{reason}:database:{version if account else ''}"
    if known := Review.objects.filter(open_key=key).first():
        claim = claim_of(reason, stored, reported_paid=reported_paid)
        is_update = reason in TELLING_REASONS and known.version != version
        if is_update and order and not _is_milder(claim, known, payment):
            _update(known, stored, version, actor, order, reported_paid=reported_paid)
        return None
    if _is_dismissed(reason, version, rows):
        return None
    review = Review(
        **rows,
        reason=str(reason),
        reported_paid=reported_paid,
        facts=stored,
        version=version,
        evidence={name: str(value)[:_LONGEST_FACT] for name, value in (evidence or {}).items()},
        open_key=key,
        opened_at=timezone.now(),
        recorded=[version],
    )
    if not _insert(review):
        return None
    _announce(review, actor)
    return review


def _rows_of(
    reason: ReviewReason,
    about: Order | Payment | Refund | OutboxEvent | None,
    account: str,
) -> dict[str, Any]:
    """Return the columns of a review that name its subject. A review of an account is in no order's
    timeline, and needs no order's lock.
    """
    order, payment, refund, event = None, None, None, None
    if isinstance(about, OutboxEvent):
        event, refund, payment, order = about, about.refund, about.payment, about.order
    elif isinstance(about, Refund):
        refund, payment = about, about.payment
    elif isinstance(about, Payment):
        payment = about
    else:
        order = about
    if payment and not order and reason not in ACCOUNT_REASONS:
        order = payment.order
    return {
        "order": order,
        "payment": payment,
        "refund": refund,
        "outbox_event": event,
        "account": account or (payment.account if payment else ""),
    }


def _insert(review: Review) -> bool:
    """Write a new review, and return whether no other worker opened it in the same moment."""
    try:
        with transaction.atomic(using=database()):
            review.save(force_insert=True)
    except IntegrityError:
        # A locking read sees the other worker's commit, though this transaction began before. It
        # comes second: on InnoDB all refused workers hold a lock of that row already, and would
        # wait for each other's.
        other = Review.objects.filter(open_key=review.open_key)
        if other.first() is None and other.select_for_update().first() is None:
            raise
        return False
    return True


def _announce(review: Review, actor: str) -> None:
    """Queue the shop event about a new review, and note it in the timeline of its order."""
    order, about = review.order, {"reason": review.reason}
    if order is None:  # observers receive its event too
        fields = {**about, "account": review.account, "actor": actor, "message": review.message}
        event = hooks.Event(name="review.opened", at=review.opened_at, fields=fields)
        transaction.on_commit(lambda: hooks.emit(event), using=database())
        return
    if review.outbox_event is None:
        # A failing delivery is not announced by another event, which would wait behind it.
        queue_event(order, OutboxEventKind.REVIEW_OPENED, payment=review.payment, review=review)
    record(
        "review.opened",
        order,
        actor,
        review.message,
        payment=review.payment,
        refund=review.refund,
        evidence=about,
        extra=about,
    )


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
            extra=about,
        )


def _is_dismissed(reason: ReviewReason, version: str, rows: Mapping[str, Any]) -> bool:
    """Return whether staff dismissed the very same facts.

    A case of an open payment cannot be dismissed. A dismissal does not cover an account at a
    gateway that answers now and then either.
    """
    if reason in UNAPPLIED_REASONS and rows["payment"] is not None and rows["payment"].is_open:
        return False
    about = {name: row for name, row in rows.items() if name != "order"}
    if reason in ACCOUNT_REASONS:
        if reason not in _STAY_DISMISSED:
            return False
        about = {"account": rows["account"]}
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
