"""An answer of the gateway, in context, becomes a decision. The only way a payment changes its
status (I1, I9).

*Paid* needs an answer that agrees with the payment in everything. A case for staff is a
`ReviewReason` with facts, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from tillgate.errors import OrderNotFound, SignatureMismatch, TillgateError, WrongCredentials
from tillgate.lifecycle.machine import move
from tillgate.lifecycle.payment import OPEN_PAYMENT_STATUSES, PAYMENT_TRANSITIONS, PaymentStatus
from tillgate.lifecycle.review import POLICIES, UNRECOGNISED, ReviewFacts, ReviewReason
from tillgate.wire.dialects import REFERENCE
from tillgate.wire.messages import Transaction
from tillgate.wire.personal import without_personal_data
from tillgate.wire.profile import (
    DisputeStatus,
    GatewayProfile,
    RefundOutcome,
    TransactionStatus,
)

__all__ = [
    "Answer",
    "Decision",
    "Found",
    "Inconclusive",
    "NotFound",
    "PaymentFacts",
    "account_reason",
    "answer_of",
    "in_context",
    "interpret",
    "is_forgotten",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentFacts:
    """The payment before the answer.

    The payment page times out at `closes_at`, and the grace after that ends at `expires_at`, which
    counts where `closes_at` is missing. `refunded` is the amount that Tillgate has refunded, or is
    refunding. `is_processing`: its money is under way.
    """

    reference: str
    amount: Decimal
    status: PaymentStatus
    expires_at: datetime
    closes_at: datetime | None = None
    currency: str
    transaction_no: str | None = None
    refunded: Decimal = Decimal(0)
    is_processing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The gateway described the transaction. `asked_at` is the time of the query, which is before
    the answer.

    `settles_in_currency` is the dialect's: the settlement currency must be the payment's
    (unspecified behaviour 20).
    """

    transaction: Transaction
    asked_at: datetime
    settles_in_currency: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFound:
    """The gateway knows no such reference (HTTP 400 and 000022).

    `expired_is_forgotten` is the dialect's: the gateway forgets every payment after its page has
    timed out (unspecified behaviour 19). `was_reported_paid`: the review of an earlier answer that
    said paid is still open.
    """

    asked_at: datetime
    expired_is_forgotten: bool = False
    was_reported_paid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inconclusive:
    """An answer that proves nothing, or none. `review` is the account's case that it may open."""

    detail: str
    review: ReviewReason | None = None


Answer = Found | NotFound | Inconclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The meaning of an answer for a payment.

    `status` may be the old status. `review` is the reason of a case for staff, with the compared
    `facts`. `reported_paid`: the gateway says paid, and a check failed. `is_understood` is false
    for an unknown status word. `is_processing`: the shopper has finished, and the money is on its
    way; an answer that says nothing of it leaves it as it was. `detail` is for people; no code
    reads it (I13).
    """

    status: PaymentStatus
    transaction_no: str | None
    detail: str
    review: ReviewReason | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    reported_paid: bool = False
    is_conclusive: bool = True
    is_understood: bool = True
    is_processing: bool = False

    @property
    def is_in_order(self) -> bool:
        """Whether the answer is about the payment and leaves no case for staff."""
        return self.is_conclusive and self.is_understood and self.review is None

    @property
    def is_last_word(self) -> bool:
        """Whether no further answer about a settled payment is awaited: a forgotten one may be
        found, and an open dispute or a review at the gateway ends.
        """
        is_forgotten = (
            self.review is ReviewReason.PAYMENT_UNKNOWN and self.status is PaymentStatus.PAID
        )
        is_disputed = (
            self.review is ReviewReason.DISPUTED and self.facts.get("case") != DisputeStatus.LOST
        )
        is_reviewed = self.review is ReviewReason.MANUAL_REVIEW
        return self.is_conclusive and not (is_forgotten or is_disputed or is_reviewed)


def answer_of(
    outcome: Transaction | TillgateError,
    asked_at: datetime,
    dialect: GatewayProfile = REFERENCE,
) -> Answer:
    """Return the outcome of a query, a value or an error, as an answer in the account's dialect."""
    if isinstance(outcome, Transaction):
        return Found(
            transaction=outcome,
            asked_at=asked_at,
            settles_in_currency=dialect.settle_currency_is_currency,
        )
    if isinstance(outcome, OrderNotFound):
        return NotFound(asked_at=asked_at, expired_is_forgotten=dialect.expired_is_forgotten)
    return Inconclusive(detail=without_personal_data(str(outcome)), review=account_reason(outcome))


