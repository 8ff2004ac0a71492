"""The lifecycle: both tables, and the meaning of an answer. Property tests name the invariant they
hold.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tillgate import errors, lifecycle
from tillgate.lifecycle import (
    OPEN_PAYMENT_STATUSES,
    PAYMENT_TRANSITIONS,
    REFUND_TRANSITIONS,
    Answer,
    Claim,
    Decision,
    Found,
    IllegalTransition,
    Inconclusive,
    KnownRefund,
    NotFound,
    PaymentFacts,
    PaymentStatus,
    RefundStatus,
    ReviewReason,
    answer_of,
    claim_of,
    decide_creation,
    decide_refund,
    interpret,
    match_refunds,
    move,
    next_refund_poll,
)
from tillgate.wire.dialects import REFERENCE, DisputeStatus, TransactionStatus
from tillgate.wire.messages import (
    CreatedPayment,
    Refunded,
    ReportedDispute,
    ReportedRefund,
    Transaction,
)


def decide(facts: PaymentFacts, answer: Answer) -> Decision:
    return interpret(facts, (), answer)


NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=3)
FACTS = PaymentFacts(
    reference="100017-7Q2MZK4RXW3DA",
    currency="USD",
    amount=Decimal("12.50"),
    status=PaymentStatus.PENDING,
    expires_at=NOW + timedelta(hours=2),
    transaction_no="3001",
)
PAID = Transaction(
    reference=FACTS.reference,
    status=TransactionStatus.PAID,
    status_text="success",
    transaction_no="3001",
    amount=Decimal("12.50"),
    currency="USD",
    settle_currency="USD",
    raw={},
)


def said(word: str, **changes: object) -> Transaction:
    return replace(PAID, status=REFERENCE.status(word), status_text=word, **changes)  # type: ignore[arg-type]


def found(transaction: Transaction, asked_at: datetime = NOW) -> Found:
    return Found(transaction=transaction, asked_at=asked_at)


# Knowledge and answers, small enough that every combination is met.
amounts = st.sampled_from([Decimal("12.50"), Decimal("12.49"), Decimal("0.01"), None])
currencies = st.sampled_from(["USD", "usd", "CNY", None])
transaction_numbers = st.sampled_from(["3001", "3002", None])
words = st.sampled_from(
    [
        "success",
        "pending",
        "init",
        "failed",
        "closed",
        "expired",
        "refunded",
        "SUCCESS",
        "paid",
        "?",
    ],
)
moments = st.sampled_from(
    [NOW, FACTS.expires_at - timedelta(microseconds=1), FACTS.expires_at, LATER],
)
transactions = st.builds(
    lambda word, **rest: Transaction(
        status=REFERENCE.status(word),
        status_text=word,
        raw={},
        **rest,
    ),
    words,
    reference=st.sampled_from([FACTS.reference, "OTHER"]),
    transaction_no=transaction_numbers,
    amount=amounts,
    currency=currencies,
    settle_currency=currencies,
)
facts = st.builds(
    PaymentFacts,
    reference=st.just(FACTS.reference),
    amount=st.just(FACTS.amount),
    status=st.sampled_from(PaymentStatus),
    expires_at=st.just(FACTS.expires_at),
    transaction_no=transaction_numbers,
)
answers: st.SearchStrategy[Answer] = st.one_of(
    st.builds(Found, transaction=transactions, asked_at=moments),
    st.builds(NotFound, asked_at=moments),
    st.builds(
        Inconclusive,
        detail=st.just("HTTP 503"),
        review=st.sampled_from([None, ReviewReason.WRONG_CREDENTIALS]),
    ),
)


@given(facts, answers)
def test_i1_paid_only_when_everything_agrees(known: PaymentFacts, answer: Answer) -> None:
    decision = decide(known, answer)
    if decision.status is PaymentStatus.PAID and known.status is not PaymentStatus.PAID:
        assert isinstance(answer, Found)
        heard = answer.transaction
        assert heard.status_text == "success"
        assert (heard.reference, heard.amount, heard.currency, heard.settle_currency) == (
            known.reference,
            known.amount,
            "USD",
            "USD",
        )
        assert heard.transaction_no
        assert known.transaction_no in (None, heard.transaction_no)


@given(facts, answers)
def test_i2_paid_answer_is_never_dropped(
    known: PaymentFacts,
    answer: Answer,
) -> None:
    """A paid answer is either applied or opens a review."""
    decision = decide(known, answer)
    if isinstance(answer, Found) and answer.transaction.status is TransactionStatus.PAID:
        assert decision.status is PaymentStatus.PAID or decision.review is not None


@given(facts, answers)
def test_i9_statuses_only_move_along_the_table(known: PaymentFacts, answer: Answer) -> None:
    new = decide(known, answer).status
    assert new is known.status or new in PAYMENT_TRANSITIONS[known.status]


@given(facts, answers)
def test_i9_no_news_moves_nothing(known: PaymentFacts, answer: Answer) -> None:
    decision = decide(known, answer)
    if isinstance(answer, Inconclusive) or not decision.is_conclusive:
        assert (decision.status, decision.transaction_no) == (known.status, known.transaction_no)


@given(facts, st.lists(answers, max_size=6))
def test_i9_paid_never_moves_back_whatever_follows(
    known: PaymentFacts,
    heard: list[Answer],
) -> None:
    now = replace(known, status=PaymentStatus.PAID)
    for answer in heard:
        decision = decide(now, answer)
        assert decision.status is PaymentStatus.PAID
        now = replace(now, status=decision.status, transaction_no=decision.transaction_no)


@given(facts, answers)
def test_a_known_transaction_number_is_never_replaced(known: PaymentFacts, answer: Answer) -> None:
    if known.transaction_no:
        assert decide(known, answer).transaction_no == known.transaction_no


@given(facts, answers)
def test_repeated_answer_changes_nothing(
    known: PaymentFacts,
    answer: Answer,
) -> None:
    first = decide(known, answer)
    again = decide(replace(known, status=first.status, transaction_no=first.transaction_no), answer)
    assert (again.status, again.transaction_no) == (first.status, first.transaction_no)


@given(facts, answers)
def test_expiry_needs_answer_after_deadline(
    known: PaymentFacts,
    answer: Answer,
) -> None:
    """Only an answer given after the time to pay makes a payment expire."""
    decision = decide(known, answer)
    if decision.status is PaymentStatus.EXPIRED and known.status is not PaymentStatus.EXPIRED:
        assert isinstance(answer, Found | NotFound)
        assert answer.asked_at >= known.expires_at


@given(facts, answers)
def test_every_decision_says_why(known: PaymentFacts, answer: Answer) -> None:
    assert decide(known, answer).detail


@pytest.mark.parametrize(
    ("contradiction", "reason"),
    [
        ({"amount": Decimal("12.49")}, ReviewReason.AMOUNT_MISMATCH),
        ({"amount": None}, ReviewReason.AMOUNT_MISSING),
        ({"currency": "CNY"}, ReviewReason.CURRENCY_MISMATCH),
        ({"currency": None}, ReviewReason.CURRENCY_MISMATCH),
        ({"settle_currency": "CNY"}, ReviewReason.CURRENCY_MISMATCH),
        ({"settle_currency": None}, ReviewReason.CURRENCY_MISMATCH),
        ({"transaction_no": "3002"}, ReviewReason.TRANSACTION_NO_MISMATCH),
        ({"transaction_no": None}, ReviewReason.TRANSACTION_NO_MISSING),
        ({"reference": "OTHER"}, ReviewReason.REFERENCE_MISMATCH),
    ],
)
@pytest.mark.parametrize("status", sorted(OPEN_PAYMENT_STATUSES | {PaymentStatus.EXPIRED}))
def test_i1_contradictory_paid_answer_needs_review(
    contradiction: dict[str, object],
    reason: ReviewReason,
    status: PaymentStatus,
) -> None:
    decision = decide(replace(FACTS, status=status), found(said("success", **contradiction)))
    assert (decision.status, decision.review) == (status, reason)


@pytest.mark.parametrize("status", sorted(PaymentStatus))
def test_i9_late_money_is_money(status: PaymentStatus) -> None:
    decision = decide(replace(FACTS, status=status), found(PAID, LATER))
    assert (decision.status, decision.review) == (PaymentStatus.PAID, None)


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("failed", PaymentStatus.FAILED),
        ("reversed", PaymentStatus.CLOSED),
        ("init", PaymentStatus.PENDING),
    ],
)
def test_an_open_payment_follows_the_gateways_word(word: str, status: PaymentStatus) -> None:
    assert decide(replace(FACTS, status=PaymentStatus.CREATED), found(said(word))).status is status


@pytest.mark.parametrize("word", ["failed", "closed", "pending", "refunded"])
def test_contradicted_paid_payment_stays_paid(word: str) -> None:
    """The contradiction opens a review."""
    decision = decide(replace(FACTS, status=PaymentStatus.PAID), found(said(word)))
    assert (decision.status, decision.review) == (
        PaymentStatus.PAID,
        ReviewReason.CHANGED_AFTER_PAID,
    )


@pytest.mark.parametrize("answer", [found(said("pending"), LATER), NotFound(asked_at=LATER)])
def test_nobody_paid_in_time_is_expired(answer: Answer) -> None:
    assert decide(replace(FACTS, transaction_no=None), answer).status is PaymentStatus.EXPIRED


def test_deadline_itself_counts_as_expired() -> None:
    assert decide(FACTS, found(said("pending"), FACTS.expires_at)).status is PaymentStatus.EXPIRED
    assert (
        decide(FACTS, found(said("pending"), FACTS.expires_at - timedelta(microseconds=1))).status
        is PaymentStatus.PENDING
    )


def test_unrecognised_status_waits_until_expiry() -> None:
    """After expiry it opens a review."""
    early, late = (
        decide(FACTS, found(said("settled"))),
        decide(FACTS, found(said("settled"), LATER)),
    )
    assert (early.status, early.review) == (PaymentStatus.PENDING, None)
    assert (late.status, late.review) == (PaymentStatus.PENDING, ReviewReason.UNRECOGNISED_STATUS)


def test_closed_payment_raises_unrecognised_status() -> None:
    decision = decide(replace(FACTS, status=PaymentStatus.CLOSED), found(said("settled")))
    assert decision.review is ReviewReason.UNRECOGNISED_STATUS


@pytest.mark.parametrize(
    "status",
    [PaymentStatus.CREATED, PaymentStatus.PENDING, PaymentStatus.PAID],
)
def test_unknown_own_transaction_closes_nothing(
    status: PaymentStatus,
) -> None:
    """A gateway that denies its own transaction opens a review of that payment."""
    decision = decide(replace(FACTS, status=status), NotFound(asked_at=LATER))
    assert (decision.status, decision.review, decision.transaction_no) == (
        status,
        ReviewReason.PAYMENT_UNKNOWN,
        "3001",
    )


def test_forgotten_refunded_payment_opens_no_review() -> None:
    decision = decide(
        replace(FACTS, status=PaymentStatus.PAID, refunded=FACTS.amount),
        NotFound(asked_at=LATER),
    )
    assert (decision.status, decision.review) == (PaymentStatus.PAID, None)


@pytest.mark.parametrize(
    "status",
    [PaymentStatus.FAILED, PaymentStatus.CLOSED, PaymentStatus.EXPIRED],
)
def test_forgotten_unpaid_payment_is_asked_again(
    status: PaymentStatus,
) -> None:
    """No review is opened for an unpaid payment that the gateway forgot."""
    decision = decide(replace(FACTS, status=status), NotFound(asked_at=LATER))
    assert (decision.status, decision.review, decision.is_conclusive) == (status, None, False)


@pytest.mark.parametrize(
    ("status", "asked_at", "seen", "review"),
    [
        (PaymentStatus.PENDING, LATER, PaymentStatus.EXPIRED, None),
        (PaymentStatus.PENDING, NOW, PaymentStatus.PENDING, ReviewReason.PAYMENT_UNKNOWN),
        (PaymentStatus.EXPIRED, LATER, PaymentStatus.EXPIRED, None),
        (PaymentStatus.PAID, LATER, PaymentStatus.PAID, ReviewReason.PAYMENT_UNKNOWN),
    ],
)
def test_unspecified_behaviour_19_timeouts_are_forgotten(
    status: PaymentStatus,
    asked_at: datetime,
    seen: PaymentStatus,
    review: ReviewReason | None,
) -> None:
    """A dialect may say that its gateway forgets payments that timed out."""
    answer = answer_of(
        errors.OrderNotFound("000022", "order not found", 400),
        asked_at,
        replace(REFERENCE, expired_is_forgotten=True),
    )
    decision = decide(replace(FACTS, status=status), answer)
    assert (decision.status, decision.review, decision.transaction_no) == (seen, review, "3001")
    assert decision.is_conclusive


def test_unspecified_behaviour_19_grace_before_expiry() -> None:
    """A payment forgotten during the grace period opens no review and expires after it."""
    known = replace(FACTS, closes_at=NOW)
    decision = decide(known, NotFound(asked_at=NOW, expired_is_forgotten=True))
    assert (decision.status, decision.review) == (PaymentStatus.PENDING, None)
    early = NotFound(asked_at=NOW - timedelta(seconds=1), expired_is_forgotten=True)
    assert decide(known, early).review is ReviewReason.PAYMENT_UNKNOWN
    assert (
        decide(known, NotFound(asked_at=FACTS.expires_at, expired_is_forgotten=True)).status
        is PaymentStatus.EXPIRED
    )


@pytest.mark.parametrize(
    ("status", "is_last"),
    [(PaymentStatus.PENDING, True), (PaymentStatus.PAID, False), (PaymentStatus.CLOSED, False)],
)
def test_not_found_never_concludes_settled_payment(
    status: PaymentStatus,
    is_last: bool,
) -> None:
    """A not-found answer about a settled payment is not the gateway's last word."""
    assert decide(replace(FACTS, status=status), NotFound(asked_at=LATER)).is_last_word is is_last


