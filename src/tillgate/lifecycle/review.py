"""The review's machine, and the one table of the consequences of each reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, Final

from tillgate.lifecycle.machine import table

__all__ = [
    "POLICIES",
    "REVIEW_TRANSITIONS",
    "Claim",
    "End",
    "ReviewAction",
    "ReviewFacts",
    "ReviewPolicy",
    "ReviewReason",
    "ReviewStatus",
    "Scope",
    "claim_of",
    "facts_version",
    "reasons",
]


class ReviewStatus(StrEnum):
    """The status of a review."""

    OPEN = "open"
    RESOLVED = "resolved"
    DISMISSED = "dismissed"
    """Staff closed it without a change, with a note. The same facts open no new review until the
    gateway has given an answer in order.
    """


_S = ReviewStatus

REVIEW_TRANSITIONS: Final = table(
    {
        _S.OPEN: {_S.RESOLVED, _S.DISMISSED},
        _S.DISMISSED: {_S.RESOLVED},  # a later answer in order: the same facts open a new review
        _S.RESOLVED: set(),
    },
)


class ReviewReason(StrEnum):
    """The reason why staff must decide. The values are stored."""

    AMOUNT_MISMATCH = "amount-mismatch"
    AMOUNT_MISSING = "amount-missing"
    CURRENCY_MISMATCH = "currency-mismatch"
    TRANSACTION_NO_MISMATCH = "transaction-no-mismatch"
    TRANSACTION_NO_MISSING = "transaction-no-missing"
    REFERENCE_MISMATCH = "reference-mismatch"
    UNRECOGNISED_STATUS = "unrecognised-status"
    CHANGED_AFTER_PAID = "changed-after-paid"
    DISPUTED = "disputed"
    """A bank has asked money of a payment back (a charge-back)."""
    MANUAL_REVIEW = "manual-review"
    """The gateway waits for a review of a paid payment by hand, such as one that may be fraud."""
    WRONG_CREDENTIALS = "wrong-credentials"
    """The gateway refuses a query or a new payment: the account's merchantNo or token is wrong."""
    SIGNATURE_MISMATCH = "signature-mismatch"
    """An answer was not signed with the account's token."""
    ACCOUNT_GONE = "account-gone"
    """The account of a payment is not configured any more, or belongs to another merchant."""
    GATEWAY_SILENT = "gateway-silent"
    """The gateway has not answered for a while."""
    CREATIONS_REFUSED = "creations-refused"
    """Several new payments in a row with one payment method could not be created."""
    PAYMENT_UNKNOWN = "payment-unknown"
    """The gateway does not know a payment that it created."""
    PAYMENT_UNANSWERED = "payment-unanswered"
    """For hours after its expiry, the gateway has given no usable answer about a payment."""
    SECOND_PAYMENT = "second-payment"
    PAID_NOT_PAYABLE = "paid-not-payable"
    UNDERPAID = "underpaid"
    OVERPAID = "overpaid"
    CANCELLED_HELD = "cancelled-held"
    """The shop cancelled a paid order, and the gateway still holds its money."""
    DUPLICATE_TRANSACTION_NO = "duplicate-transaction-no"
    REFUND_UNKNOWN = "refund-unknown"
    REFUND_CONTRADICTED = "refund-contradicted"
    """The gateway refused a refund, and then says that the refund is done."""
    REFUND_RETURNED = "refund-returned"
    """A refund was done, and then failed at the shopper's bank: the money is the shop's again."""
    REFUND_LATE = "refund-late"
    """The gateway has accepted a refund, and has not finished it for days."""
    REFUND_NOT_SENT = "refund-not-sent"
    """A refund has waited for hours, since no request could leave."""
    DELIVERY_FAILING = "delivery-failing"
    FORGED_NOTIFICATIONS = "forged-notifications"
    ROWS_LOST = "rows-lost"
    """The database went back by a restore or a failover, or a signed notification names a payment
    that it does not have.
    """
    WORKER_LATE = "worker-late"
    """The worker is away, or does not come to the shop events that are due."""