def account_reason(error: BaseException) -> ReviewReason | None:
    """Return the reason of the review of an account that an error of the gateway opens, or None."""
    if isinstance(error, SignatureMismatch):
        return ReviewReason.SIGNATURE_MISMATCH
    return ReviewReason.WRONG_CREDENTIALS if isinstance(error, WrongCredentials) else None


_REMEMBERED: Final = timedelta(days=45)
"""For so long after its time to pay, a gateway that knows a paid payment no more is a case for
staff.
"""
_MOVES_NOTHING: Final = frozenset(
    {TransactionStatus.PAID, TransactionStatus.REFUNDED, TransactionStatus.UNRECOGNISED},
)
"""Words of the gateway that end no payment as unpaid."""


def in_context(facts: PaymentFacts, reviews: Iterable[ReviewFacts], answer: Answer) -> Answer:
    """Return the answer as the payment's open reviews let it count.

    After a report of "paid", an older answer that says "unpaid" is inconclusive, and so is "not
    found". A gateway that denied a reference while its page was open did not forget it for its age
    (unspecified behaviour 19).
    """
    if isinstance(answer, Inconclusive) or facts.status not in OPEN_PAYMENT_STATUSES:
        return answer
    if isinstance(answer, Found) and answer.transaction.status in _MOVES_NOTHING:
        return answer
    reviews = list(reviews)
    reported = [review for review in reviews if review.reported_paid]
    if isinstance(answer, Found):
        is_stale = any(answer.asked_at <= review.opened_at for review in reported)
        return Inconclusive(detail="a later answer said that it is paid") if is_stale else answer
    closes_at = facts.closes_at or facts.expires_at
    was_unknown = any(
        review.reason == ReviewReason.PAYMENT_UNKNOWN and review.opened_at < closes_at
        for review in reviews
    )
    is_forgetful = answer.expired_is_forgotten and not was_unknown
    return replace(
        answer,
        expired_is_forgotten=is_forgetful,
        was_reported_paid=answer.was_reported_paid or bool(reported),
    )


def interpret(facts: PaymentFacts, reviews: Iterable[ReviewFacts], answer: Answer) -> Decision:
    """Return the meaning of an answer for a payment with these open reviews.

    The order of the cases is the policy: a doubt comes before any word of the gateway, "paid"
    before every other word, and a word that settles before the time that is over.
    """
    answer = in_context(facts, reviews, answer)
    if isinstance(answer, Inconclusive):
        return _inconclusive(facts, answer.detail, answer.review)
    if isinstance(answer, NotFound):
        return _not_found(facts, answer)
    found = answer.transaction
    # An answer about other money never counts: staff compare (I1).
    if doubt := _contradiction(facts, found, settles_in_currency=answer.settles_in_currency):
        return _held(facts, found, *doubt)
    said = found.status
    # In any earlier status: late money is still money (I9).
    if said is TransactionStatus.PAID:
        decision = _to(facts, found, PaymentStatus.PAID, "the gateway says that it is paid")
        return _with_disputes(_with_manual_review(decision, found), facts, found)
    # Paid never moves back (I9); at most staff have a case.
    if facts.status is PaymentStatus.PAID:
        return _after_paid(facts, found)
    is_open, too_late = facts.status in OPEN_PAYMENT_STATUSES, answer.asked_at >= facts.expires_at
    if said in (TransactionStatus.UNRECOGNISED, TransactionStatus.REFUNDED):
        return _unclear(facts, found, is_watched=is_open and not too_late)
    # It ended unpaid already, and only "paid" moves it on.
    if not is_open:
        return _to(facts, found, facts.status, f"the gateway says {found.status_text!r}")
    if said in (TransactionStatus.FAILED, TransactionStatus.CLOSED):
        return _to(facts, found, PaymentStatus(said), f"the gateway says {found.status_text!r}")
    # Before the page's time: the shopper has finished, so the end of the page ends nothing.
    if said is TransactionStatus.PROCESSING:
        detail = "the shopper has finished, and the money is on its way"
        return replace(_to(facts, found, PaymentStatus.PENDING, detail), is_processing=True)
    if too_late:
        detail = "the payment page timed out without a payment"
        return _to(facts, found, PaymentStatus.EXPIRED, detail)
    return _to(facts, found, PaymentStatus.PENDING, "the gateway waits for the shopper")