def test_wrong_signature_is_inconclusive_and_reported() -> None:
    decision = decide(
        FACTS,
        answer_of(errors.SignatureMismatch("its verifySign is wrong", 200), NOW),
    )
    assert (decision.status, decision.review, decision.is_conclusive) == (
        PaymentStatus.PENDING,
        ReviewReason.SIGNATURE_MISMATCH,
        False,
    )


@pytest.mark.parametrize(
    ("known", "answer", "detail"),
    [
        ({}, found(PAID), "the gateway says that it is paid"),
        ({}, found(said("failed")), "the gateway says 'failed'"),
        ({}, found(said("closed")), "the gateway says 'closed'"),
        ({}, found(said("pending")), "the gateway waits for the shopper"),
        ({}, found(said("pending"), LATER), "the payment page timed out without a payment"),
        ({}, found(said("settled")), "the gateway says 'settled', which is not a status we know"),
        ({"status": PaymentStatus.EXPIRED}, found(said("pending")), "the gateway says 'pending'"),
        (
            {"status": PaymentStatus.PAID},
            found(said("refunded")),
            "it was paid, and now the gateway says 'refunded'",
        ),
        (
            {"status": PaymentStatus.PAID, "refunded": FACTS.amount},
            found(said("refunded")),
            "it was refunded, and the gateway says 'refunded'",
        ),
        (
            {},
            found(replace(PAID, reference="O" * 41)),
            f"the gateway says that it is paid, but the answer is about '{'O' * 40}'",
        ),
        (
            {},
            found(replace(PAID, transaction_no="3002")),
            "the gateway says that it is paid, but the transaction is 3001, and the answer is "
            "about 3002",
        ),
        (
            {},
            found(replace(PAID, transaction_no=None)),
            "the gateway says paid without a transactionNo",
        ),
        (
            {},
            found(replace(PAID, currency="CNY")),
            "the gateway says that it is paid, but the currency is CNY instead of USD",
        ),
        (
            {},
            found(replace(PAID, settle_currency=None)),
            "the gateway says that it is paid, but the settleCurrency is missing instead of USD",
        ),
        ({}, found(replace(PAID, amount=None)), "the gateway says paid without an amount"),
        (
            {},
            found(replace(PAID, amount=None, raw={"amount": ""})),
            "the gateway says paid without an amount",
        ),
        (
            {},
            found(replace(PAID, amount=None, raw={"amount": "12.505" + "0" * 40})),
            f"the gateway says paid, and its amount '12.505{'0' * 34}' is no exact amount",
        ),
        (
            {},
            found(replace(PAID, amount=Decimal("12.49"))),
            "the gateway says that it is paid, but the amount is USD 12.49 instead of USD 12.50",
        ),
        (
            {},
            NotFound(asked_at=NOW),
            "the gateway does not know it, though it gave it transaction 3001",
        ),
        (
            {"transaction_no": None},
            NotFound(asked_at=LATER),
            "the gateway knows no such reference and the time to pay has passed",
        ),
        ({"transaction_no": None}, NotFound(asked_at=NOW), "the gateway knows no such reference"),
        ({}, Inconclusive(detail="time-out"), "time-out"),
    ],
)
def test_decision_tells_person_the_answer(
    known: dict[str, Any],
    answer: Answer,
    detail: str,
) -> None:
    assert decide(replace(FACTS, **known), answer).detail == detail