class ReviewAction(StrEnum):
    """An action of staff on a review."""

    POLL = "poll"
    """Poll now; resolved when the answer is in order."""
    REDELIVER = "redeliver"
    """Deliver the shop event again: the failing one, or "payment paid" after the shop reopened or
    corrected the order.
    """
    REOPEN = "reopen"
    """Let the shop reopen its cancelled order, and deliver "payment paid" again; for plugins that
    implement `tillgate_reopen_order`.
    """
    REFUND = "refund"
    """Refund the payment; resolved when all of it is refunded (an overpaid order: when some of it
    is).
    """
    REFUND_DONE = "refund-done"
    """The refund of unknown or late outcome was done, as staff saw at the gateway."""
    REFUND_NOT_DONE = "refund-not-done"
    """The refund of unknown or late outcome was not done, as staff saw at the gateway."""
    WITHDRAW = "withdraw"
    """Withdraw a refund that waits to be sent."""
    RECORD_EXTERNAL_REFUND = "record-external-refund"
    """Record the amount of an external refund."""
    ACCEPT_AS_PAID = "accept-as-paid"
    """Accept the payment as paid with the amount that the gateway reports. The shop decides whether
    that is enough.
    """
    REFUND_REPORTED = "refund-reported"
    """Accept the amount that the gateway reports, and refund all of it."""
    ENTER_NUMBER = "enter-number"
    """Query the payment by the number that staff found at the gateway; the number is kept if the
    answer is about this payment.
    """
    FORCE_EXPIRE = "mark-expired"
    """Mark the payment as expired. The worker still finds late money."""
    DISMISS = "dismiss"
    """Close the review without a change, with a note. The same facts open no new review."""


class Scope(StrEnum):
    """The kind of subject of a review. At most one review per reason and subject is open."""

    PAYMENT = "payment"
    REFUND = "refund"
    ACCOUNT = "account"
    EVENT = "event"
    DATABASE = "database"
    """The database, or one payment that it does not have."""
    WORKER = "worker"