def _after_paid(facts: PaymentFacts, found: Transaction) -> Decision:
    """Return the meaning of another word than "paid" about a paid payment."""
    is_explained = found.status is TransactionStatus.REFUNDED and (
        facts.refunded > 0 or found.refunds
    )
    # Any word may follow a full refund (unspecified behaviour 18).
    if is_explained or facts.refunded >= facts.amount:
        detail = f"it was refunded, and the gateway says {found.status_text!r}"
        return _to(facts, found, facts.status, detail)
    unchanged = _to(
        facts,
        found,
        facts.status,
        f"it was paid, and now the gateway says {found.status_text!r}",
    )
    return replace(
        unchanged,
        review=ReviewReason.CHANGED_AFTER_PAID,
        facts={"status": found.status_text},
    )


def _unclear(facts: PaymentFacts, found: Transaction, *, is_watched: bool) -> Decision:
    """Return the meaning of an unknown word, or of "refunded" about a payment that was never seen
    paid.
    """
    decision = replace(
        _to(facts, found, facts.status, _unrecognised(found)),
        is_understood=False,
        is_processing=facts.is_processing,
    )
    # While the page is open the next poll may bring a word that we know.
    if is_watched:
        return decision
    reason = ReviewReason.UNRECOGNISED_STATUS
    return replace(decision, review=reason, facts={UNRECOGNISED: found.status_text})


def _with_manual_review(decision: Decision, found: Transaction) -> Decision:
    """Add the case of money that came, of a payment that the gateway holds for a review."""
    if found.manual_review is None:
        return decision
    facts = {"found": found.manual_review}
    return replace(decision, review=ReviewReason.MANUAL_REVIEW, facts=facts)


def _with_disputes(decision: Decision, facts: PaymentFacts, found: Transaction) -> Decision:
    """Add the case of money that a bank has asked back, unless the dispute was won, or the books
    have its loss beside the refunds.
    """
    lost = sum(
        (dispute.amount for dispute in found.disputes if dispute.status is DisputeStatus.LOST),
        Decimal(0),
    )
    made = sum(
        (
            refund.amount
            for refund in found.refunds or ()
            if refund.outcome is RefundOutcome.SUCCEEDED
        ),
        Decimal(0),
    )
    is_booked = facts.refunded >= min(facts.amount, lost + made)
    pressing = [
        one
        for one in found.disputes
        if one.status is DisputeStatus.OPEN or (one.status is DisputeStatus.LOST and not is_booked)
    ]
    if not pressing:
        return decision
    first = min(
        pressing,
        key=lambda one: (one.status is not DisputeStatus.OPEN, str(one.respond_by or "")),
    )
    compared = {
        "case": str(first.status),
        "amount": str(first.amount),
        "currency": facts.currency,
        "dispute_no": first.dispute_no,
    }
    if first.respond_by and first.status is DisputeStatus.OPEN:
        compared["case"] = "deadline"
        compared["respond_by"] = f"{first.respond_by.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return replace(decision, review=ReviewReason.DISPUTED, facts=compared)


def is_forgotten(facts: PaymentFacts, answer: NotFound) -> bool:
    """Return whether a gateway that forgets expired payments has forgotten this one."""
    closes_at = facts.closes_at or facts.expires_at
    is_gone = answer.expired_is_forgotten and not answer.was_reported_paid
    return is_gone and answer.asked_at >= closes_at and facts.status is not PaymentStatus.PAID


def _inconclusive(facts: PaymentFacts, detail: str, review: ReviewReason | None) -> Decision:
    return Decision(
        status=facts.status,
        transaction_no=facts.transaction_no,
        detail=detail,
        review=review,
        is_conclusive=False,
    )


def _not_found(facts: PaymentFacts, answer: NotFound) -> Decision:
    is_open = facts.status in OPEN_PAYMENT_STATUSES
    if (facts.transaction_no or answer.was_reported_paid) and not is_forgotten(facts, answer):
        before = (
            "reported it paid"
            if answer.was_reported_paid
            else f"gave it transaction {facts.transaction_no}"
        )
        detail = f"the gateway does not know it, though it {before}"
        is_paid = facts.status is PaymentStatus.PAID
        if not is_open and (not is_paid or answer.asked_at >= facts.expires_at + _REMEMBERED):
            # many gateways forget unpaid payments, and old ones; late money may still come
            return _inconclusive(facts, detail, None)
        unchanged = Decision(
            status=facts.status,
            transaction_no=facts.transaction_no,
            detail=detail,
            is_processing=facts.is_processing,
        )
        if facts.refunded >= facts.amount:
            return unchanged
        case = (
            {"case": "reported-paid"}
            if answer.was_reported_paid
            else {"transaction_no": str(facts.transaction_no)}
        )
        return replace(unchanged, review=ReviewReason.PAYMENT_UNKNOWN, facts=case)
    if is_open and answer.asked_at >= facts.expires_at:
        detail = "the gateway knows no such reference and the time to pay has passed"
        return Decision(
            status=PaymentStatus.EXPIRED,
            transaction_no=facts.transaction_no,
            detail=detail,
        )
    return Decision(
        status=facts.status,
        transaction_no=facts.transaction_no,
        detail="the gateway knows no such reference",
        is_processing=facts.is_processing,
    )