@pytest.mark.parametrize("word", ["success", "failed", "closed", "pending", "settled"])
@pytest.mark.parametrize("status", sorted(PaymentStatus))
def test_only_sound_answer_teaches_transaction_number(
    word: str,
    status: PaymentStatus,
) -> None:
    known = replace(FACTS, status=status, transaction_no=None)
    assert decide(known, found(said(word))).transaction_no == "3001"
    assert decide(known, found(said(word, reference="OTHER"))).transaction_no is None
    assert (
        decide(
            replace(known, transaction_no="3001"),
            found(said(word, reference="OTHER")),
        ).transaction_no
        == "3001"
    )
    assert decide(replace(known, refunded=known.amount), found(said(word))).transaction_no == "3001"


@pytest.mark.parametrize("word", ["failed", "closed", "pending"])
def test_unpaid_answer_needs_no_payment_details(word: str) -> None:
    """The amount, currency and transaction number may all be missing."""
    answer = found(
        said(word, amount=None, currency=None, settle_currency=None, transaction_no=None),
    )
    decision = decide(FACTS, answer)
    assert (decision.review, decision.is_conclusive) == (None, True)
    assert decision.transaction_no == "3001"


def test_unknown_payment_waits_until_deadline() -> None:
    """A payment the gateway never heard of stays open until its time to pay has passed."""
    known = replace(FACTS, transaction_no=None)
    early, late = (
        decide(known, NotFound(asked_at=NOW)),
        decide(known, NotFound(asked_at=known.expires_at)),
    )
    assert (early.status, early.transaction_no, early.is_conclusive) == (
        PaymentStatus.PENDING,
        None,
        True,
    )
    assert (late.status, late.transaction_no, late.is_conclusive) == (
        PaymentStatus.EXPIRED,
        None,
        True,
    )
    assert (
        decide(replace(known, status=PaymentStatus.CLOSED), NotFound(asked_at=LATER)).status
        is PaymentStatus.CLOSED
    )


