"""Attention: what a person must look at, raised once while it is open, and the acts that resolve it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from tillgate import hooks
from tillgate.django import clock
from tillgate.django.models import Attention, Delivery, DeliveryKind, Order, Payment, Refund, TimelineEntry
from tillgate.django.operations.locking import database
from tillgate.django.operations.timeline import record
from tillgate.lifecycle import UNTOLD_REASONS, Answer, AttentionReason, Claim, Found, NoNews, NotFound, claim_of
from tillgate.wire.dialects import TransactionStatus

__all__ = [
    "ACCOUNT_REASONS",
    "ANSWER_REASONS",
    "ELSEWHERE_REASONS",
    "GIVEN_BACK_REASONS",
    "ITSELF",
    "NOT_APPLIED_REASONS",
    "SAID_REASONS",
    "TELLING_REASONS",
    "Heard",
    "as_heard",
    "called_paid",
    "conclude",
    "is_over",
    "open_among",
    "open_key",
    "raise_attention",
    "resolve",
    "settle",
]


ACCOUNT_REASONS = frozenset(
    {AttentionReason.WRONG_CREDENTIALS, AttentionReason.SIGNATURE_MISMATCH, AttentionReason.ACCOUNT_GONE, AttentionReason.GATEWAY_SILENT}
)
"""Reasons that concern an account, and are open once for it however many payments meet them."""

ANSWER_REASONS = frozenset(
    {
        AttentionReason.AMOUNT_MISMATCH,
        AttentionReason.AMOUNT_MISSING,
        AttentionReason.CURRENCY_MISMATCH,
        AttentionReason.TRANSACTION_NO_MISMATCH,
        AttentionReason.TRANSACTION_NO_MISSING,
        AttentionReason.REFERENCE_MISMATCH,
        AttentionReason.UNRECOGNISED_STATUS,
        AttentionReason.PAYMENT_UNKNOWN,
        AttentionReason.PAYMENT_UNANSWERED,
        AttentionReason.WRONG_CREDENTIALS,
        AttentionReason.SIGNATURE_MISMATCH,
        AttentionReason.ACCOUNT_GONE,
    }
)
"""Reasons found in an answer of the gateway, and over once it answers in order about the payment that met them."""

SAID_REASONS: Final = ANSWER_REASONS.difference(ACCOUNT_REASONS, UNTOLD_REASONS)
"""Reasons why what the gateway says of a payment is not applied to it."""

TELLING_REASONS: Final = SAID_REASONS | UNTOLD_REASONS | {AttentionReason.CHANGED_AFTER_PAID}
"""Reasons whose sentence is what an answer says of a payment, and so is told anew when an answer says something else."""

GIVEN_BACK_REASONS = frozenset(
    {AttentionReason.SECOND_PAYMENT, AttentionReason.PAID_NOT_PAYABLE, AttentionReason.UNDERPAID, AttentionReason.OVERPAID}
)
"""Reasons that are settled once all of the payment was given back."""

NOT_APPLIED_REASONS = frozenset({AttentionReason.PAID_NOT_PAYABLE, AttentionReason.UNDERPAID})
"""Reasons why a paid payment did not pay its order, and over once it does."""

ELSEWHERE_REASONS = frozenset({AttentionReason.CHANGED_AFTER_PAID, AttentionReason.REFUND_CONTRADICTED})
"""Reasons that say that money may have gone back that no refund here stands for: nothing is given back before a person has looked (I5)."""

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
    if isinstance(answer, Found) or reason in ACCOUNT_REASONS | {AttentionReason.PAYMENT_UNANSWERED}:
        return True
    return reason == AttentionReason.PAYMENT_UNKNOWN and not payment.is_open


def open_key(reason: AttentionReason, subject: Payment | Refund | Delivery | None, account: str) -> str:
    """Return what one open attention at most has: its reason, and whom it concerns."""
    if reason in ACCOUNT_REASONS:
        return f"{reason}:account:{account}"
    return f"{reason}:{type(subject).__name__.lower()}:{subject.pk if subject else ''}"


def open_among(keys: Iterable[str]) -> dict[str, str]:
    """Return the sentences of the attentions that are open, by those of some keys that they have."""
    asked = set(keys)
    rows = Attention.objects.using(database()).filter(open_key__in=asked).values_list("open_key", "sentence")
    return {key: sentence for key, sentence in rows if key in asked}


def raise_attention(
    reason: AttentionReason,
    sentence: str,
    cause: str,
    *,
    order: Order | None = None,
    payment: Payment | None = None,
    refund: Refund | None = None,
    delivery: Delivery | None = None,
    account: str = "",
    evidence: Mapping[str, Any] | None = None,
) -> Attention | None:
    """Raise attention within the running transaction, or do nothing when the same is open already. Returns what was raised.

    Nor is what a person has accepted raised again, as long as there is nothing else to say.
    """
    key = open_key(reason, delivery or refund or payment, account)
    evidence = {name: str(value)[:500] for name, value in (evidence or {}).items()}
    if known := Attention.objects.filter(open_key=key).first():
        if reason in TELLING_REASONS and order and known.sentence != sentence and not _is_milder(reason, sentence, known, payment):
            _tell_anew(known, sentence, cause, order)
        return None
    if _is_accepted(reason, sentence, payment=payment, refund=refund, delivery=delivery, account=account):
        return None
    attention = Attention(
        order=order,
        payment=payment,
        refund=refund,
        delivery=delivery,
        account=account,
        reason=str(reason),
        sentence=sentence,
        evidence=evidence,
        open_key=key,
        raised_at=clock.now(),
    )
    try:
        with transaction.atomic(using=database()):
            attention.save(force_insert=True)
    except IntegrityError:
        # A locking read sees what another worker has committed, whatever this transaction saw before. It comes second, since on InnoDB
        # all who were refused hold a lock of that row already, and would wait for each other's.
        known_by_now = Attention.objects.filter(open_key=key)
        if known_by_now.first() is None and known_by_now.select_for_update().first() is None:
            raise
        return None  # another worker raised it in the same moment
    if order and delivery is None:
        # A failing delivery is not announced by another delivery, which would wait behind it.
        Delivery(
            order=order,
            payment=payment,
            attention=attention,
            kind=DeliveryKind.ATTENTION_RAISED,
            created_at=attention.raised_at,
            due_at=attention.raised_at,
        ).save(force_insert=True)
    about = {"reason": str(reason)}
    if order:
        record("attention.raised", order, cause, sentence, payment=payment, refund=refund, evidence=about, told=about)
    else:  # an account's matter is in no order's timeline, and observers hear of it all the same
        fields = {**about, "account": account, "cause": cause, "sentence": sentence}
        said = hooks.Event(name="attention.raised", at=attention.raised_at, fields=fields)
        transaction.on_commit(lambda: hooks.emit(said), using=database())
    return attention


def _is_milder(reason: str, sentence: str, known: Attention, payment: Payment | None) -> bool:
    """Tell whether an answer about an open payment claims less than one before: that it was called paid must not be forgotten."""
    return payment is not None and payment.is_open and claim_of(reason, sentence) < claim_of(known.reason, known.sentence)


def _tell_anew(known: Attention, sentence: str, cause: str, order: Order) -> None:
    """Let an open matter say what the gateway says by now, and have it mailed once more: it may be a charge-back.

    Each sentence is mailed once, though the gateway may say one and the other in turn.
    """
    known.sentence, known.raised_at = sentence, clock.now()
    known.mailed_at = (known.mailed_at or known.raised_at) if known.mark in (known.mailed or []) else None
    known.save(update_fields=["sentence", "raised_at", "mailed_at"])
    timeline = TimelineEntry.objects.using(database()).filter(payment=known.payment_id)
    resolved = timeline.filter(event="attention.resolved").order_by("-pk").values_list("pk", flat=True).first() or 0
    told = timeline.filter(event="attention.raised", pk__gt=resolved)
    if sentence not in told.values_list("sentence", flat=True):
        about = {"reason": known.reason}
        record("attention.raised", order, cause, sentence, payment=known.payment, evidence=about, told=about)


def _is_accepted(reason: AttentionReason, sentence: str, *, account: str, **about: Any) -> bool:
    """Tell whether a person has accepted the very same.

    Not of an account's gateway, which may answer and then not: only that an account is gone stays as it is. Which one is in the sentence.
    """
    if reason in SAID_REASONS | UNTOLD_REASONS and about["payment"] is not None and about["payment"].is_open:
        return False  # accepted by a version that allowed it, it would never come to an end
    if reason in ACCOUNT_REASONS:
        if reason is not AttentionReason.ACCOUNT_GONE:
            return False
        about = {"account": account}
    accepted: QuerySet[Attention] = Attention.objects.filter(reason=str(reason), accepted=True, **about)
    return sentence in accepted.values_list("sentence", flat=True)  # compared here, since MariaDB holds other capitals to be the same


def called_paid(payment_ids: Collection[int]) -> set[int]:
    """Return those payments that the gateway calls paid though its answer is not in order: whoever made them should not pay once more."""
    matters = Attention.objects.using(database()).filter(payment__in=payment_ids, resolved_at__isnull=True, reason__in=SAID_REASONS)
    return {one.payment_id for one in matters if one.payment_id and _calls_paid(one)}


def _calls_paid(matter: Attention) -> bool:
    return matter.reason in SAID_REASONS and claim_of(matter.reason, matter.sentence) is Claim.PAID


def as_heard(payment: Payment, answer: Answer, matters: Iterable[Attention]) -> Answer:
    """Return an answer as it is to be heard by what is known of a payment, whose `matters` are looked at only where they may count.

    What the gateway did not know while it could be paid has not been forgotten for its age (silence 19). What it has called paid was not
    left unpaid: that it knows nothing of it by now says so as little as an answer from before. All this is written later than it happened.
    """
    if isinstance(answer, NoNews) or not payment.is_open:
        return answer
    if isinstance(answer, Found) and answer.transaction.status in _ENDING_NOTHING:
        return answer
    matters = [one for one in matters if one.resolved_at is None]
    calling_paid = [one for one in matters if _calls_paid(one)]
    if isinstance(answer, Found):
        is_outrun = any(answer.asked_at <= one.raised_at <= clock.now() + clock.SKEW for one in calling_paid)
        return NoNews(because="since it was asked, the gateway has said that it is paid") if is_outrun else answer
    unknown = (one for one in matters if one.reason == AttentionReason.PAYMENT_UNKNOWN)
    was_unknown = any(one.raised_at < payment.cashier_closes_at + clock.SKEW for one in unknown)
    is_forgotten = answer.expired_is_forgotten and not was_unknown
    return replace(answer, expired_is_forgotten=is_forgotten, was_called_paid=bool(calling_paid))


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
    about = Attention.objects.using(database()).filter(payment__in=by_payment, reason__in=ANSWER_REASONS | TELLING_REASONS)
    rows = about.filter(Q(resolved_at__isnull=True) | Q(accepted=True)).order_by("pk")
    over, accepted = [], []
    for pk, payment_id, reason, raised_at, resolved_at in rows.values_list("pk", "payment_id", "reason", "raised_at", "resolved_at"):
        one = by_payment[payment_id]
        if resolved_at is not None:
            accepted += [pk] if one.is_in_order else []
        elif is_over(reason, one.answer, one.payment, is_in_order=one.is_in_order) and _was_told_before(reason, raised_at, one):
            over.append(pk)
    if accepted:
        Attention.objects.using(database()).filter(pk__in=accepted).update(accepted=False)
    if over:
        settle(Attention.objects.filter(pk__in=over), "a later answer of the gateway has ended it", by)


def _was_told_before(reason: str, raised_at: datetime, heard: Heard) -> bool:
    """Tell whether a matter is older than the question, or of a clock that ran ahead. What is settled is unknown no more in any case."""
    if reason in UNTOLD_REASONS and not heard.payment.is_open:
        return True
    return raised_at < heard.answer.asked_at or raised_at > clock.now() + clock.SKEW


def resolve(attention_id: int, resolution: str, person: str, *, accepted: bool = False) -> Attention:
    """Note that a person has dealt with an attention, and how; `accepted` is whether it stays as it is, and need not be told again.

    One that is resolved already stays as it was.
    """
    order_id = Attention.objects.using(database()).values_list("order_id", flat=True).get(pk=attention_id)
    with transaction.atomic(using=database()):
        # The order first, as everywhere: an entry in its timeline takes a lock on it too.
        order = Order.objects.using(database()).select_for_update().get(pk=order_id) if order_id else None
        attention = Attention.objects.using(database()).select_for_update().get(pk=attention_id)
        if attention.resolved_at is None:
            attention.resolved_at, attention.resolved_by, attention.resolution = clock.now(), person[:150], resolution[:255]
            attention.open_key, attention.accepted = None, accepted
            attention.save(update_fields=["resolved_at", "resolved_by", "resolution", "open_key", "accepted"])
            if order:
                record("attention.resolved", order, f"person:{person}", resolution, payment=attention.payment)
    return attention


def settle(attentions: QuerySet[Attention], resolution: str, by: str = ITSELF) -> None:
    """Take back those of some attentions that are open: what a person was told of is over without one."""
    for pk in attentions.using(database()).filter(resolved_at__isnull=True).order_by("pk").values_list("pk", flat=True):
        resolve(pk, resolution, by)
