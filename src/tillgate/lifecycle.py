"""Every status, every transition, and the decision what the gateway's answer means. Pure: no I/O and no clock.

Rule 1: whatever decides a status lives in this file. Rule 2: statuses move along the two tables below and never back (I9). Rule 3: a
payment learns its fate only from `decide`, and becomes *paid* only when the answer agrees with the payment in everything (I1). Rule 4:
what proves nothing moves nothing. Rule 5: what a person must see is an `ReviewReason`, never a guess.

::

    payment                                            refund
    created ──► pending ──► paid                       queued ──► sending ──► succeeded
       │           ├──► failed ──► paid                   ▲          ├──► refused
       │           ├──► closed ──► paid                   └──────────┤ (certainly not sent)
       └── (all) ──┴──► expired ─► paid                              └──► unknown ──► succeeded | refused

*Failed*, *closed* and *expired* can still become *paid*, since late money is money.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from tillgate.errors import ConfigurationError, InvalidRequest, NotSent, OrderNotFound, Refused, SignatureMismatch, TillgateError
from tillgate.wire.dialects import REFERENCE, Dialect, TransactionStatus
from tillgate.wire.messages import CreatedPayment, Refunded, Transaction
from tillgate.wire.money import CURRENCY

__all__ = [
    "BOUND_REFUND_STATUSES",
    "OPEN_PAYMENT_STATUSES",
    "PAYMENT_TRANSITIONS",
    "REFUND_TRANSITIONS",
    "Answer",
    "Claim",
    "Decision",
    "Found",
    "IllegalTransition",
    "Inconclusive",
    "NotFound",
    "PaymentFacts",
    "PaymentStatus",
    "RefundStatus",
    "ReviewReason",
    "claim_of",
    "decide",
    "decide_creation",
    "decide_refund",
    "hear",
    "is_forgotten",
    "is_unanswered",
    "move_payment",
    "move_refund",
    "next_poll",
]


class PaymentStatus(StrEnum):
    """Where a payment, one attempt to pay one order, stands."""

    CREATED = "created"
    """The row exists; whether the gateway knows of it is not known yet."""
    PENDING = "pending"
    """The gateway knows it and nobody has paid."""
    PAID = "paid"
    """The gateway's own query said so, for the right money (I1). Final."""
    FAILED = "failed"
    CLOSED = "closed"
    EXPIRED = "expired"
    """The payment page timed out, and an answer given after that, or a person, said that nobody had paid."""


class RefundStatus(StrEnum):
    """Where a refund stands."""

    QUEUED = "queued"
    SENDING = "sending"
    """It may be on its way. A crash here is an unknown outcome."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It may have been carried out. Never sent again by software (I6); blocks its amount (I5)."""


_P, _R = PaymentStatus, RefundStatus

PAYMENT_TRANSITIONS: Final[Mapping[PaymentStatus, frozenset[PaymentStatus]]] = MappingProxyType(
    {
        _P.CREATED: frozenset({_P.PENDING, _P.PAID, _P.FAILED, _P.CLOSED, _P.EXPIRED}),
        _P.PENDING: frozenset({_P.PAID, _P.FAILED, _P.CLOSED, _P.EXPIRED}),
        _P.FAILED: frozenset({_P.PAID}),
        _P.CLOSED: frozenset({_P.PAID}),
        _P.EXPIRED: frozenset({_P.PAID}),
        _P.PAID: frozenset(),
    }
)

REFUND_TRANSITIONS: Final[Mapping[RefundStatus, frozenset[RefundStatus]]] = MappingProxyType(
    {
        _R.QUEUED: frozenset({_R.SENDING, _R.FAILED}),  # refused without being sent: a person withdrew it
        _R.SENDING: frozenset({_R.SUCCEEDED, _R.FAILED, _R.UNKNOWN, _R.QUEUED}),  # queued again: it certainly did not leave
        _R.UNKNOWN: frozenset({_R.SUCCEEDED, _R.FAILED}),  # a notification on its own address, or a person
        _R.SUCCEEDED: frozenset(),
        _R.FAILED: frozenset(),
    }
)

OPEN_PAYMENT_STATUSES: Final = frozenset({_P.CREATED, _P.PENDING})
"""Statuses in which a payment may still be paid in the ordinary course."""