@pytest.mark.parametrize(
    "error",
    [
        errors.NotSent("query", "A", "connection refused"),
        errors.OutcomeUnknown("query", "A", "time-out"),
        errors.AnswerNotUnderstood("HTTP 503", 503),
        errors.Refused("000022", "order not found", 200),
        errors.Refused("000010", "bad signature", 400),
        errors.ConfigurationError("token", "***", "is empty"),
    ],
)
def test_other_query_errors_are_inconclusive(error: errors.TillgateError) -> None:
    """Only a not-found error says anything about the payment."""
    assert isinstance(answer_of(error, NOW), Inconclusive)


def test_not_found_is_heard_as_an_answer() -> None:
    assert answer_of(errors.OrderNotFound("000022", "order not found", 400), NOW) == NotFound(
        asked_at=NOW,
    )


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (
            CreatedPayment(
                transaction_no="1",
                payment_url="https://x.example",
                reference="A",
                amount=None,
                currency=None,
                settle_currency=None,
                raw={},
            ),
            PaymentStatus.PENDING,
        ),
        (errors.Refused("000031", "payment method not enabled", 200), PaymentStatus.FAILED),
        (errors.NotSent("pay", "A", "connection refused"), PaymentStatus.FAILED),
        (errors.InvalidRequest("amount", "0", "is not above zero"), PaymentStatus.FAILED),
        (errors.ConfigurationError("token", "***", "is empty"), PaymentStatus.FAILED),
        (errors.OutcomeUnknown("pay", "A", "time-out"), PaymentStatus.CREATED),
        (errors.TillgateError("a plugin's own"), PaymentStatus.CREATED),
    ],
)
def test_creation_fails_only_when_certain(
    outcome: CreatedPayment | errors.TillgateError,
    status: PaymentStatus,
) -> None:
    assert decide_creation(outcome) is status


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (
            Refunded(reference="A", amount=Decimal("1.00"), ret_msg="refund success"),
            RefundStatus.SUCCEEDED,
        ),
        (errors.Refused("000023", "amount too high", 200), RefundStatus.FAILED),
        (errors.NotSent("refund", "A", "connection refused"), RefundStatus.QUEUED),
        (errors.OutcomeUnknown("refund", "A", "time-out"), RefundStatus.UNKNOWN),
        (errors.AnswerNotUnderstood("a page of HTML"), RefundStatus.UNKNOWN),
        (errors.ConfigurationError("token", "***", "is empty"), RefundStatus.QUEUED),
        (errors.InvalidRequest("amount", "0", "is not above zero"), RefundStatus.FAILED),
        (errors.TillgateError("a plugin's own"), RefundStatus.UNKNOWN),
    ],
)
def test_i6_possibly_sent_refund_is_unknown(
    outcome: Refunded | errors.TillgateError,
    status: RefundStatus,
) -> None:
    """A refund that may have been sent does not go back to the queue."""
    assert decide_refund(outcome) is status


