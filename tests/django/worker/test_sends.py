"""Before the worker sends a refund that was queued earlier, it asks whether the gateway has made
it.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tillgate import hooks
from tillgate.django.models import OutboxEvent, Payment, Refund, TimelineEntry
from tillgate.django.refunds import queueing
from tillgate.hooks import RefundOutcome, ReportedRefund
from tillgate.testing.world import World


def queued(payment: Payment, amount: str = "2.50") -> Refund:
    """Queue a refund, and let its process die before it can send it."""
    with transaction.atomic():
        refund = queueing.queue_refund(payment.pk, amount)
        transaction.get_connection().run_on_commit.clear()
    return refund


def forget_sending(refund: Refund) -> None:
    """Set a refund back to the moment at which it was queued, as a restored database has it."""
    Refund.objects.filter(pk=refund.pk).update(
        status="queued",
        due_at=timezone.now(),
        answer="",
        refund_no=None,
    )
    TimelineEntry.objects.filter(refund=refund).exclude(event="refund.queued").delete()
    OutboxEvent.objects.filter(refund=refund).delete()


def answering(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Let the gateway's answers to queries have other fields."""
    real = hooks.query
    monkeypatch.setattr(
        hooks,
        "query",
        lambda *given, **more: replace(real(*given, **more), **fields),
    )


def sending_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "refund", lambda *_: pytest.fail("a refund was sent"))


@pytest.mark.parametrize("amount", ["2.50", "12.50"])
def test_i6_version_3_books_forgotten_refund(world: World, amount: str) -> None:
    world.takes("USD")
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, amount)
    forget_sending(refund)
    world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, str(world.refunded_amount(payment))) == ("succeeded", amount)
    assert world.reviews() == []


@pytest.mark.parametrize("outcome", list(RefundOutcome))
def test_i6_listed_refund_is_booked_as_listed(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: RefundOutcome,
) -> None:
    payment = world.paid_payment()
    refund = queued(payment)
    sending_nothing(monkeypatch)
    there = ReportedRefund(
        amount=refund.amount,
        refund_no="88",
        refund_id=refund.refund_id,
        outcome=outcome,
    )
    answering(monkeypatch, refunds=(there,))
    assert world.run_worker().faults == []
    refund.refresh_from_db()
    assert (refund.status, refund.refund_no) == (str(outcome), "88")


@pytest.mark.parametrize("refund_id", [None, "of a lost row"])
def test_i6_unmatched_listed_refund_means_unknown(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    refund_id: str | None,
) -> None:
    """The queued refund may be the one that the gateway lists."""
    refund = queued(world.paid_payment())
    sending_nothing(monkeypatch)
    there = ReportedRefund(
        amount=Decimal("3.00"),
        refund_no="88",
        refund_id=refund_id,
        outcome=RefundOutcome.PENDING,
    )
    answering(monkeypatch, refunds=(there,))
    for _ in range(2):
        assert world.run_worker().faults == []
        world.time.advance(hours=2)
    refund.refresh_from_db()
    assert (refund.status, world.reviews()) == ("unknown", ["refund-unknown"])


def test_i6_word_refunded_without_row_means_unknown(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.sandbox.control.set_options({"word_refunded": "refunded"})
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "12.50")
    forget_sending(refund)
    sending_nothing(monkeypatch)
    for _ in range(2):
        assert world.run_worker().faults == []
        world.time.advance(hours=2)
    refund.refresh_from_db()
    assert (refund.status, str(world.refunded_amount(payment))) == ("unknown", "12.50")
    assert "refund-unknown" in world.reviews()


def test_known_refunds_keep_no_queued_one_waiting(world: World) -> None:
    world.takes("USD")
    payment = world.paid_payment()
    queueing.refund(payment.pk, "2.50")
    refund = queued(payment, "4.00")
    before = world.queries()
    world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, world.queries()) == ("succeeded", before + 1)
    assert str(world.refunded_amount(payment)) == "6.50"
    assert world.reviews() == []


def test_refund_waits_until_the_gateway_answers(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment()
    refund = queued(payment)
    with monkeypatch.context() as away:
        sending_nothing(away)
        world.sandbox.control.fault("lost_request", occasion="query", times=1000)
        world.run_worker()
        refund.refresh_from_db()
        assert refund.status == "queued"
        assert refund.due_at
        assert refund.due_at > timezone.now(), "the pause grows as for one that could not leave"
        assert refund.answer
        world.time.advance(hours=4)
        world.run_worker()
        assert "refund-not-sent" in world.reviews()
    world.sandbox.control.clear_faults()
    world.time.advance(hours=4)
    world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, str(world.refunded_amount(payment))) == ("succeeded", "2.50")
    assert world.reviews() == []


def test_request_queueing_refund_sends_no_query(world: World) -> None:
    payment = world.paid_payment()
    before = world.queries()
    assert queueing.refund(payment.pk, "2.50").status == "succeeded"
    assert world.queries() == before


def test_repeated_key_leaves_queued_refund_to_worker(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A database that went back has the refund queued, and its key is repeated."""
    world.takes("USD")
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "2.50", idempotency_key="k")
    forget_sending(refund)
    with monkeypatch.context() as patch:
        sending_nothing(patch)
        repeated = queueing.refund(payment.pk, "2.50", idempotency_key="k")
        assert (repeated.pk, repeated.status) == (refund.pk, "queued")
    world.run_worker()
    refund.refresh_from_db()
    assert (refund.status, str(world.refunded_amount(payment))) == ("succeeded", "2.50")


def test_refund_of_the_portal_is_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refund without a name of ours has the same amount: both are made."""
    payment = world.paid_payment()
    refund = queued(payment)
    portal = ReportedRefund(
        amount=refund.amount,
        refund_no="88",
        refund_id=None,
        outcome=RefundOutcome.SUCCEEDED,
    )
    with monkeypatch.context() as patch:
        answering(patch, refunds=(portal,))
        world.run_worker()
    refund.refresh_from_db()
    assert refund.status == "succeeded"
    assert refund.refund_no != "88"
    assert [one.refund_no for one in Refund.objects.filter(external=True)] == ["88"]
    assert str(world.refunded_amount(payment)) == "2.50", "the gateway has ours beside the portal's"


def test_list_that_cannot_be_read_sends_nothing(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment()
    refund = queued(payment)
    sending_nothing(monkeypatch)
    answering(monkeypatch, refunds=None, raw={"refundInfo": [{"refundAmount": "?"}]})
    assert world.run_worker().faults == []
    refund.refresh_from_db()
    assert (refund.status, bool(refund.due_at and refund.due_at > timezone.now())) == (
        "queued",
        True,
    )