BOUND_REFUND_STATUSES: Final = frozenset({_R.QUEUED, _R.SENDING, _R.UNKNOWN, _R.SUCCEEDED})
"""Statuses in which a refund's amount is taken or may be: together never more than was paid (I5)."""


_EARLY_POLLS = tuple(timedelta(seconds=after) for after in (5, 15, 30, 60, 120, 300))
_POLL = timedelta(minutes=10)
_RETRY: Final = timedelta(minutes=2)
_TAIL_RETRIES: Final = 20
_UNANSWERED_AFTER: Final = timedelta(hours=6)
_OVERDUE_POLL = timedelta(minutes=5)
_TAIL_POLLS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7), timedelta(days=30))
LONGEST_BETWEEN_POLLS: Final = _TAIL_POLLS[-1]
"""No look is put off further, but by a clock that is wrong."""


class ReviewReason(StrEnum):
    """Why a person must look at a payment or an account. The values are stored."""

    AMOUNT_MISMATCH = "amount-mismatch"
    AMOUNT_MISSING = "amount-missing"
    CURRENCY_MISMATCH = "currency-mismatch"
    TRANSACTION_NO_MISMATCH = "transaction-no-mismatch"
    TRANSACTION_NO_MISSING = "transaction-no-missing"
    REFERENCE_MISMATCH = "reference-mismatch"
    UNRECOGNISED_STATUS = "unrecognised-status"
    CHANGED_AFTER_PAID = "changed-after-paid"
    WRONG_CREDENTIALS = "wrong-credentials"
    """The gateway refuses our queries: another merchantNo or token. Account-level."""
    SIGNATURE_MISMATCH = "signature-mismatch"
    """An answer was not signed with the account's token. Account-level."""
    ACCOUNT_GONE = "account-gone"
    """The account that made a payment is not configured any more, or is another merchant's by now. Account-level."""
    GATEWAY_SILENT = "gateway-silent"
    """The gateway has not answered for a while. Account-level."""
    PAYMENT_UNKNOWN = "payment-unknown"
    """The gateway does not know what it has created: another gateway, or one that forgets."""
    PAYMENT_UNANSWERED = "payment-unanswered"
    """The gateway answers, but for hours nothing that could be used about a payment whose time is over."""
    SECOND_PAYMENT = "second-payment"
    PAID_NOT_PAYABLE = "paid-not-payable"
    UNDERPAID = "underpaid"
    OVERPAID = "overpaid"
    DUPLICATE_TRANSACTION_NO = "duplicate-transaction-no"
    REFUND_UNKNOWN = "refund-unknown"
    REFUND_CONTRADICTED = "refund-contradicted"
    """A refund was held to be refused, and the gateway says that it was done."""
    REFUND_NOT_SENT = "refund-not-sent"
    """A refund waits for hours, since no request could leave."""
    DELIVERY_FAILING = "outbox_event-failing"
    FORGED_NOTIFICATIONS = "forged-notifications"


UNTOLD_REASONS: Final = frozenset({ReviewReason.PAYMENT_UNKNOWN, ReviewReason.PAYMENT_UNANSWERED})
"""Reasons that say that the gateway tells nothing of a payment."""


class IllegalTransition(Exception):  # a fault in our own code, so not one of TillgateError's
    """A status was about to move where its table does not lead."""


class Claim(IntEnum):
    """What an answer that could not be applied says of whether a payment is paid, the least that follows from it first."""

    NONE = 0
    """The gateway says nothing of it."""
    UNPAID = 1
    UNCLEAR = 2
    """It uses a word that we do not know, and that may mean paid."""
    PAID = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentFacts:
    """What is known of a payment before an answer is heard.

    `closes_at` is when the payment page times out, and `expires_at` when the grace after that has passed too; without the one the other
    counts. `amount` is in dollars, and so is `refunded`, what Tillgate itself has refunded.
    """

    reference: str
    amount: Decimal
    status: PaymentStatus
    expires_at: datetime
    closes_at: datetime | None = None
    currency: str = CURRENCY
    transaction_no: str | None = None
    refunded: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The gateway told about the transaction. `asked_at` is when it was asked, which is before it answered."""

    transaction: Transaction
    asked_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFound:
    """The gateway answered that it knows no such reference (HTTP 400 and 000022).

    `expired_is_forgotten` is the dialect's: it says so of everything whose payment page has timed out (unspecified 19).
    `was_reported_paid` is whether it has called it paid before, in an answer that could not be applied and that nobody has settled.
    """

    asked_at: datetime
    expired_is_forgotten: bool = False
    was_reported_paid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inconclusive:
    """An answer, or none, that proves nothing. `review` is what it may say about the account, whoever gives the reason."""

    detail: str
    review: ReviewReason | None = None


Answer = Found | NotFound | Inconclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an answer means for a payment.

    `status` is where the payment stands now, which may be where it stood; `transaction_no` is what is now known; `review` is
    what a person must see; `is_conclusive` tells an answer about the payment from one that proves nothing; `is_understood` is false of a
    status that the dialect does not know; `because` says why.
    """

    status: PaymentStatus
    transaction_no: str | None
    detail: str
    review: ReviewReason | None = None
    is_conclusive: bool = True
    is_understood: bool = True

    @property
    def is_in_order(self) -> bool:
        """Whether the answer says something about the payment, and nothing of it is for a person."""
        return self.is_conclusive and self.is_understood and self.review is None

    @property
    def is_last_word(self) -> bool:
        """Whether the gateway has said what it knows of a settled payment: not when it has forgotten one that it held to be paid."""
        return self.is_conclusive and not (self.review is ReviewReason.PAYMENT_UNKNOWN and self.status is PaymentStatus.PAID)