def test_every_move_outside_the_tables_raises() -> None:
    for old, new in product(PaymentStatus, PaymentStatus):
        if new is old or new in PAYMENT_TRANSITIONS[old]:
            assert move(PAYMENT_TRANSITIONS, old, new) is new
        else:
            with pytest.raises(IllegalTransition, match=f"from {old} to {new}"):
                move(PAYMENT_TRANSITIONS, old, new)
    for old_refund, new_refund in product(RefundStatus, RefundStatus):
        if new_refund is old_refund or new_refund in REFUND_TRANSITIONS[old_refund]:
            assert move(REFUND_TRANSITIONS, old_refund, new_refund) is new_refund
        else:
            with pytest.raises(IllegalTransition, match=f"from {old_refund} to {new_refund}"):
                move(REFUND_TRANSITIONS, old_refund, new_refund)


def test_i6_unknown_refund_never_sends_again() -> None:
    reached, frontier = set(), {RefundStatus.UNKNOWN}
    while frontier:
        reached |= frontier
        frontier = {new for old in frontier for new in REFUND_TRANSITIONS[old]} - reached
    assert not reached & {RefundStatus.QUEUED, RefundStatus.SENDING}


def test_the_tables_know_every_status() -> None:
    assert set(PAYMENT_TRANSITIONS) == set(PaymentStatus)
    assert set(REFUND_TRANSITIONS) == set(RefundStatus)
    assert lifecycle.PAYMENT_TRANSITIONS[PaymentStatus.PAID] == frozenset()


def test_denied_account_changes_no_status() -> None:
    """A query that denies the account is reported to the owner."""
    decision = decide(FACTS, answer_of(errors.WrongCredentials("000030", "no rights", 400), LATER))
    assert (decision.status, decision.review) == (
        PaymentStatus.PENDING,
        ReviewReason.WRONG_CREDENTIALS,
    )


@pytest.mark.parametrize("code", ["000010", "000080", "999999"])
def test_other_refusal_blames_no_credentials(code: str) -> None:
    decision = decide(FACTS, answer_of(errors.Refused(code, "supplier system error", 400), LATER))
    assert (decision.status, decision.review, decision.is_conclusive) == (
        PaymentStatus.PENDING,
        None,
        False,
    )


def test_fully_refunded_payment_accepts_any_status() -> None:
    """Once we returned all the money, no status from the gateway opens a review."""
    known = replace(FACTS, status=PaymentStatus.PAID, refunded=FACTS.amount)
    assert decide(known, found(said("refunded"))).review is None
    assert (
        decide(replace(known, refunded=Decimal("12.49")), found(said("closed"))).review
        is ReviewReason.CHANGED_AFTER_PAID
    )


def test_partly_refunded_payment_may_read_refunded() -> None:
    known, word = replace(FACTS, status=PaymentStatus.PAID), found(said("refunded"))
    assert decide(known, word).review is ReviewReason.CHANGED_AFTER_PAID
    assert decide(replace(known, refunded=Decimal("2.50")), word).review is None


def test_i1_unseen_refunded_money_is_not_paid() -> None:
    """Money that came and went before we saw it does not make the payment paid."""
    decision = decide(FACTS, found(said("refunded")))
    assert (decision.status, decision.is_in_order) == (FACTS.status, False)


def test_open_payment_poll_schedule() -> None:
    """Polls follow after 5, 15, 30, 60, 120 and 300 seconds, then every ten minutes."""
    expires_at = NOW + timedelta(minutes=20)
    moment, looks = NOW, []
    while moment < expires_at:
        following = lifecycle.next_poll(PaymentStatus.PENDING, NOW, expires_at, moment)
        assert following is not None
        assert following > moment
        moment = following
        looks.append((moment - NOW).total_seconds())
    assert looks == [5, 15, 30, 60, 120, 300, 900, 1200]


@pytest.mark.parametrize(
    "status",
    [PaymentStatus.FAILED, PaymentStatus.CLOSED, PaymentStatus.EXPIRED, PaymentStatus.PAID],
)
def test_settled_payment_is_polled_monthly(
    status: PaymentStatus,
) -> None:
    """Polling goes on for as long as the payment can be disputed."""
    for disputable, months in ((540, 18), (45, 1), (30, 1), (29, 0)):
        moment, looks = NOW, []
        while following := lifecycle.next_poll(
            status,
            NOW,
            NOW,
            moment,
            timedelta(days=disputable),
        ):
            assert following > moment
            moment = following
            looks.append(moment - NOW)
        monthly = [timedelta(days=30 * month) for month in range(1, months + 1)]
        assert looks == [timedelta(hours=1), timedelta(days=1), timedelta(days=7), *monthly]


