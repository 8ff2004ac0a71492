"""The ledger's texts about a difference, word for word: our belief, the other side's answer, and
the remedy.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tillgate.django.accounting.differences import (
    Difference,
    DifferenceKind,
    OrderLedger,
    compare_with_gateway,
    compare_with_shop,
    duplicates,
    examine,
    is_held_as_paid,
)
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review
from tillgate.django.payments.reconciling import facts_of
from tillgate.hooks import OrderDescription
from tillgate.lifecycle import Answer, Found, Inconclusive, NotFound, ReviewReason
from tillgate.wire.dialects import REFERENCE
from tillgate.wire.messages import Transaction

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ASK = "“Poll now” in the admin"
SETTLE = "settle it under “needs review” in the admin"
TELL_US = (
    "no run of the software does this: see which row was changed by hand, or tell "
    "Tillgate's authors"
)
SHOWN = "paid, USD 12.50, transaction 3001"
RAISED = "2026-11-21 06:00:00 CST"
"""Noon in Chicago, where Django has its clocks by default."""


def order(pk: int = 1, **fields: Any) -> Order:
    return Order(**{"pk": pk, "plugin": "shop", "key": str(pk), "created_at": NOW, **fields})


def payment(pk: int = 1, of: Order | None = None, **fields: Any) -> Payment:
    known = {
        "reference": f"S{pk}",
        "amount": Decimal("12.50"),
        "currency": "USD",
        "status": "paid",
        "transaction_no": "3001",
        "account": "default",
    }
    times = {
        "created_at": NOW,
        "status_since": NOW,
        "expires_at": NOW + timedelta(hours=2),
        "next_poll_at": NOW + timedelta(hours=1),
    }
    return Payment(**{"pk": pk, "order": of or order(), **known, **times, **fields})


def refund(of: Payment, pk: int = 1, **fields: Any) -> Refund:
    return Refund(
        **{
            "pk": pk,
            "payment": of,
            "amount": Decimal("2.50"),
            "status": "succeeded",
            "created_at": NOW,
            **fields,
        },
    )


def told(of: Payment, pk: int = 1, **fields: Any) -> OutboxEvent:
    known = {"kind": "payment-paid", "done_at": NOW, "outcome": "applied", "created_at": NOW}
    return OutboxEvent(**{"pk": pk, "order": of.order, "payment": of, **known, **fields})


def review(**fields: Any) -> Review:
    detail = {"facts": {"detail": fields.pop("message")}} if "message" in fields else {}
    return Review(**{"opened_at": NOW, **detail, **fields})


def ledger(*payments: Payment, paid_by: Payment | None = None, **rows: Any) -> OrderLedger:
    whole = payments[0].order if payments else order()
    whole.paid_by = paid_by
    events: dict[Any, str] = {one: f"payment.{one.status}" for one in payments}
    events |= {one: f"refund.{one.status}" for one in rows.get("refunds", ())}
    events |= rows.pop("last_events", {})
    given = {"payments": payments, "refunds": (), "outbox_events": (), "reviews": (), **rows}
    return OrderLedger(order=whole, last_events=events, **given)


def said(word: str = "success", **changes: Any) -> Answer:
    known = {
        "transaction_no": "3001",
        "amount": Decimal("12.50"),
        "currency": "USD",
        "settle_currency": "USD",
    }
    transaction = Transaction(
        **{
            "reference": "S1",
            "status": REFERENCE.status(word),
            "status_text": word,
            "raw": {},
            **known,
            **changes,
        },
    )
    return Found(transaction=transaction, asked_at=NOW)


def compared(one: Payment, answer: Answer, *reviews: Review) -> Difference | None:
    return compare_with_gateway(one, facts_of(one, Decimal(0)), answer, reviews)


def spoken(difference: Difference | None) -> tuple[str, ...] | None:
    return (
        (difference.here, difference.there, difference.remedy, difference.told)
        if difference
        else None
    )


@pytest.mark.parametrize(
    ("fields", "answer", "kind", "words"),
    [
        (
            {"status": "pending", "transaction_no": None},
            said(),
            "paid-there",
            (
                "pending, USD 12.50",
                "the gateway says 'success', USD 12.50, transaction 3001",
                f"{ASK}; the worker looks next at 2026-11-21 07:00:00 CST",
                "",
            ),
        ),
        (
            {"status": "closed", "next_poll_at": None},
            said(),
            "paid-there",
            (
                "closed, USD 12.50, transaction 3001",
                "the gateway says 'success', USD 12.50, transaction 3001",
                f"{ASK}; the worker does not look any more",
                "",
            ),
        ),
        (
            {"status": "pending"},
            said("failed", transaction_no=None, amount=None, currency=None, settle_currency=None),
            "open-here",
            (
                "pending, USD 12.50, transaction 3001",
                "the gateway says 'failed', no currency without an amount, no transactionNo",
                f"{ASK}; the worker looks next at 2026-11-21 07:00:00 CST",
                "",
            ),
        ),
        (
            {"status": "pending"},
            said(settle_currency="EUR"),
            "currency-mismatch",
            (
                "pending, USD 12.50, transaction 3001",
                "the gateway says 'success', USD 12.50, settled in EUR, transaction 3001",
                f"{ASK}: that puts it under “needs review”",
                "",
            ),
        ),
        (
            {},
            said(settle_currency=None),
            "currency-mismatch",
            (
                SHOWN,
                "the gateway says 'success', USD 12.50, settled in nothing, transaction 3001",
                f"{ASK}: that puts it under “needs review”",
                "",
            ),
        ),
        (
            {},
            NotFound(asked_at=NOW),
            "unknown-there",
            (
                SHOWN,
                "the gateway knows no such reference",
                "run `manage.py tillgate doctor`: is it still the same merchant? A gateway may "
                "also forget old payments",
                "",
            ),
        ),
    ],
)
def test_what_the_gateway_says_otherwise(
    fields: dict[str, Any],
    answer: Answer,
    kind: str,
    words: tuple[str, ...],
) -> None:
    found = compared(payment(**fields), answer)
    assert found
    assert (found.kind, found.reference, found.order) == (kind, "S1", "shop:1")
    assert spoken(found) == words


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({}, said()),
        ({"status": "pending"}, said("pending")),
        ({"status": "created", "transaction_no": None}, NotFound(asked_at=NOW)),
        ({"status": "created", "transaction_no": None}, said("pending")),
        ({"status": "failed"}, said("failed")),
        ({"status": "closed"}, said("pending")),
        ({"status": "failed", "transaction_no": None}, NotFound(asked_at=NOW)),
        ({}, Inconclusive(detail="time-out", review=ReviewReason.WRONG_CREDENTIALS)),
    ],
)
def test_agreeing_or_inconclusive_answer_is_fine(
    fields: dict[str, Any],
    answer: Answer,
) -> None:
    """An answer that agrees or proves nothing is no difference."""
    assert compared(payment(**fields), answer) is None


@pytest.mark.parametrize(
    ("status", "number"),
    [("pending", None), ("paid", None), ("closed", "3001"), ("created", "3001")],
)
def test_created_payment_must_be_known_there(status: str, number: str | None) -> None:
    """The gateway must know every payment that it has created."""
    found = compared(payment(status=status, transaction_no=number), NotFound(asked_at=NOW))
    assert found
    assert found.kind is DifferenceKind.UNKNOWN_THERE


def test_reported_paid_payment_must_be_known() -> None:
    """The gateway must know it even if its creation is uncertain."""
    one, matter = (
        payment(status="created", transaction_no=None),
        {"reason": "transaction-no-missing", "reported_paid": True},
    )
    found = compared(one, NotFound(asked_at=NOW), review(**matter))
    assert found
    assert found.kind is DifferenceKind.UNKNOWN_THERE
    assert (
        compared(
            one,
            NotFound(asked_at=NOW),
            review(**matter, resolved_at=NOW, resolved_by="ann", resolution="it was not"),
        )
        is None
    )


def test_difference_shows_review_and_remedy() -> None:
    """It names the side that knows of it and the steps that are left."""
    one, answer = payment(), said(amount=Decimal("12.49"))
    open_one = review(reason="amount-mismatch")
    resolved = review(
        reason="amount-mismatch",
        resolved_at=NOW,
        resolved_by="ann",
        resolution="it is fine",
    )
    by_itself = review(
        reason="amount-mismatch",
        resolved_at=NOW,
        resolved_by="tillgate",
        resolution="over",
    )
    here_there = (SHOWN, "the gateway says 'success', USD 12.49, transaction 3001")
    put = f"{ASK}: that puts it under “needs review”"
    resolves = "ann resolved it: it is fine"
    again = f"nothing, if that still holds; otherwise: {put}"
    for reviews, remedy, knows in (
        ([], put, ""),
        ([open_one], SETTLE, f"needs review since {RAISED}"),
        ([resolved, open_one], SETTLE, f"needs review since {RAISED}"),
        ([open_one, resolved], SETTLE, f"needs review since {RAISED}"),
        ([resolved], again, resolves),
        ([resolved, by_itself], again, resolves),
        ([by_itself, resolved], again, resolves),
        ([by_itself], put, ""),
        ([review(reason="amount-missing")], put, ""),
    ):
        assert spoken(compared(one, answer, *reviews)) == (*here_there, remedy, knows)


def test_unknown_payment_matches_its_review() -> None:
    """The review payment-unknown covers a payment that the gateway does not know."""
    found = compared(payment(), NotFound(asked_at=NOW), review(reason="payment-unknown"))
    assert found
    assert (found.told, found.remedy) == (f"needs review since {RAISED}", SETTLE)


def test_silence_19_forgetting_is_no_difference() -> None:
    """A dialect may say that the gateway forgets expired payments."""
    one = payment(status="expired")
    after = NotFound(asked_at=one.expires_at, expired_is_forgotten=True)
    assert compared(one, after) is None
    assert compared(one, NotFound(asked_at=one.expires_at))


# The shop.


def test_order_stays_paid_until_fully_refunded() -> None:
    one, other = payment(), payment(2)
    assert not is_held_as_paid(ledger(one))
    assert is_held_as_paid(ledger(one, paid_by=one))
    back = [
        refund(one, amount=Decimal("12.49")),
        refund(other, 2, amount=Decimal("12.50")),
        refund(one, 3, status="unknown"),
    ]
    assert is_held_as_paid(ledger(one, paid_by=one, refunds=back))
    assert not is_held_as_paid(
        ledger(one, paid_by=one, refunds=[*back, refund(one, 4, amount=Decimal("0.01"))]),
    )


def test_shops_view_of_a_paid_order() -> None:
    """A shop that does not know the order, or still waits for its money, differs."""
    one = payment()
    paid = ledger(one, paid_by=one)
    unaware, waits = (
        compare_with_shop(paid, None),
        compare_with_shop(
            paid,
            OrderDescription(number="7", currency="USD", amount=Decimal("9.99")),
        ),
    )
    here = f"the order is paid: {SHOWN}"
    assert unaware
    assert waits
    assert (unaware.kind, waits.kind) == (DifferenceKind.SHOP_UNAWARE, DifferenceKind.SHOP_WAITS)
    remedy = "find out in the shop what became of it; the money can be refunded in the admin"
    assert spoken(unaware) == (here, "the shop knows no such order", remedy, "")
    assert spoken(waits) == (
        here,
        "the shop still waits for USD 9.99",
        "find out in the shop who took it back, and mark the order paid",
        "",
    )
    assert (
        compare_with_shop(
            paid,
            OrderDescription(
                number="7",
                currency="USD",
                amount=Decimal("9.99"),
                not_payable_detail="it is paid",
            ),
        )
        is None
    )


def test_cancelled_order_with_held_money_differs() -> None:
    """Only the money counts that no refund takes; a note of staff is named."""
    one = payment()
    cancelled = OrderDescription(
        number="7",
        currency="USD",
        amount=Decimal("12.50"),
        not_payable_detail="it was cancelled",
        is_cancelled=True,
    )
    back = [refund(one), refund(one, 2, status="pending", amount=Decimal("3.00"))]
    found = compare_with_shop(ledger(one, paid_by=one, refunds=back), cancelled)
    assert found
    assert found.kind == ReviewReason.CANCELLED_HELD
    assert spoken(found) == (
        f"the order is paid: {SHOWN}",
        "the shop has cancelled it, and USD 7.00 is still held",
        "refund it, or note in its review why you keep it",
        "",
    )
    kept = review(
        payment=one,
        reason="cancelled-held",
        resolved_at=NOW,
        resolved_by="ann",
        resolution="for the work",
    )
    found = compare_with_shop(ledger(one, paid_by=one, refunds=back, reviews=[kept]), cancelled)
    assert found
    assert found.told == "ann resolved it: for the work"
    back.append(refund(one, 3, status="unknown", amount=Decimal("7.00")))
    assert compare_with_shop(ledger(one, paid_by=one, refunds=back), cancelled) is None


# Our own books.


def test_books_in_order_have_no_difference() -> None:
    one = payment()
    assert list(examine(ledger(one, paid_by=one, outbox_events=[told(one)]))) == []
    assert list(examine(ledger(payment(status="pending")))) == []


def found(whole: OrderLedger) -> list[tuple[str, ...]]:
    return [(str(one.kind), one.reference, *(spoken(one) or ())) for one in examine(whole)]


def test_order_paid_by_another_orders_payment() -> None:
    other = payment(2, of=order(2))
    assert found(ledger(payment(status="pending"), paid_by=other)) == [
        (
            "delivered-unpaid",
            "S2",
            "order shop:1 is paid by it",
            "it is a payment of order shop:2",
            TELL_US,
            "",
        ),
    ]


def test_timeline_with_wrong_or_no_status() -> None:
    one = payment(status="pending")
    back = refund(payment())
    for event, there in (
        ("payment.paid", "the last entry of its timeline is payment.paid"),
        ("", "its timeline is empty"),
    ):
        assert found(ledger(one, last_events={one: event})) == [
            ("timeline", "S1", "pending, USD 12.50, transaction 3001", there, TELL_US, ""),
        ]
    paid = back.payment
    in_order: dict[str, Any] = {
        "paid_by": paid,
        "outbox_events": [
            told(paid),
            told(paid, 2, kind="refund-changed", refund=back, data={"status": "succeeded"}),
        ],
    }
    assert found(ledger(paid, refunds=[back], **in_order)) == []
    assert (
        found(ledger(paid, refunds=[back], last_events={back: "refund.external"}, **in_order)) == []
    )
    there = "the last entry of its timeline is refund.sending"
    assert found(
        ledger(paid, refunds=[back], last_events={back: "refund.sending"}, **in_order),
    ) == [("timeline", "S1", "refund of USD 2.50: succeeded", there, TELL_US, "")]


@pytest.mark.parametrize(
    ("is_payer", "is_applied", "kind", "here", "there"),
    [
        (
            True,
            False,
            "not-delivered",
            f"{SHOWN}, and the order is paid by it",
            "the shop has never applied it",
        ),
        (
            False,
            True,
            "not-recorded",
            f"{SHOWN}, and the order is paid by nothing",
            "the shop has applied its event",
        ),
    ],
)
def test_payment_and_outbox_event_disagree(
    is_payer: bool,
    is_applied: bool,
    kind: str,
    here: str,
    there: str,
) -> None:
    one = payment()
    outbox_events = (
        [told(one)]
        if is_applied
        else [told(one, done_at=None), told(one, 2, outcome="not-payable")]
    )
    assert found(ledger(one, paid_by=one if is_payer else None, outbox_events=outbox_events)) == [
        (kind, "S1", here, there, TELL_US, ""),
    ]


@pytest.mark.parametrize(
    ("is_applied", "there"),
    [(True, "the shop has applied it"), (False, "the order is paid by it")],
)
def test_unpaid_payment_pays_an_order(is_applied: bool, there: str) -> None:
    one = payment(status="failed")
    whole = ledger(
        one,
        paid_by=None if is_applied else one,
        outbox_events=[told(one)] if is_applied else [],
    )
    assert found(whole) == [
        ("delivered-unpaid", "S1", "failed, USD 12.50, transaction 3001", there, TELL_US, ""),
    ]


def test_payment_applied_to_order_paid_otherwise() -> None:
    """The shop applied a paid payment to an order that another payment pays."""
    first, second = payment(), payment(2, of=order())
    whole = ledger(first, second, paid_by=first, outbox_events=[told(first), told(second, 2)])
    assert found(whole) == [
        (
            "not-recorded",
            "S2",
            f"{SHOWN}, and the order is paid by S1",
            "the shop has applied its event",
            TELL_US,
            "",
        ),
    ]


def test_unrelated_outbox_events_prove_no_delivery() -> None:
    """Events about another payment or a refund do not show that the event was delivered."""
    first, second = payment(), payment(2, of=order())
    never = ("not-delivered", "S2", SHOWN, "nothing was ever queued to tell the shop", TELL_US, "")
    assert found(ledger(first, second, paid_by=first, outbox_events=[told(first)])) == [never]
    about_a_refund = told(second, 2, kind="refund-changed", done_at=None, outcome="")
    assert found(
        ledger(first, second, paid_by=first, outbox_events=[told(first), about_a_refund]),
    ) == [never]


def test_paid_payment_that_was_never_told() -> None:
    one = payment()
    assert found(ledger(one)) == [
        ("not-delivered", "S1", SHOWN, "nothing was ever queued to tell the shop", TELL_US, ""),
    ]
    refused = told(one, outcome="not-payable")
    there = "the shop has not applied its event (not-payable), and no person knows"
    shown = (
        "not-shown",
        "S1",
        SHOWN,
        there,
        "refund it in the admin, or settle it in the shop",
        "",
    )
    assert found(ledger(one, outbox_events=[refused])) == [shown]
    assert found(
        ledger(
            one, outbox_events=[refused], reviews=[review(payment=one, reason="amount-missing")]
        ),
    ) == [shown]
    assert found(
        ledger(
            one,
            outbox_events=[refused],
            reviews=[review(payment=payment(2), reason="underpaid")],
        ),
    ) == [shown]
    assert (
        found(
            ledger(one, outbox_events=[refused], reviews=[review(payment=one, reason="underpaid")]),
        )
        == []
    )


def test_an_outbox_event_that_waits() -> None:
    one = payment()
    waits = told(one, done_at=None, outcome="", attempts=0, due_at=None)
    remedy = "repair the shop's code or its network, if it is that; the worker tries again"
    assert found(ledger(one, outbox_events=[waits])) == [
        ("not-delivered", "S1", SHOWN, "the event is not delivered to the shop yet", remedy, ""),
    ]
    failing = told(one, done_at=None, outcome="", attempts=3, due_at=NOW, fault="x" * 201)
    there = f"the shop was not told in 3 attempts: {'x' * 200}"
    assert found(ledger(one, outbox_events=[failing])) == [
        ("not-delivered", "S1", SHOWN, there, f"{remedy} at {RAISED}", ""),
    ]
    knows = review(outbox_event=failing, reason="delivery-failing")
    needs = ("not-delivered", "S1", SHOWN, there, SETTLE, f"needs review since {RAISED}")
    assert found(ledger(one, outbox_events=[failing], reviews=[knows])) == [needs]
    assert found(
        ledger(one, outbox_events=[failing], reviews=[review(payment=one, reason="underpaid")]),
    ) == [needs]


@pytest.mark.parametrize("status", ["queued", "sending", "pending", "unknown", "succeeded"])
def test_i5_refunds_that_exceed_what_was_paid(status: str) -> None:
    one = payment(status="pending")
    back = refund(one, status=status, amount=Decimal("12.50"))
    here = "refunds of USD 12.50: refunded, on their way or of unknown outcome"
    there = "the payment is pending, USD 12.50, transaction 3001"
    assert found(ledger(one, refunds=[back]))[0] == (
        "refunds-exceed",
        "S1",
        here,
        there,
        TELL_US,
        "",
    )
    paid = payment()
    assert "refunds-exceed" not in {
        line[0]
        for line in found(
            ledger(
                paid,
                paid_by=paid,
                outbox_events=[told(paid)],
                refunds=[refund(paid, status=status)],
            ),
        )
    }


def test_i6_a_refund_of_unknown_outcome() -> None:
    one = payment()
    back = refund(one, status="unknown")
    outbox_events = [
        told(one),
        told(one, 2, kind="refund-changed", refund=back, data={"status": "unknown"}),
    ]
    here, there = "refund of USD 2.50: unknown", "the gateway has not said whether it was done"
    office = "look at the gateway's back office"
    assert found(ledger(one, paid_by=one, refunds=[back], outbox_events=outbox_events)) == [
        ("refund-unknown", "S1", here, there, office, ""),
    ]
    for knows, is_it in (
        (review(refund=back, reason="refund-unknown"), True),
        (review(refund=back, reason="underpaid"), False),
        (review(refund=refund(one, 2), reason="refund-unknown"), False),
    ):
        [line] = found(
            ledger(one, paid_by=one, refunds=[back], outbox_events=outbox_events, reviews=[knows]),
        )
        assert (line[-1] == f"needs review since {RAISED}") is is_it


def test_accepted_refund_differs_only_once_late() -> None:
    one = payment()
    back, late = (
        refund(one, status="pending"),
        review(refund=refund(one, status="pending"), reason="refund-late"),
    )
    assert found(ledger(one, paid_by=one, refunds=[back], outbox_events=[told(one)])) == []
    [line] = found(
        ledger(one, paid_by=one, refunds=[back], outbox_events=[told(one)], reviews=[late]),
    )
    assert (line[0], line[-1]) == ("refund-late", f"needs review since {RAISED}")


def test_i5_refused_refund_that_was_made() -> None:
    one = payment()
    back, other = refund(one, status="failed"), refund(one, 2, status="failed")
    outbox_events = [
        told(one),
        *(
            told(one, 2 + it.pk, kind="refund-changed", refund=it, data={"status": "failed"})
            for it in (back, other)
        ),
    ]
    shown = (
        *(
            "refund-contradicted",
            "S1",
            "refund of USD 2.50: failed",
            "the gateway says that it was done",
        ),
        *(SETTLE, f"needs review since {RAISED}"),
    )
    for knows, lines in (
        (review(refund=back, reason="refund-contradicted"), [shown]),
        (review(refund=back, reason="refund-contradicted", resolved_at=NOW, resolved_by="ann"), []),
        (review(refund=back, reason="refund-not-sent"), []),
        (review(refund=refund(one, 3), reason="refund-contradicted"), []),
    ):
        assert (
            found(
                ledger(
                    one,
                    paid_by=one,
                    refunds=[back, other],
                    outbox_events=outbox_events,
                    reviews=[knows],
                ),
            )
            == lines
        )


def test_refund_the_shop_never_heard_of() -> None:
    one = payment()
    back, other = refund(one), refund(one, 2)
    here = "refund of USD 2.50: succeeded"
    never = ("not-delivered", "S1", here, "nothing was ever queued to tell the shop", TELL_US, "")

    def about(**fields: Any) -> list[tuple[str, ...]]:
        outbox_event = told(
            one,
            2,
            kind="refund-changed",
            **{"refund": back, "data": {"status": "succeeded"}, **fields},
        )
        return found(
            ledger(one, paid_by=one, refunds=[back], outbox_events=[told(one), outbox_event]),
        )

    assert about() == []
    assert about(data={"status": "unknown"}) == [never]
    assert about(refund=other) == [never]
    remedy = "repair the shop's code or its network, if it is that; the worker tries again"
    assert about(done_at=None) == [
        ("not-delivered", "S1", here, "the event is not delivered to the shop yet", remedy, ""),
    ]
    queued = refund(one, status="queued")
    assert found(ledger(one, paid_by=one, refunds=[queued], outbox_events=[told(one)])) == []


def test_two_payments_that_one_transaction_pays() -> None:
    difference = duplicates(payment(2), payment(1), [])
    assert (difference.kind, difference.reference) == ("duplicate-transaction-no", "S2")
    here = f"{SHOWN}, as is payment S1 of order shop:1"
    assert spoken(difference) == (
        here,
        "a number stands for one transaction",
        "compare both with the gateway's back office",
        "",
    )
    assert duplicates(payment(2), payment(1), [review()]).told == f"needs review since {RAISED}"


def test_times_shown_as_stored_without_zones() -> None:
    """In a project without time zones, times are shown as they are stored."""
    naive = NOW.replace(tzinfo=None)
    late = payment(status="pending", next_poll_at=naive, transaction_no=None)
    raised = review(reason="changed-after-paid", opened_at=naive)
    assert spoken(compared(late, said())) == (
        "pending, USD 12.50",
        "the gateway says 'success', USD 12.50, transaction 3001",
        f"{ASK}; the worker looks next at 2026-11-21 12:00:00",
        "",
    )
    difference = compared(payment(), said("refunded"), raised)
    assert difference is not None
    assert difference.told == "needs review since 2026-11-21 12:00:00"