def move_payment(old: PaymentStatus, new: PaymentStatus) -> PaymentStatus:
    """Return the new status, or raise `IllegalTransition` when the table does not lead there."""
    if new is not old and new not in PAYMENT_TRANSITIONS[old]:
        raise IllegalTransition(f"a payment does not move from {old} to {new}")
    return new


def move_refund(old: RefundStatus, new: RefundStatus) -> RefundStatus:
    """Return the new status, or raise `IllegalTransition` when the table does not lead there."""
    if new is not old and new not in REFUND_TRANSITIONS[old]:
        raise IllegalTransition(f"a refund does not move from {old} to {new}")
    return new


def hear(outcome: Transaction | TillgateError, asked_at: datetime, dialect: Dialect = REFERENCE) -> Answer:
    """Return what the outcome of a query says, whether it was returned or raised, to who speaks the account's dialect."""
    if isinstance(outcome, Transaction):
        return Found(transaction=outcome, asked_at=asked_at)
    if isinstance(outcome, OrderNotFound):
        return NotFound(asked_at=asked_at, expired_is_forgotten=dialect.expired_is_forgotten)
    review = None
    if isinstance(outcome, SignatureMismatch):
        review = ReviewReason.SIGNATURE_MISMATCH
    elif isinstance(outcome, Refused):
        review = ReviewReason.WRONG_CREDENTIALS
    return Inconclusive(detail=str(outcome), review=review)


def decide(facts: PaymentFacts, answer: Answer) -> Decision:
    """Decide what an answer of the gateway means for a payment. The only way a payment learns its fate."""
    if isinstance(answer, Inconclusive):
        return _inconclusive(facts, answer.detail, answer.review)
    if isinstance(answer, NotFound):
        return _not_found(facts, answer)
    found = answer.transaction
    if doubt := _contradiction(facts, found):
        reason, detail = doubt[0], _claiming(found, *doubt)
        return Decision(status=facts.status, transaction_no=facts.transaction_no, detail=detail, review=reason)
    said = found.status
    if said is TransactionStatus.PAID:
        return _to(facts, found, PaymentStatus.PAID, "the gateway says that it is paid")
    if facts.status is PaymentStatus.PAID:
        if facts.refunded >= facts.amount:  # whatever it is called after a full refund of ours (unspecified 18)
            return _stay(facts, found, f"it was refunded, and the gateway says {found.status_text!r}")
        detail = f"it was paid, and now the gateway says {found.status_text!r}"
        return _stay(facts, found, detail, ReviewReason.CHANGED_AFTER_PAID)
    is_open, too_late = facts.status in OPEN_PAYMENT_STATUSES, answer.asked_at >= facts.expires_at
    if said is TransactionStatus.UNRECOGNISED:
        is_told = too_late or not is_open
        decision = _stay(facts, found, _unrecognised(found), ReviewReason.UNRECOGNISED_STATUS if is_told else None)
        return replace(decision, is_understood=False)
    if not is_open:
        return _stay(facts, found, f"the gateway says {found.status_text!r}")
    if said is TransactionStatus.FAILED:
        return _to(facts, found, PaymentStatus.FAILED, f"the gateway says {found.status_text!r}")
    if said is TransactionStatus.CLOSED:
        return _to(facts, found, PaymentStatus.CLOSED, f"the gateway says {found.status_text!r}")
    if too_late:
        return _to(facts, found, PaymentStatus.EXPIRED, "the payment page timed out and nobody had paid")
    return _to(facts, found, PaymentStatus.PENDING, "the gateway waits for the shopper")