def test_payments_are_disputable_for_540_days() -> None:
    """A shop may set another period."""
    assert lifecycle.next_poll(
        PaymentStatus.PAID,
        NOW,
        NOW,
        NOW + timedelta(days=539),
    ) == NOW + timedelta(days=540)
    assert lifecycle.next_poll(PaymentStatus.PAID, NOW, NOW, NOW + timedelta(days=540)) is None


def test_forgotten_paid_payment_needs_staff() -> None:
    """This ends 45 days after the time to pay."""
    known = replace(FACTS, status=PaymentStatus.PAID, transaction_no="4711")
    for days, reason in ((44, ReviewReason.PAYMENT_UNKNOWN), (45, None)):
        answer = NotFound(asked_at=known.expires_at + timedelta(days=days))
        decision = decide(known, answer)
        assert (decision.review, decision.is_conclusive) == (reason, reason is not None)


@given(st.sampled_from(PaymentStatus), st.integers(0, 10**7), st.integers(0, 10**7))
def test_next_poll_is_always_in_future(
    status: PaymentStatus,
    expires_after: int,
    elapsed: int,
) -> None:
    now = NOW + timedelta(seconds=elapsed)
    following = lifecycle.next_poll(status, NOW, NOW + timedelta(seconds=expires_after), now)
    assert following is None or following > now


@pytest.mark.parametrize(("since_minutes", "looks"), [(19, 120), (30, 60)])
def test_open_payment_retries_in_two_minutes(
    since_minutes: int,
    looks: int,
) -> None:
    """After an inconclusive answer it is tried again in two minutes, or at its next poll if that is
    sooner.
    """
    since, expires_at = (
        NOW - timedelta(minutes=since_minutes),
        NOW + timedelta(seconds=3600 if looks == 120 else looks),
    )
    for status in OPEN_PAYMENT_STATUSES:
        assert lifecycle.next_retry(status, since, expires_at, NOW) == NOW + timedelta(
            seconds=looks,
        )


def test_overdue_payment_retries_before_polling() -> None:
    """It is tried again in two minutes and polled in five."""
    arguments = (PaymentStatus.PENDING, NOW - timedelta(hours=1), NOW, NOW)
    assert lifecycle.next_poll(*arguments) == NOW + timedelta(minutes=5)
    assert lifecycle.next_retry(*arguments) == NOW + timedelta(minutes=2)


@pytest.mark.parametrize(
    ("overdue", "pause"),
    [
        ({"minutes": 100}, {"minutes": 5}),
        ({"days": 1}, {"minutes": 72}),
        ({"days": 100}, {"days": 5}),
    ],
)
def test_unsettled_payment_is_polled_less_often(
    overdue: dict[str, int],
    pause: dict[str, int],
) -> None:
    """The pauses between polls grow, while retries stay at two minutes."""
    now = NOW + timedelta(**overdue)
    assert lifecycle.next_poll(
        PaymentStatus.PENDING,
        NOW - timedelta(hours=1),
        NOW,
        now,
    ) == now + timedelta(**pause)
    assert lifecycle.next_retry(
        PaymentStatus.PENDING,
        NOW - timedelta(hours=1),
        NOW,
        now,
    ) == now + timedelta(minutes=2)


def test_polls_are_at_least_second_apart() -> None:
    now = NOW + timedelta(seconds=299.5)
    assert lifecycle.next_poll(
        PaymentStatus.PENDING,
        NOW,
        NOW + timedelta(seconds=300),
        now,
    ) == NOW + timedelta(seconds=300)
    almost = NOW + timedelta(seconds=310)
    assert lifecycle.next_poll(
        PaymentStatus.PENDING,
        NOW,
        almost,
        almost - timedelta(seconds=0.25),
    ) == almost + timedelta(seconds=0.75)


@pytest.mark.parametrize(
    ("days", "pause"),
    [
        (0, timedelta(minutes=2)),
        (2, timedelta(days=2) / 20),
        (40, timedelta(days=2)),  # past its last look it is tried on, ever more rarely
    ],
)
def test_settled_payment_retry_slows_with_age(
    days: int,
    pause: timedelta,
) -> None:
    """The next try comes after a twentieth of the time that has passed."""
    now = NOW + timedelta(days=days)
    assert lifecycle.next_retry(PaymentStatus.CLOSED, NOW, NOW, now) == now + pause


def test_settled_payment_retry_precedes_next_poll() -> None:
    """A retry is never later than the next poll."""
    now = NOW + timedelta(days=29, hours=23)
    assert lifecycle.next_retry(PaymentStatus.PAID, NOW, NOW, now) == NOW + timedelta(days=30)


@pytest.mark.parametrize(
    ("status", "after", "is_unanswered"),
    [
        (PaymentStatus.PENDING, timedelta(hours=6), True),
        (PaymentStatus.CREATED, timedelta(hours=7), True),
        (PaymentStatus.PENDING, timedelta(hours=6) - timedelta(microseconds=1), False),
        (PaymentStatus.CLOSED, timedelta(hours=7), False),
    ],
)
def test_payment_is_unanswered_after_six_hours(
    status: PaymentStatus,
    after: timedelta,
    is_unanswered: bool,
) -> None:
    """The six hours count from the end of the time to pay of an open payment."""
    assert lifecycle.is_unanswered(status, NOW, NOW + after) is is_unanswered