class End(StrEnum):
    """An event that closes a review without staff."""

    ANSWER = "answer"
    """An answer of the gateway that is in order."""
    FOUND = "found"
    """Any answer that finds the payment."""
    SETTLED = "settled"
    """An answer in order after which the payment is no longer open."""
    FULL_REFUND = "full-refund"
    """A refund of the whole payment."""
    APPLIED = "applied"
    """The shop applies the payment to its order."""
    SUBJECT = "subject"
    """Its subject moves on: the refund is settled, the event is delivered, the gateway answers or
    creates again, the worker runs.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPolicy:
    """The consequences of a reason.

    Staff see `actions` in this order. `recommends`: the first is the recommended one; else staff
    look at the gateway first. `reported_paid`: the reason itself means that the gateway says paid.
    `says_nothing`: the gateway says nothing about the payment. `updates`: a later answer updates
    the open review in place. `blocks_refunds`: Tillgate sends no refund while the review is open,
    since the gateway may have refunded the money already (I5). `holds_money`: paid money pays for
    no order.
    """

    scope: Scope
    actions: tuple[ReviewAction, ...]
    ends: frozenset[End] = frozenset()
    reported_paid: bool = False
    says_nothing: bool = False
    updates: bool = False
    blocks_refunds: bool = False
    holds_money: bool = False
    recommends: bool = True


_A, _R = ReviewAction, ReviewReason
_POLL: Final = (_A.POLL, _A.DISMISS)
_UNAPPLIED: Final = (_A.POLL, _A.FORCE_EXPIRE, _A.DISMISS)
_HELD: Final = (_A.REFUND, _A.WITHDRAW, _A.DISMISS)
_HELD_UNAPPLIED: Final = (_A.REFUND, _A.WITHDRAW, _A.REDELIVER, _A.DISMISS)


def _answer(
    *actions: ReviewAction,
    ends: Collection[End] = (End.ANSWER,),
    **more: bool,
) -> ReviewPolicy:
    """Return the row of a case about a payment that later answers update; by default an answer that
    could not be applied to it.
    """
    return ReviewPolicy(
        scope=Scope.PAYMENT,
        actions=actions or _UNAPPLIED,
        ends=frozenset(ends),
        updates=True,
        **more,
    )


def _account(*more: End) -> ReviewPolicy:
    return ReviewPolicy(
        scope=Scope.ACCOUNT,
        actions=_POLL,
        ends=frozenset({End.ANSWER, End.FOUND, *more}),
    )


def _held(actions: tuple[ReviewAction, ...], *more: End) -> ReviewPolicy:
    """Return the row of a paid payment with money that pays for no order."""
    return ReviewPolicy(
        scope=Scope.PAYMENT,
        actions=actions,
        ends=frozenset({End.FULL_REFUND, *more}),
        holds_money=True,
    )


POLICIES: Final[Mapping[ReviewReason, ReviewPolicy]] = MappingProxyType(
    {
        _R.AMOUNT_MISMATCH: _answer(_A.ACCEPT_AS_PAID, _A.REFUND_REPORTED, *_UNAPPLIED),
        _R.AMOUNT_MISSING: _answer(reported_paid=True),
        _R.CURRENCY_MISMATCH: _answer(),
        _R.TRANSACTION_NO_MISMATCH: _answer(),
        _R.TRANSACTION_NO_MISSING: _answer(reported_paid=True),
        _R.REFERENCE_MISMATCH: _answer(),
        _R.UNRECOGNISED_STATUS: _answer(),
        _R.PAYMENT_UNKNOWN: _answer(ends=(End.FOUND, End.SETTLED), says_nothing=True),
        _R.PAYMENT_UNANSWERED: _answer(
            _A.POLL,
            _A.ENTER_NUMBER,
            _A.FORCE_EXPIRE,
            _A.DISMISS,
            ends=(End.FOUND, End.ANSWER),
            says_nothing=True,
        ),
        # Staff see at the gateway whether money left, and how much.
        _R.CHANGED_AFTER_PAID: _answer(
            _A.RECORD_EXTERNAL_REFUND,
            _A.POLL,
            _A.DISMISS,
            ends=(End.FULL_REFUND,),
            blocks_refunds=True,
            recommends=False,
        ),
        _R.DISPUTED: _answer(
            _A.RECORD_EXTERNAL_REFUND,
            _A.POLL,
            _A.DISMISS,
            ends=(End.ANSWER, End.FULL_REFUND),
            blocks_refunds=True,
            recommends=False,
        ),
        _R.MANUAL_REVIEW: _answer(
            *_POLL,
            ends=(End.ANSWER, End.FULL_REFUND),
            recommends=False,
        ),
        _R.WRONG_CREDENTIALS: _account(),
        _R.SIGNATURE_MISMATCH: _account(),
        _R.ACCOUNT_GONE: _account(),
        _R.GATEWAY_SILENT: _account(End.SUBJECT),
        # An answer to a query says nothing about creations: only a payment that is created ends it.
        _R.CREATIONS_REFUSED: ReviewPolicy(
            scope=Scope.ACCOUNT,
            actions=(_A.DISMISS,),
            ends=frozenset({End.SUBJECT}),
            recommends=False,
        ),
        _R.SECOND_PAYMENT: _held(_HELD),
        _R.PAID_NOT_PAYABLE: _held(
            (_A.REFUND, _A.WITHDRAW, _A.REOPEN, _A.REDELIVER, _A.DISMISS),
            End.APPLIED,
        ),
        _R.UNDERPAID: _held(_HELD_UNAPPLIED, End.APPLIED),
        _R.OVERPAID: _held(_HELD),
        _R.CANCELLED_HELD: _held(_HELD),
        _R.DUPLICATE_TRANSACTION_NO: ReviewPolicy(
            scope=Scope.PAYMENT,
            actions=_HELD,
            recommends=False,
        ),
        # The amount of these three stays blocked until staff decide, so staff cannot dismiss them.
        _R.REFUND_UNKNOWN: ReviewPolicy(
            scope=Scope.REFUND,
            actions=(_A.REFUND_DONE, _A.REFUND_NOT_DONE),
            ends=frozenset({End.SUBJECT}),
            recommends=False,
        ),
        _R.REFUND_LATE: ReviewPolicy(
            scope=Scope.REFUND,
            actions=(_A.POLL, _A.REFUND_DONE, _A.REFUND_NOT_DONE),
            ends=frozenset({End.SUBJECT}),
        ),
        _R.REFUND_NOT_SENT: ReviewPolicy(
            scope=Scope.REFUND,
            actions=(_A.WITHDRAW,),
            ends=frozenset({End.SUBJECT}),
            recommends=False,
        ),
        _R.REFUND_CONTRADICTED: ReviewPolicy(
            scope=Scope.REFUND,
            actions=(_A.RECORD_EXTERNAL_REFUND, _A.DISMISS),
            blocks_refunds=True,
        ),
        _R.REFUND_RETURNED: ReviewPolicy(
            scope=Scope.REFUND,
            actions=(_A.DISMISS,),
            recommends=False,
        ),
        _R.DELIVERY_FAILING: ReviewPolicy(
            scope=Scope.EVENT,
            actions=(_A.REDELIVER, _A.DISMISS),
            ends=frozenset({End.SUBJECT}),
        ),
        _R.FORGED_NOTIFICATIONS: ReviewPolicy(scope=Scope.PAYMENT, actions=(_A.DISMISS,)),
        _R.ROWS_LOST: ReviewPolicy(scope=Scope.DATABASE, actions=(_A.DISMISS,), recommends=False),
        _R.WORKER_LATE: ReviewPolicy(
            scope=Scope.WORKER,
            actions=(_A.DISMISS,),
            ends=frozenset({End.SUBJECT}),
            recommends=False,
        ),
    },
)
"""One row per reason: the only place for its consequences."""


def reasons(**wanted: object) -> frozenset[ReviewReason]:
    """Return the reasons with a policy that has these values; `ends=End.ANSWER` asks for one of its
    ends.
    """

    def has(policy: ReviewPolicy, name: str, value: object) -> bool:
        return value in policy.ends if name == "ends" else getattr(policy, name) == value

    return frozenset(
        reason
        for reason, policy in POLICIES.items()
        if all(has(policy, *one) for one in wanted.items())
    )


class Claim(IntEnum):
    """The claim of an answer about a payment, the weakest first."""

    NONE = 0
    """The gateway says nothing about the payment."""
    UNPAID = 1
    UNCLEAR = 2
    """The gateway uses an unknown status word, which may mean paid."""
    PAID = 3


UNRECOGNISED: Final = "unrecognised"
"""The name of the fact that holds an unknown status word."""


def claim_of(reason: str, facts: Mapping[str, Any], *, reported_paid: bool) -> Claim:
    """Return the gateway's claim, from the stored facts of a review."""
    if reason in reasons(says_nothing=True):
        return Claim.NONE
    if reported_paid:
        return Claim.PAID
    return Claim.UNCLEAR if UNRECOGNISED in facts else Claim.UNPAID


def facts_version(reason: str, facts: Mapping[str, Any], *, reported_paid: bool) -> str:
    """Return a short hash of the compared facts of a review, the same in any language."""
    said = json.dumps(
        [str(reason), bool(reported_paid), {name: str(value) for name, value in facts.items()}],
        sort_keys=True,
    )
    return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFacts:
    """The facts of an open review that `interpret` needs."""

    reason: str
    opened_at: datetime
    reported_paid: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