def decide_creation(outcome: CreatedPayment | TillgateError) -> PaymentStatus:
    """Return where a *created* payment stands after the attempt to create it at the gateway (unspecified 13).

    A refusal, and a request that never left, is *failed*, and is still polled later; an unknown outcome stays *created* and is watched.
    """
    if isinstance(outcome, CreatedPayment):
        return PaymentStatus.PENDING
    if isinstance(outcome, Refused | NotSent | InvalidRequest | ConfigurationError):
        return PaymentStatus.FAILED
    return PaymentStatus.CREATED


def decide_refund(outcome: Refunded | TillgateError) -> RefundStatus:
    """Return where a *sending* refund stands after the attempt (unspecified 12 and 14).

    Closed by default: what is not certain is *unknown*. What certainly never left is *queued* again, unless it never can leave.
    """
    if isinstance(outcome, Refunded):
        return RefundStatus.SUCCEEDED
    if isinstance(outcome, Refused | InvalidRequest):
        return RefundStatus.FAILED
    if isinstance(outcome, NotSent | ConfigurationError):
        return RefundStatus.QUEUED
    return RefundStatus.UNKNOWN


def next_poll(status: PaymentStatus, since: datetime, expires_at: datetime, now: datetime) -> datetime | None:
    """Return when a payment is polled next, always after `now`, or None when never again.

    `since` is when an open payment was created, or when another one came to its status. An open one is watched closely at first and is
    polled once more when its time to pay is over. Past that it is open only because the answers settle nothing, and a contradiction may
    stand for ever: the pauses grow from a few minutes on, with the time that has passed. The others get tail looks.
    """
    if status not in OPEN_PAYMENT_STATUSES:
        came = min(since, now)  # a clock that ran ahead may have said when
        return next((moment for after in _TAIL_POLLS if (moment := came + after) > now), None)
    if now >= expires_at:
        return now + min(max(_OVERDUE_POLL, (now - expires_at) / _TAIL_RETRIES), LONGEST_BETWEEN_POLLS)
    early = (since + after for after in _EARLY_POLLS if since <= now)  # a clock that ran ahead says nothing of how young a payment is
    moment = next((moment for moment in early if moment > now), now + _POLL)
    return min(moment, max(expires_at, now + timedelta(seconds=1)))


def next_retry(status: PaymentStatus, since: datetime, expires_at: datetime, now: datetime) -> datetime:
    """Return when a payment is polled next after an answer that was inconclusive. Arguments as for `next_poll`.

    Soon, for an open one. For another one the pause grows with the time it has been settled: a gateway that has forgotten old transactions
    never answers about them, and must not be asked every few minutes for ever.
    """
    pause = _RETRY if status in OPEN_PAYMENT_STATUSES else min(max(_RETRY, (now - since) / _TAIL_RETRIES), LONGEST_BETWEEN_POLLS)
    due = next_poll(status, since, expires_at, now)
    return min(due, now + pause) if due else now + pause


def is_unanswered(status: PaymentStatus, expires_at: datetime, now: datetime) -> bool:
    """Tell whether a payment that is still open should long have been settled by an answer: a person must know of it."""
    return status in OPEN_PAYMENT_STATUSES and now >= expires_at + _UNANSWERED_AFTER


def is_forgotten(facts: PaymentFacts, answer: NotFound) -> bool:
    """Tell whether a reference is unknown because its payment page timed out, at a gateway whose dialect says that it forgets these."""
    closes_at = facts.closes_at or facts.expires_at
    is_told = answer.expired_is_forgotten and not answer.was_reported_paid
    return is_told and answer.asked_at >= closes_at and facts.status is not PaymentStatus.PAID


def _inconclusive(facts: PaymentFacts, detail: str, review: ReviewReason | None) -> Decision:
    return Decision(status=facts.status, transaction_no=facts.transaction_no, detail=detail, review=review, is_conclusive=False)