@pytest.mark.parametrize(
    ("said_by", "claim"),
    [
        ({"transaction_no": None}, Claim.PAID),
        ({"amount": None}, Claim.PAID),
        ({"amount": Decimal("10.00")}, Claim.PAID),
        ({"amount": Decimal("10.00"), "status": TransactionStatus.PENDING}, Claim.UNPAID),
        ({"transaction_no": "3002", "status": TransactionStatus.FAILED}, Claim.UNPAID),
        ({"status": TransactionStatus.UNRECOGNISED, "status_text": "settling"}, Claim.UNCLEAR),
        (
            {
                "status": TransactionStatus.UNRECOGNISED,
                "status_text": "payed",
                "amount": Decimal("10.00"),
            },
            Claim.UNCLEAR,
        ),
    ],
)
def test_i2_doubt_keeps_gateway_paid_claim(
    said_by: dict[str, Any],
    claim: Claim,
) -> None:
    """A doubtful answer still records whether the gateway calls the payment paid."""
    decision = decide(FACTS, found(replace(said("success"), **said_by), LATER))
    assert decision.review
    assert claim_of(decision.review, decision.facts, reported_paid=decision.reported_paid) is claim


def test_unknown_payment_carries_no_claim() -> None:
    decision = decide(FACTS, NotFound(asked_at=LATER, was_reported_paid=True))
    assert decision.review is ReviewReason.PAYMENT_UNKNOWN
    assert (
        claim_of(decision.review, decision.facts, reported_paid=decision.reported_paid)
        is Claim.NONE
    )
    assert (
        decide(
            replace(FACTS, transaction_no=None),
            NotFound(asked_at=LATER, was_reported_paid=True),
        ).status
        is PaymentStatus.PENDING
    )


def test_i2_unknown_status_is_not_in_order() -> None:
    """This holds even while there is still time to learn more."""
    decision = decide(FACTS, found(said("settling"), NOW))
    assert (decision.review, decision.is_conclusive, decision.is_in_order) == (None, True, False)
    assert decide(FACTS, found(said("pending"), NOW)).is_in_order


def known_refund(pk: int, amount: str, status: str = "unknown", **more: Any) -> KnownRefund:
    return KnownRefund(
        id=pk,
        amount=Decimal(amount),
        status=RefundStatus(status),
        refund_id=f"R-{pk}",
        **more,
    )


def reported_refund(
    amount: str,
    refund_no: str | None = None,
    refund_id: str | None = None,
) -> ReportedRefund:
    return ReportedRefund(amount=Decimal(amount), refund_no=refund_no, refund_id=refund_id)


@pytest.mark.parametrize(
    ("known", "reported", "pairs", "elsewhere"),
    [
        ([], [reported_refund("1.00")], [], 1),
        ([known_refund(1, "1.00")], [reported_refund("1.00")], [1], 0),
        ([known_refund(1, "1.00")], [reported_refund("1.00"), reported_refund("1.00")], [1], 1),
        ([known_refund(1, "1.00")], [reported_refund("2.00")], [], 1),
        (
            [known_refund(1, "1.00"), known_refund(2, "1.00")],
            [reported_refund("1.00", refund_id="R-2")],
            [2],
            0,
        ),
        (
            [known_refund(1, "1.00"), known_refund(2, "1.00", refund_no="77")],
            [reported_refund("1.00", "77")],
            [2],
            0,
        ),
        # another system's refund of the same amount
        (
            [known_refund(1, "1.00")],
            [reported_refund("1.00", refund_id="SHOP-2")],
            [],
            1,
        ),
        # it has not left yet
        (
            [known_refund(1, "1.00", "queued")],
            [reported_refund("1.00")],
            [],
            1,
        ),
        # it has left after all
        (
            [known_refund(1, "1.00", "queued")],
            [reported_refund("1.00", refund_id="R-1")],
            [1],
            0,
        ),
        ([known_refund(1, "1.00", "failed")], [reported_refund("1.00")], [], 1),
        ([known_refund(1, "1.00", "failed")], [reported_refund("1.00", refund_id="R-1")], [1], 0),
        (
            [known_refund(1, "1.00", "succeeded", external=True)],
            [reported_refund("1.00", refund_id="SHOP-2")],
            [1],
            0,
        ),
    ],
)
def test_listed_refund_is_ours_or_external(
    known: list[KnownRefund],
    reported: list[ReportedRefund],
    pairs: list[int],
    elsewhere: int,
) -> None:
    """Each refund in the gateway's list is matched to ours or was made elsewhere."""
    found_pairs, rest = match_refunds(known, reported)
    assert ([here.id for here, _ in found_pairs], len(rest)) == (pairs, elsewhere)


def test_unsettled_refund_polling_slows_down() -> None:
    """It is asked about often at first and then twice a day."""
    moment, pauses = NOW, []
    for _ in range(8):
        due = next_refund_poll(NOW, moment)
        assert due is not None
        pauses.append((due - moment) / timedelta(minutes=1))
        moment = due
    assert pauses == [1, 4, 25, 30, 120, 180, 720, 720]
    assert next_refund_poll(NOW, NOW + timedelta(days=90)) is None


# Money on its way, and disputes -------------------------------------------------------------------

PROCESSING = replace(PAID, status=TransactionStatus.PROCESSING, status_text="complete, processing")


@pytest.mark.parametrize("asked_at", [NOW, LATER, LATER + timedelta(days=10)])
def test_late_payment_in_transit_stays_open(
    asked_at: datetime,
) -> None:
    """A payment whose money is on its way does not expire."""
    decision = decide(FACTS, found(PROCESSING, asked_at))
    assert (decision.status, decision.is_processing, decision.review) == (
        PaymentStatus.PENDING,
        True,
        None,
    )


