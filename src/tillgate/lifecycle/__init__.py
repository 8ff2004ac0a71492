"""Every status, every transition, and the decision that follows from a gateway's answer. Pure: no I/O and no clock.

One module per machine: `payment`, `refund`, `order`, `outbox`, `review`. `interpret` turns an answer, in context, into a decision.
"""

from tillgate.lifecycle.interpret import (
    Answer,
    Decision,
    Found,
    Inconclusive,
    NotFound,
    PaymentFacts,
    answer_of,
    in_context,
    interpret,
    is_forgotten,
)
from tillgate.lifecycle.machine import IllegalTransition
from tillgate.lifecycle.order import ORDER_TRANSITIONS, OrderStatus, move_order
from tillgate.lifecycle.outbox import OUTBOX_TRANSITIONS, OutboxStatus, move_event
from tillgate.lifecycle.payment import (
    OPEN_PAYMENT_STATUSES,
    PAYMENT_TRANSITIONS,
    PaymentStatus,
    decide_creation,
    is_unanswered,
    move_payment,
    next_poll,
    next_retry,
)
from tillgate.lifecycle.refund import BOUND_REFUND_STATUSES, REFUND_TRANSITIONS, RefundStatus, decide_refund, move_refund
from tillgate.lifecycle.review import (
    POLICIES,
    REVIEW_TRANSITIONS,
    Claim,
    End,
    OpenReview,
    ReviewAction,
    ReviewPolicy,
    ReviewReason,
    ReviewStatus,
    Scope,
    claim_of,
    facts_version,
    move_review,
    reasons,
)

__all__ = [
    "BOUND_REFUND_STATUSES",
    "OPEN_PAYMENT_STATUSES",
    "ORDER_TRANSITIONS",
    "OUTBOX_TRANSITIONS",
    "PAYMENT_TRANSITIONS",
    "POLICIES",
    "REFUND_TRANSITIONS",
    "REVIEW_TRANSITIONS",
    "Answer",
    "Claim",
    "Decision",
    "End",
    "Found",
    "IllegalTransition",
    "Inconclusive",
    "NotFound",
    "OpenReview",
    "OrderStatus",
    "OutboxStatus",
    "PaymentFacts",
    "PaymentStatus",
    "RefundStatus",
    "ReviewAction",
    "ReviewPolicy",
    "ReviewReason",
    "ReviewStatus",
    "Scope",
    "answer_of",
    "claim_of",
    "decide_creation",
    "decide_refund",
    "facts_version",
    "in_context",
    "interpret",
    "is_forgotten",
    "is_unanswered",
    "move_event",
    "move_order",
    "move_payment",
    "move_refund",
    "move_review",
    "next_poll",
    "next_retry",
    "reasons",
]