def _not_found(facts: PaymentFacts, answer: NotFound) -> Decision:
    is_open = facts.status in OPEN_PAYMENT_STATUSES
    if (facts.transaction_no or answer.was_reported_paid) and not is_forgotten(facts, answer):
        before = "has called it paid" if answer.was_reported_paid else f"gave it transaction {facts.transaction_no}"
        detail = f"the gateway does not know it, though it {before}"
        if not is_open and facts.status is not PaymentStatus.PAID:
            return _inconclusive(facts, detail, None)  # many gateways forget what nobody paid; still, it is no word on late money
        told = ReviewReason.PAYMENT_UNKNOWN if facts.refunded < facts.amount else None
        return Decision(status=facts.status, transaction_no=facts.transaction_no, detail=detail, review=told)
    if is_open and answer.asked_at >= facts.expires_at:
        detail = "the gateway knows no such reference and the time to pay has passed"
        return Decision(status=PaymentStatus.EXPIRED, transaction_no=facts.transaction_no, detail=detail)
    return Decision(status=facts.status, transaction_no=facts.transaction_no, detail="the gateway knows no such reference")


_OF_PAID_ALONE: Final = frozenset({ReviewReason.TRANSACTION_NO_MISSING, ReviewReason.AMOUNT_MISSING})
"""Doubts that say already that the gateway says paid."""
_PAID_BUT: Final = "the gateway says that it is paid, but "
_NOT_KNOWN: Final = "which is not a status we know"


def _unrecognised(found: Transaction) -> str:
    return f"the gateway says {found.status_text!r}, {_NOT_KNOWN}"


def _claiming(found: Transaction, reason: ReviewReason, detail: str) -> str:
    """Say why an answer may not be applied, and what it says of whether the payment is paid."""
    if found.status is TransactionStatus.PAID:
        return detail if reason in _OF_PAID_ALONE else f"{_PAID_BUT}{detail}"
    return f"{_unrecognised(found)}, and {detail}" if found.status is TransactionStatus.UNRECOGNISED else detail


def claim_of(reason: str, message: str) -> Claim:
    """Return what the gateway has claimed of a payment by the answer that a person is told of."""
    if reason in UNTOLD_REASONS:
        return Claim.NONE
    if reason in _OF_PAID_ALONE or _PAID_BUT in message:
        return Claim.PAID
    return Claim.UNCLEAR if _NOT_KNOWN in message else Claim.UNPAID


def _contradiction(facts: PaymentFacts, found: Transaction) -> tuple[ReviewReason, str] | None:
    """Return why an answer may not be applied: it contradicts the payment, or says paid without saying enough (I1; unspecified 5, 20)."""
    paid = found.status is TransactionStatus.PAID
    if found.reference != facts.reference:
        return ReviewReason.REFERENCE_MISMATCH, f"the answer is about {found.reference[:40]!r}"
    if facts.transaction_no and found.transaction_no not in (None, facts.transaction_no):
        detail = f"the transaction is {facts.transaction_no}, and the answer is about {found.transaction_no}"
        return ReviewReason.TRANSACTION_NO_MISMATCH, detail
    if paid and not found.transaction_no:
        return ReviewReason.TRANSACTION_NO_MISSING, "the gateway says paid without a transactionNo"
    for name, currency in (("currency", found.currency), ("settleCurrency", found.settle_currency)):
        if currency != facts.currency and (paid or currency is not None):
            return ReviewReason.CURRENCY_MISMATCH, f"the {name} is {currency or 'missing'} instead of {facts.currency}"
    if found.amount is None:
        return (ReviewReason.AMOUNT_MISSING, _without_amount(found)) if paid else None
    if found.amount != facts.amount:
        return ReviewReason.AMOUNT_MISMATCH, f"the amount is {found.amount} instead of {facts.amount}"
    return None


def _without_amount(found: Transaction) -> str:
    given = found.raw.get("amount")
    if given in (None, ""):
        return "the gateway says paid without an amount"
    return f"the gateway says paid, and its amount {str(given)[:40]!r} is no amount of cents"


def _to(facts: PaymentFacts, found: Transaction, status: PaymentStatus, detail: str) -> Decision:
    return Decision(status=move_payment(facts.status, status), transaction_no=facts.transaction_no or found.transaction_no, detail=detail)


def _stay(facts: PaymentFacts, found: Transaction, detail: str, review: ReviewReason | None = None) -> Decision:
    return Decision(status=facts.status, transaction_no=facts.transaction_no or found.transaction_no, detail=detail, review=review)