@pytest.mark.parametrize("end", [TransactionStatus.PAID, TransactionStatus.FAILED])
def test_money_in_transit_arrives_or_fails(end: TransactionStatus) -> None:
    decision = decide(
        FACTS,
        found(replace(PAID, status=end, status_text=end), LATER + timedelta(days=5)),
    )
    assert (decision.status, decision.is_processing) == (PaymentStatus(end), False)


@pytest.mark.parametrize(
    "odd",
    [
        found(replace(PROCESSING, status=TransactionStatus.UNRECOGNISED, status_text="who knows")),
        found(replace(PROCESSING, amount=Decimal("12.49"))),
        found(replace(PROCESSING, transaction_no="another")),
        NotFound(asked_at=LATER),
    ],
    ids=["unknown word", "other amount", "other number", "not found"],
)
def test_odd_answer_leaves_money_in_transit(odd: Answer) -> None:
    """Fields that it leaves out stay as they were, so the time to pay does not run on."""
    facts = replace(FACTS, transaction_no="3001", is_processing=True)
    decision = decide(facts, odd)
    assert (decision.status, decision.is_processing) == (PaymentStatus.PENDING, True)
    assert decide(replace(facts, is_processing=False), odd).is_processing is False


def test_i9_money_in_transit_keeps_paid_status() -> None:
    decision = decide(replace(FACTS, status=PaymentStatus.PAID), found(PROCESSING))
    assert (decision.status, decision.review) == (
        PaymentStatus.PAID,
        ReviewReason.CHANGED_AFTER_PAID,
    )


def dispute(status: DisputeStatus, amount: str = "12.50", **changes: Any) -> ReportedDispute:
    return ReportedDispute(amount=Decimal(amount), status=status, dispute_no="D-1", **changes)


@pytest.mark.parametrize("status", [PaymentStatus.PENDING, PaymentStatus.PAID])
def test_review_at_gateway_opens_review_stays_paid(status: PaymentStatus) -> None:
    """Further answers are awaited. A dispute is more urgent."""
    reviewed = replace(PAID, manual_review="rule")
    decision = decide(replace(FACTS, status=status), found(reviewed))
    assert (decision.status, decision.review) == (PaymentStatus.PAID, ReviewReason.MANUAL_REVIEW)
    assert decision.facts == {"found": "rule"}
    assert not decision.is_last_word
    both = replace(reviewed, disputes=(dispute(DisputeStatus.OPEN, "10.00"),))
    assert decide(FACTS, found(both)).review is ReviewReason.DISPUTED


@pytest.mark.parametrize("status", [PaymentStatus.PENDING, PaymentStatus.PAID])
def test_open_dispute_opens_review_stays_paid(
    status: PaymentStatus,
) -> None:
    """The review shows the disputed amount and the deadline; the payment stays paid."""
    disputed = replace(PAID, disputes=(dispute(DisputeStatus.OPEN, "10.00", respond_by=NOW),))
    decision = decide(replace(FACTS, status=status), found(disputed))
    assert (decision.status, decision.review) == (PaymentStatus.PAID, ReviewReason.DISPUTED)
    assert decision.facts == {
        "case": "deadline",
        "amount": "10.00",
        "currency": "USD",
        "dispute_no": "D-1",
        "respond_by": "2026-11-21 12:00 UTC",
    }


@pytest.mark.parametrize(
    ("status", "refunded", "case"),
    [
        (DisputeStatus.OPEN, "0", "open"),
        (DisputeStatus.OPEN, "12.50", "open"),
        (DisputeStatus.LOST, "0", "lost"),
        (DisputeStatus.LOST, "12.50", None),
        (DisputeStatus.WON, "0", None),
    ],
)
def test_dispute_needs_person_until_settled(
    status: DisputeStatus,
    refunded: str,
    case: str | None,
) -> None:
    """It is settled once it is won or its loss is in the ledger."""
    known = replace(FACTS, status=PaymentStatus.PAID, refunded=Decimal(refunded))
    decision = decide(known, found(replace(PAID, disputes=(dispute(status),))))
    assert (decision.review, decision.facts.get("case")) == (
        ReviewReason.DISPUTED if case else None,
        case,
    )


def test_most_urgent_dispute_is_shown() -> None:
    several = tuple(
        dispute(DisputeStatus.OPEN, str(amount), respond_by=NOW + timedelta(days=days))
        for amount, days in (("1.00", 9), ("2.00", 3))
    )
    decision = decide(
        replace(FACTS, status=PaymentStatus.PAID),
        found(replace(PAID, disputes=(dispute(DisputeStatus.WON), *several))),
    )
    assert decision.facts["amount"] == "2.00"


@pytest.mark.parametrize(("in_books", "case"), [("6.00", "lost"), ("10.00", None)])
def test_earlier_refund_never_hides_dispute_loss(
    in_books: str,
    case: str | None,
) -> None:
    refunds = (ReportedRefund(amount=Decimal("6.00")),)
    lost = replace(PAID, disputes=(dispute(DisputeStatus.LOST, "4.00"),), refunds=refunds)
    decision = decide(
        replace(FACTS, status=PaymentStatus.PAID, refunded=Decimal(in_books)),
        found(lost),
    )
    assert decision.facts.get("case") == case