def _unrecognised(found: Transaction) -> str:
    return f"the gateway says {found.status_text!r}, which is not a status we know"


def _held(
    facts: PaymentFacts,
    found: Transaction,
    reason: ReviewReason,
    compared: Mapping[str, str],
    detail: str,
) -> Decision:
    """Hold an answer that contradicts the payment, with its claim."""
    if found.status is TransactionStatus.PAID:
        detail = (
            detail
            if POLICIES[reason].reported_paid
            else f"the gateway says that it is paid, but {detail}"
        )
    elif found.status is TransactionStatus.UNRECOGNISED:
        detail, compared = (
            f"{_unrecognised(found)}, and {detail}",
            {**compared, UNRECOGNISED: found.status_text},
        )
    return Decision(
        status=facts.status,
        transaction_no=facts.transaction_no,
        detail=detail,
        review=reason,
        facts=compared,
        reported_paid=found.status is TransactionStatus.PAID,
        is_processing=facts.is_processing,
    )


def _contradiction(
    facts: PaymentFacts,
    found: Transaction,
    *,
    settles_in_currency: bool,
) -> tuple[ReviewReason, dict[str, str], str] | None:
    """Return why an answer may not be applied, with the compared facts (I1; unspecified behaviour 5
    and 20).
    """
    paid = found.status is TransactionStatus.PAID
    if found.reference != facts.reference:
        return (
            ReviewReason.REFERENCE_MISMATCH,
            {"found": found.reference[:40]},
            f"the answer is about {found.reference[:40]!r}",
        )
    if facts.transaction_no and found.transaction_no not in (None, facts.transaction_no):
        detail = (
            f"the transaction is {facts.transaction_no}, and the answer is about "
            f"{found.transaction_no}"
        )
        compared = {"expected": facts.transaction_no, "found": str(found.transaction_no)}
        return ReviewReason.TRANSACTION_NO_MISMATCH, compared, detail
    if paid and not found.transaction_no:
        return (
            ReviewReason.TRANSACTION_NO_MISSING,
            {},
            "the gateway says paid without a transactionNo",
        )
    currencies = {"currency": found.currency} | (
        {"settleCurrency": found.settle_currency} if settles_in_currency else {}
    )
    for name, currency in currencies.items():
        if currency != facts.currency and (paid or currency is not None):
            compared = {"field": name, "expected": facts.currency, "found": currency or ""}
            return (
                ReviewReason.CURRENCY_MISMATCH,
                compared,
                f"the {name} is {currency or 'missing'} instead of {facts.currency}",
            )
    if found.amount is None:
        return _without_amount(found) if paid else None
    if found.amount != facts.amount:
        compared = {
            "expected": str(facts.amount),
            "found": str(found.amount),
            "currency": facts.currency,
        }
        detail = (
            f"the amount is {facts.currency} {found.amount} instead of {facts.currency} "
            f"{facts.amount}"
        )
        return ReviewReason.AMOUNT_MISMATCH, compared, detail
    return None


def _without_amount(found: Transaction) -> tuple[ReviewReason, dict[str, str], str]:
    given = found.raw.get("amount")
    if given in (None, ""):
        return ReviewReason.AMOUNT_MISSING, {}, "the gateway says paid without an amount"
    shown = str(given)[:40]
    return (
        ReviewReason.AMOUNT_MISSING,
        {"found": shown},
        f"the gateway says paid, and its amount {shown!r} is no exact amount",
    )


def _to(facts: PaymentFacts, found: Transaction, status: PaymentStatus, detail: str) -> Decision:
    status = move(PAYMENT_TRANSITIONS, facts.status, status)
    return Decision(
        status=status,
        transaction_no=facts.transaction_no or found.transaction_no,
        detail=detail,
    )
