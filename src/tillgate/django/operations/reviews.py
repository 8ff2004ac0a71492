"""Review: what a person must look at, raised once while it is open, and the acts that resolve it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from tillgate import hooks
from tillgate.django import clock
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Payment, Refund, Review, TimelineEntry
from tillgate.django.operations.locking import database
from tillgate.django.operations.timeline import record
from tillgate.lifecycle import UNTOLD_REASONS, Answer, Claim, Found, Inconclusive, NotFound, ReviewReason, claim_of
from tillgate.wire.dialects import TransactionStatus

__all__ = [
    "ACCOUNT_REASONS",
    "ANSWER_REASONS",
    "ELSEWHERE_REASONS",
    "ITSELF",
    "NOT_APPLIED_REASONS",
    "REFUND_ENDS_REASONS",
    "SAID_REASONS",
    "TELLING_REASONS",
    "Heard",
    "as_heard",
    "conclude",
    "is_over",
    "open_among",
    "open_key",
    "open_review",
    "reported_paid",
    "resolve",
    "settle",
]


ACCOUNT_REASONS = frozenset(
    {ReviewReason.WRONG_CREDENTIALS, ReviewReason.SIGNATURE_MISMATCH, ReviewReason.ACCOUNT_GONE, ReviewReason.GATEWAY_SILENT}
)
"""Reasons that concern an account, and are open once for it however many payments meet them."""

ANSWER_REASONS = frozenset(
    {
        ReviewReason.AMOUNT_MISMATCH,
        ReviewReason.AMOUNT_MISSING,
        ReviewReason.CURRENCY_MISMATCH,
        ReviewReason.TRANSACTION_NO_MISMATCH,
        ReviewReason.TRANSACTION_NO_MISSING,
        ReviewReason.REFERENCE_MISMATCH,
        ReviewReason.UNRECOGNISED_STATUS,
        ReviewReason.PAYMENT_UNKNOWN,
        ReviewReason.PAYMENT_UNANSWERED,
        ReviewReason.WRONG_CREDENTIALS,
        ReviewReason.SIGNATURE_MISMATCH,
        ReviewReason.ACCOUNT_GONE,
    }
)
"""Reasons found in an answer of the gateway, and over once it answers in order about the payment that met them."""

SAID_REASONS: Final = ANSWER_REASONS.difference(ACCOUNT_REASONS, UNTOLD_REASONS)
"""Reasons why what the gateway says of a payment is not applied to it."""

TELLING_REASONS: Final = SAID_REASONS | UNTOLD_REASONS | {ReviewReason.CHANGED_AFTER_PAID}
"""Reasons whose sentence is what an answer says of a payment, and so is told anew when an answer says something else."""

REFUND_ENDS_REASONS = frozenset({ReviewReason.SECOND_PAYMENT, ReviewReason.PAID_NOT_PAYABLE, ReviewReason.UNDERPAID, ReviewReason.OVERPAID})
"""Reasons that are settled once all of the payment was refunded."""

NOT_APPLIED_REASONS = frozenset({ReviewReason.PAID_NOT_PAYABLE, ReviewReason.UNDERPAID})
"""Reasons why a paid payment did not pay its order, and over once it does."""

ELSEWHERE_REASONS = frozenset({ReviewReason.CHANGED_AFTER_PAID, ReviewReason.REFUND_CONTRADICTED})
"""Reasons that say that money may have gone back that no refund here stands for: nothing is refunded before a person has polled (I5)."""

_ENDING_NOTHING: Final = frozenset({TransactionStatus.PAID, TransactionStatus.UNRECOGNISED})
"""Statuses at the gateway by which no payment ends unpaid."""

ITSELF: Final = "tillgate"
"""Who resolved what needed no person in the end."""


def is_over(reason: str, answer: Answer, payment: Payment, *, is_in_order: bool) -> bool:
    """Tell whether an answer about a payment ends a reason: that the gateway knows no such payment is no word on what it said of it."""
    if reason in UNTOLD_REASONS | ACCOUNT_REASONS and isinstance(answer, Found):
        return True
    if not is_in_order or reason not in ANSWER_REASONS | ACCOUNT_REASONS:
        return False
    if isinstance(answer, Found) or reason in ACCOUNT_REASONS | {ReviewReason.PAYMENT_UNANSWERED}:
        return True
    return reason == ReviewReason.PAYMENT_UNKNOWN and not payment.is_open


def open_key(reason: ReviewReason, subject: Payment | Refund | OutboxEvent | None, account: str) -> str:
    """Return what one open review at most has: its reason, and whom it concerns."""
    if reason in ACCOUNT_REASONS:
        return f"{reason}:account:{account}"
    return f"{reason}:{type(subject).__name__.lower()}:{subject.pk if subject else ''}"


def open_among(keys: Iterable[str]) -> dict[str, str]:
    """Return the sentences of the reviews that are open, by those of some keys that they have."""
    asked = set(keys)
    rows = Review.objects.using(database()).filter(open_key__in=asked).values_list("open_key", "message")
    return {key: message for key, message in rows if key in asked}


def open_review(
    reason: ReviewReason,
    message: str,
    actor: str,
    *,
    order: Order | None = None,
    payment: Payment | None = None,
    refund: Refund | None = None,
    outbox_event: OutboxEvent | None = None,
    account: str = "",
    evidence: Mapping[str, Any] | None = None,
) -> Review | None:
    """Open a review within the running transaction, or do nothing when the same is open already. Returns what was raised.

    Nor is what a person has accepted raised again, as long as there is nothing else to say.
    """
    key = open_key(reason, outbox_event or refund or payment, account)
    evidence = {name: str(value)[:500] for name, value in (evidence or {}).items()}
    if known := Review.objects.filter(open_key=key).first():
        if reason in TELLING_REASONS and order and known.message != message and not _is_milder(reason, message, known, payment):
            _tell_anew(known, message, actor, order)
        return None
    if _is_accepted(reason, message, payment=payment, refund=refund, outbox_event=outbox_event, account=account):
        return None
    review = Review(
        order=order,
        payment=payment,
        refund=refund,
        outbox_event=outbox_event,
        account=account,
        reason=str(reason),
        message=message,
        evidence=evidence,
        open_key=key,
        opened_at=clock.now(),
    )
    try:
        with transaction.atomic(using=database()):
            review.save(force_insert=True)
    except IntegrityError:
        # A locking read sees what another worker has committed, whatever this transaction saw before. It comes second, since on InnoDB
        # all who were refused hold a lock of that row already, and would wait for each other's.
        known_by_now = Review.objects.filter(open_key=key)
        if known_by_now.first() is None and known_by_now.select_for_update().first() is None:
            raise
        return None  # another worker raised it in the same moment
    if order and outbox_event is None:
        # A failing outbox event is not announced by another outbox event, which would wait behind it.
        OutboxEvent(
            order=order,
            payment=payment,
            review=review,
            kind=OutboxEventKind.REVIEW_OPENED,
            created_at=review.opened_at,
            due_at=review.opened_at,
        ).save(force_insert=True)
    about = {"reason": str(reason)}
    if order:
        record("review.opened", order, actor, message, payment=payment, refund=refund, evidence=about, told=about)
    else:  # an account's matter is in no order's timeline, and observers hear of it all the same
        fields = {**about, "account": account, "actor": actor, "message": message}
        said = hooks.Event(name="review.opened", at=review.opened_at, fields=fields)
        transaction.on_commit(lambda: hooks.emit(said), using=database())
    return review


def _is_milder(reason: str, message: str, known: Review, payment: Payment | None) -> bool:
    """Tell whether an answer about an open payment claims less than one before: that it was reported paid must not be forgotten."""
    return payment is not None and payment.is_open and claim_of(reason, message) < claim_of(known.reason, known.message)


def _tell_anew(known: Review, message: str, actor: str, order: Order) -> None:
    """Let an open matter say what the gateway says by now, and have it mailed once more: it may be a charge-back.

    Each sentence is mailed once, though the gateway may say one and the other in turn.
    """
    known.message, known.opened_at = message, clock.now()
    known.mailed_at = (known.mailed_at or known.opened_at) if known.mark in (known.mailed or []) else None
    known.save(update_fields=["message", "opened_at", "mailed_at"])
    timeline = TimelineEntry.objects.using(database()).filter(payment=known.payment_id)
    resolved = timeline.filter(event="review.resolved").order_by("-pk").values_list("pk", flat=True).first() or 0
    told = timeline.filter(event="review.opened", pk__gt=resolved)
    if message not in told.values_list("message", flat=True):
        about = {"reason": known.reason}
        record("review.opened", order, actor, message, payment=known.payment, evidence=about, told=about)


def _is_accepted(reason: ReviewReason, message: str, *, account: str, **about: Any) -> bool:
    """Tell whether a person has accepted the very same.

    Not of an account's gateway, which may answer and then not: only that an account is gone stays as it is. Which one is in the sentence.
    """
    if reason in SAID_REASONS | UNTOLD_REASONS and about["payment"] is not None and about["payment"].is_open:
        return False  # accepted by a version that allowed it, it would never come to an end
    if reason in ACCOUNT_REASONS:
        if reason is not ReviewReason.ACCOUNT_GONE:
            return False
        about = {"account": account}
    accepted: QuerySet[Review] = Review.objects.filter(reason=str(reason), accepted=True, **about)
    return message in accepted.values_list("message", flat=True)  # compared here, since MariaDB holds other capitals to be the same


def reported_paid(payment_ids: Collection[int]) -> set[int]:
    """Return those payments that the gateway reports paid though its answer is not in order: whoever made them should not pay once more."""
    matters = Review.objects.using(database()).filter(payment__in=payment_ids, resolved_at__isnull=True, reason__in=SAID_REASONS)
    return {one.payment_id for one in matters if one.payment_id and _reports_paid(one)}


def _reports_paid(matter: Review) -> bool:
    return matter.reason in SAID_REASONS and claim_of(matter.reason, matter.message) is Claim.PAID


def as_heard(payment: Payment, answer: Answer, matters: Iterable[Review]) -> Answer:
    """Return an answer as it is to be heard by what is known of a payment, whose `matters` are polled only where they may count.

    What the gateway did not know while it could be paid has not been forgotten for its age (unspecified 19). What it has reported paid was
    not
    left unpaid: that it knows nothing of it by now says so as little as an answer from before. All this is written later than it happened.
    """
    if isinstance(answer, Inconclusive) or not payment.is_open:
        return answer
    if isinstance(answer, Found) and answer.transaction.status in _ENDING_NOTHING:
        return answer
    matters = [one for one in matters if one.resolved_at is None]
    calling_paid = [one for one in matters if _reports_paid(one)]
    if isinstance(answer, Found):
        is_stale = any(answer.asked_at <= one.opened_at <= clock.now() + clock.SKEW for one in calling_paid)
        return Inconclusive(detail="since it was asked, the gateway has said that it is paid") if is_stale else answer
    unknown = (one for one in matters if one.reason == ReviewReason.PAYMENT_UNKNOWN)
    was_unknown = any(one.opened_at < payment.page_closes_at + clock.SKEW for one in unknown)
    is_forgotten = answer.expired_is_forgotten and not was_unknown
    return replace(answer, expired_is_forgotten=is_forgotten, was_reported_paid=bool(calling_paid))


@dataclass(frozen=True, slots=True)
class Heard:
    """What the gateway answered about a payment, as it stands by now, and whether there is nothing about that for a person."""

    payment: Payment
    answer: Found | NotFound
    is_in_order: bool


def conclude(heard: Collection[Heard], by: str = ITSELF) -> None:
    """Take back what answers of the gateway end of what was told before it was asked, by whatever door they came.

    What a person has accepted of a payment is told again, should it come again after an answer in order. `by` is who asked.
    """
    by_payment = {one.payment.pk: one for one in heard}
    about = Review.objects.using(database()).filter(payment__in=by_payment, reason__in=ANSWER_REASONS | TELLING_REASONS)
    rows = about.filter(Q(resolved_at__isnull=True) | Q(accepted=True)).order_by("pk")
    over, accepted = [], []
    for pk, payment_id, reason, opened_at, resolved_at in rows.values_list("pk", "payment_id", "reason", "opened_at", "resolved_at"):
        one = by_payment[payment_id]
        if resolved_at is not None:
            accepted += [pk] if one.is_in_order else []
        elif is_over(reason, one.answer, one.payment, is_in_order=one.is_in_order) and _was_told_before(reason, opened_at, one):
            over.append(pk)
    if accepted:
        Review.objects.using(database()).filter(pk__in=accepted).update(accepted=False)
    if over:
        settle(Review.objects.filter(pk__in=over), "a later answer of the gateway has ended it", by)


def _was_told_before(reason: str, opened_at: datetime, heard: Heard) -> bool:
    """Tell whether a matter is older than the question, or of a clock that ran ahead. What is settled is unknown no more in any case."""
    if reason in UNTOLD_REASONS and not heard.payment.is_open:
        return True
    return opened_at < heard.answer.asked_at or opened_at > clock.now() + clock.SKEW


def resolve(review_id: int, resolution: str, staff: str, *, accepted: bool = False) -> Review:
    """Note that a person has dealt with a review, and how; `accepted` is whether it stays as it is, and need not be told again.

    One that is resolved already stays as it was.
    """
    order_id = Review.objects.using(database()).values_list("order_id", flat=True).get(pk=review_id)
    with transaction.atomic(using=database()):
        # The order first, as everywhere: an entry in its timeline takes a lock on it too.
        order = Order.objects.using(database()).select_for_update().get(pk=order_id) if order_id else None
        review = Review.objects.using(database()).select_for_update().get(pk=review_id)
        if review.resolved_at is None:
            review.resolved_at, review.resolved_by, review.resolution = clock.now(), staff[:150], resolution[:255]
            review.open_key, review.accepted = None, accepted
            review.save(update_fields=["resolved_at", "resolved_by", "resolution", "open_key", "accepted"])
            if order:
                record("review.resolved", order, f"staff:{staff}", resolution, payment=review.payment)
    return review


def settle(reviews: QuerySet[Review], resolution: str, by: str = ITSELF) -> None:
    """Take back those of some reviews that are open: what a person was told of is over without one."""
    for pk in reviews.using(database()).filter(resolved_at__isnull=True).order_by("pk").values_list("pk", flat=True):
        resolve(pk, resolution, by)
