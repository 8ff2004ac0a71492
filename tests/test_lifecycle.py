"""The lifecycle: both tables, and what an answer means. Property tests name the invariant they
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


# What can be known and heard, small enough that every combination is met.
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
def test_i2_a_paid_answer_is_applied_or_raised_never_dropped(
    known: PaymentFacts,
    answer: Answer,
) -> None:
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
def test_hearing_the_same_answer_again_changes_nothing_more(
    known: PaymentFacts,
    answer: Answer,
) -> None:
    first = decide(known, answer)
    again = decide(replace(known, status=first.status, transaction_no=first.transaction_no), answer)
    assert (again.status, again.transaction_no) == (first.status, first.transaction_no)


@given(facts, answers)
def test_expired_needs_an_answer_given_after_the_time_to_pay(
    known: PaymentFacts,
    answer: Answer,
) -> None:
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
def test_i1_a_paid_answer_that_contradicts_is_held_for_a_person(
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
def test_a_paid_payment_that_reads_otherwise_is_raised_and_stays_paid(word: str) -> None:
    decision = decide(replace(FACTS, status=PaymentStatus.PAID), found(said(word)))
    assert (decision.status, decision.review) == (
        PaymentStatus.PAID,
        ReviewReason.CHANGED_AFTER_PAID,
    )


@pytest.mark.parametrize("answer", [found(said("pending"), LATER), NotFound(asked_at=LATER)])
def test_nobody_paid_in_time_is_expired(answer: Answer) -> None:
    assert decide(replace(FACTS, transaction_no=None), answer).status is PaymentStatus.EXPIRED


def test_the_time_to_pay_has_passed_at_the_very_moment_at_which_it_expires() -> None:
    assert decide(FACTS, found(said("pending"), FACTS.expires_at)).status is PaymentStatus.EXPIRED
    assert (
        decide(FACTS, found(said("pending"), FACTS.expires_at - timedelta(microseconds=1))).status
        is PaymentStatus.PENDING
    )


def test_an_unrecognised_status_waits_until_expiry_and_is_raised_after_it() -> None:
    early, late = (
        decide(FACTS, found(said("settled"))),
        decide(FACTS, found(said("settled"), LATER)),
    )
    assert (early.status, early.review) == (PaymentStatus.PENDING, None)
    assert (late.status, late.review) == (PaymentStatus.PENDING, ReviewReason.UNRECOGNISED_STATUS)


def test_an_unrecognised_status_of_a_payment_given_up_is_raised() -> None:
    decision = decide(replace(FACTS, status=PaymentStatus.CLOSED), found(said("settled")))
    assert decision.review is ReviewReason.UNRECOGNISED_STATUS


@pytest.mark.parametrize(
    "status",
    [PaymentStatus.CREATED, PaymentStatus.PENDING, PaymentStatus.PAID],
)
def test_a_gateway_that_does_not_know_its_own_transaction_closes_nothing_and_is_told_of_that_payment(
    status: PaymentStatus,
) -> None:
    decision = decide(replace(FACTS, status=status), NotFound(asked_at=LATER))
    assert (decision.status, decision.review, decision.transaction_no) == (
        status,
        ReviewReason.PAYMENT_UNKNOWN,
        "3001",
    )


def test_a_gateway_that_forgot_what_was_given_back_is_told_to_nobody() -> None:
    decision = decide(
        replace(FACTS, status=PaymentStatus.PAID, refunded=FACTS.amount),
        NotFound(asked_at=LATER),
    )
    assert (decision.status, decision.review) == (PaymentStatus.PAID, None)


@pytest.mark.parametrize(
    "status",
    [PaymentStatus.FAILED, PaymentStatus.CLOSED, PaymentStatus.EXPIRED],
)
def test_a_gateway_that_forgot_what_nobody_paid_is_told_to_nobody_and_asked_again(
    status: PaymentStatus,
) -> None:
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
def test_unspecified_behaviour_19_a_dialect_may_say_that_the_gateway_forgets_what_has_timed_out(
    status: PaymentStatus,
    asked_at: datetime,
    seen: PaymentStatus,
    review: ReviewReason | None,
) -> None:
    answer = answer_of(
        errors.OrderNotFound("000022", "order not found", 400),
        asked_at,
        replace(REFERENCE, expired_is_forgotten=True),
    )
    decision = decide(replace(FACTS, status=status), answer)
    assert (decision.status, decision.review, decision.transaction_no) == (seen, review, "3001")
    assert decision.is_conclusive


def test_unspecified_behaviour_19_what_a_gateway_forgets_while_the_grace_lasts_is_told_to_nobody_and_expires_after_it() -> (
    None
):
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
def test_a_gateway_that_has_forgotten_what_is_settled_has_not_had_the_last_word(
    status: PaymentStatus,
    is_last: bool,
) -> None:
    assert decide(replace(FACTS, status=status), NotFound(asked_at=LATER)).is_last_word is is_last


def test_a_wrongly_signed_answer_is_inconclusive_and_tells_the_owner() -> None:
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
def test_a_decision_says_to_a_person_what_the_answer_was(
    known: dict[str, Any],
    answer: Answer,
    detail: str,
) -> None:
    assert decide(replace(FACTS, **known), answer).detail == detail


@pytest.mark.parametrize("word", ["success", "failed", "closed", "pending", "settled"])
@pytest.mark.parametrize("status", sorted(PaymentStatus))
def test_an_answer_in_order_teaches_the_transaction_number_and_a_doubtful_one_does_not(
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
def test_an_answer_that_nobody_paid_needs_no_amount_currency_or_number(word: str) -> None:
    answer = found(
        said(word, amount=None, currency=None, settle_currency=None, transaction_no=None),
    )
    decision = decide(FACTS, answer)
    assert (decision.review, decision.is_conclusive) == (None, True)
    assert decision.transaction_no == "3001"


def test_a_payment_that_the_gateway_never_heard_of_waits_until_its_time_has_passed() -> None:
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
def test_every_error_of_a_query_but_not_found_is_inconclusive(error: errors.TillgateError) -> None:
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
def test_a_creation_is_failed_only_when_that_is_certain(
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
def test_i6_a_refund_that_may_have_been_sent_is_unknown_not_queued(
    outcome: Refunded | errors.TillgateError,
    status: RefundStatus,
) -> None:
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


def test_i6_no_road_leads_from_unknown_back_to_sending() -> None:
    reached, frontier = set(), {RefundStatus.UNKNOWN}
    while frontier:
        reached |= frontier
        frontier = {new for old in frontier for new in REFUND_TRANSITIONS[old]} - reached
    assert not reached & {RefundStatus.QUEUED, RefundStatus.SENDING}


def test_the_tables_know_every_status() -> None:
    assert set(PAYMENT_TRANSITIONS) == set(PaymentStatus)
    assert set(REFUND_TRANSITIONS) == set(RefundStatus)
    assert lifecycle.PAYMENT_TRANSITIONS[PaymentStatus.PAID] == frozenset()


def test_a_query_that_denies_the_account_tells_the_owner_and_moves_nothing() -> None:
    decision = decide(FACTS, answer_of(errors.WrongCredentials("000030", "no rights", 400), LATER))
    assert (decision.status, decision.review) == (
        PaymentStatus.PENDING,
        ReviewReason.WRONG_CREDENTIALS,
    )


@pytest.mark.parametrize("code", ["000010", "000080", "999999"])
def test_a_query_refused_for_another_reason_blames_no_credentials(code: str) -> None:
    decision = decide(FACTS, answer_of(errors.Refused(code, "supplier system error", 400), LATER))
    assert (decision.status, decision.review, decision.is_conclusive) == (
        PaymentStatus.PENDING,
        None,
        False,
    )


def test_a_payment_we_gave_back_whole_may_be_called_anything() -> None:
    known = replace(FACTS, status=PaymentStatus.PAID, refunded=FACTS.amount)
    assert decide(known, found(said("refunded"))).review is None
    assert (
        decide(replace(known, refunded=Decimal("12.49")), found(said("closed"))).review
        is ReviewReason.CHANGED_AFTER_PAID
    )


def test_a_payment_of_which_a_part_went_back_may_be_called_refunded() -> None:
    known, word = replace(FACTS, status=PaymentStatus.PAID), found(said("refunded"))
    assert decide(known, word).review is ReviewReason.CHANGED_AFTER_PAID
    assert decide(replace(known, refunded=Decimal("2.50")), word).review is None


def test_i1_money_that_came_and_went_unseen_is_not_paid() -> None:
    decision = decide(FACTS, found(said("refunded")))
    assert (decision.status, decision.is_in_order) == (FACTS.status, False)


def test_an_open_payment_is_looked_at_after_5_15_30_60_120_300_seconds_then_every_ten_minutes_until_it_expires() -> (
    None
):
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
def test_a_settled_payment_gets_tail_looks_every_month_while_it_can_be_disputed(
    status: PaymentStatus,
) -> None:
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


def test_a_settled_payment_is_disputable_for_540_days_unless_the_shop_says_otherwise() -> None:
    assert lifecycle.next_poll(
        PaymentStatus.PAID,
        NOW,
        NOW,
        NOW + timedelta(days=539),
    ) == NOW + timedelta(days=540)
    assert lifecycle.next_poll(PaymentStatus.PAID, NOW, NOW, NOW + timedelta(days=540)) is None


def test_a_paid_payment_that_the_gateway_forgets_is_a_case_for_staff_for_45_days() -> None:
    known = replace(FACTS, status=PaymentStatus.PAID, transaction_no="4711")
    for days, reason in ((44, ReviewReason.PAYMENT_UNKNOWN), (45, None)):
        answer = NotFound(asked_at=known.expires_at + timedelta(days=days))
        decision = decide(known, answer)
        assert (decision.review, decision.is_conclusive) == (reason, reason is not None)


@given(st.sampled_from(PaymentStatus), st.integers(0, 10**7), st.integers(0, 10**7))
def test_the_next_look_is_always_in_the_future(
    status: PaymentStatus,
    expires_after: int,
    elapsed: int,
) -> None:
    now = NOW + timedelta(seconds=elapsed)
    following = lifecycle.next_poll(status, NOW, NOW + timedelta(seconds=expires_after), now)
    assert following is None or following > now


@pytest.mark.parametrize(("since_minutes", "looks"), [(19, 120), (30, 60)])
def test_an_open_payment_is_tried_again_after_no_news_in_two_minutes_or_when_it_is_looked_at_sooner(
    since_minutes: int,
    looks: int,
) -> None:
    since, expires_at = (
        NOW - timedelta(minutes=since_minutes),
        NOW + timedelta(seconds=3600 if looks == 120 else looks),
    )
    for status in OPEN_PAYMENT_STATUSES:
        assert lifecycle.next_retry(status, since, expires_at, NOW) == NOW + timedelta(
            seconds=looks,
        )


def test_an_open_payment_whose_time_has_passed_is_tried_again_in_two_minutes_and_looked_at_in_five() -> (
    None
):
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
def test_what_no_answer_settles_is_looked_at_less_and_less_often_and_is_tried_as_soon_as_ever(
    overdue: dict[str, int],
    pause: dict[str, int],
) -> None:
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


def test_a_look_is_never_sooner_than_a_second_after_the_last_one() -> None:
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
def test_a_settled_payment_is_tried_again_after_a_twentieth_of_the_time_since(
    days: int,
    pause: timedelta,
) -> None:
    now = NOW + timedelta(days=days)
    assert lifecycle.next_retry(PaymentStatus.CLOSED, NOW, NOW, now) == now + pause


def test_a_settled_payment_is_tried_no_later_than_it_is_looked_at() -> None:
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
def test_an_open_payment_is_unanswered_six_hours_after_its_time_to_pay(
    status: PaymentStatus,
    after: timedelta,
    is_unanswered: bool,
) -> None:
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
def test_i2_a_doubt_says_whether_the_gateway_calls_the_payment_paid(
    said_by: dict[str, Any],
    claim: Claim,
) -> None:
    decision = decide(FACTS, found(replace(said("success"), **said_by), LATER))
    assert decision.review
    assert claim_of(decision.review, decision.facts, reported_paid=decision.reported_paid) is claim


def test_what_the_gateway_does_not_tell_of_a_payment_claims_nothing() -> None:
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


def test_i2_a_status_that_nobody_knows_is_not_in_order_though_there_is_time_to_learn_more() -> None:
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
def test_a_refund_in_the_gateways_list_is_ours_or_was_made_elsewhere(
    known: list[KnownRefund],
    reported: list[ReportedRefund],
    pairs: list[int],
    elsewhere: int,
) -> None:
    found_pairs, rest = match_refunds(known, reported)
    assert ([here.id for here, _ in found_pairs], len(rest)) == (pairs, elsewhere)


def test_an_unsettled_refund_is_asked_about_often_at_first_and_then_twice_a_day() -> None:
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
def test_a_payment_whose_money_is_on_its_way_stays_open_however_late_it_is(
    asked_at: datetime,
) -> None:
    decision = decide(FACTS, found(PROCESSING, asked_at))
    assert (decision.status, decision.is_processing, decision.review) == (
        PaymentStatus.PENDING,
        True,
        None,
    )


@pytest.mark.parametrize("end", [TransactionStatus.PAID, TransactionStatus.FAILED])
def test_money_on_its_way_arrives_or_fails_days_later(end: TransactionStatus) -> None:
    decision = decide(
        FACTS,
        found(replace(PAID, status=end, status_text=end), LATER + timedelta(days=5)),
    )
    assert (decision.status, decision.is_processing) == (PaymentStatus(end), False)


def test_i9_money_on_its_way_moves_no_paid_payment() -> None:
    decision = decide(replace(FACTS, status=PaymentStatus.PAID), found(PROCESSING))
    assert (decision.status, decision.review) == (
        PaymentStatus.PAID,
        ReviewReason.CHANGED_AFTER_PAID,
    )


def dispute(status: DisputeStatus, amount: str = "12.50", **changes: Any) -> ReportedDispute:
    return ReportedDispute(amount=Decimal(amount), status=status, dispute_no="D-1", **changes)


@pytest.mark.parametrize("status", [PaymentStatus.PENDING, PaymentStatus.PAID])
def test_an_open_dispute_is_a_review_with_its_amount_and_deadline_and_the_payment_is_paid(
    status: PaymentStatus,
) -> None:
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
def test_a_dispute_asks_for_a_person_until_it_is_won_or_its_loss_is_in_the_books(
    status: DisputeStatus,
    refunded: str,
    case: str | None,
) -> None:
    known = replace(FACTS, status=PaymentStatus.PAID, refunded=Decimal(refunded))
    decision = decide(known, found(replace(PAID, disputes=(dispute(status),))))
    assert (decision.review, decision.facts.get("case")) == (
        ReviewReason.DISPUTED if case else None,
        case,
    )


def test_of_several_disputes_the_most_urgent_one_is_shown() -> None:
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
def test_an_earlier_refund_does_not_hide_the_loss_of_a_dispute(
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
