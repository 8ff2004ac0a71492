"""Numbers that staff find at the gateway and enter here: that of a payment that no query finds, and
the amount that it was paid with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import QuerySet

from tests.toy_gateway import SECRET, TOY, URL, Toy, ToyPlugin
from tillgate import Account, AnswerNotUnderstood, NotSent, OrderNotFound, Transaction, hooks
from tillgate.django import actions
from tillgate.django.actions import ActionNotPossible
from tillgate.django.models import Payment, Refund, Review
from tillgate.testing.world import World
from tillgate.wire.dialects import TransactionStatus


class ByNumber(ToyPlugin):
    """The toy, which finds a payment by its number alone, and may say other things of it."""

    says: dict[str, Any]
    fails = False

    @hooks.hookimpl(tryfirst=True)
    def tillgate_query(  # type: ignore[override]  # pluggy passes the arguments that a hook names
        self,
        account: Account,
        reference: str,
        transaction_no: str | None,
        deadline_seconds: float | None,
    ) -> Transaction:
        if self.fails:
            raise NotSent("query", reference, "no connection was made")
        if transaction_no is None:
            raise AnswerNotUnderstood("the gateway finds payments by their numbers only")
        named = {one.number: name for name, one in self.toy.payments.items()}
        if transaction_no not in named:
            raise OrderNotFound("unknown", "no such payment", 404)
        found = super().tillgate_query(account, named[transaction_no], deadline_seconds)
        return replace(found, **self.says)


@pytest.fixture
def toy(world: World) -> Iterator[ByNumber]:
    plugin = ByNumber(Toy())
    plugin.says = {}
    hooks.plugin_manager().register(plugin, name="toy")
    world.configure(
        {
            "BASE_URL": URL,
            "MERCHANT_NO": "T-1",
            "TOKEN": SECRET,
            "SANDBOX": False,
            "DIALECT": TOY,
        },
    )
    yield plugin
    hooks.plugin_manager().unregister(plugin)


@pytest.fixture
def lost(world: World, toy: ByNumber) -> Payment:
    """A paid payment whose creation's answer was lost."""
    payment = world.start(world.order("12.50"))
    toy.toy.payments[payment.reference].state = "paid"
    Payment.objects.filter(pk=payment.pk).update(transaction_no=None)
    world.time.advance(hours=30)
    world.run_worker()
    world.time.advance(hours=1)
    world.run_worker()
    return world.fresh(payment)


def unanswered() -> QuerySet[Review]:
    return Review.objects.filter(reason="payment-unanswered")


def enter(number: str) -> actions.Done:
    review = unanswered().get()
    return actions.take_action(review.pk, "enter-number", staff="ann", note=number)


def test_review_has_plugins_reason(lost: Payment) -> None:
    review = unanswered().get()
    assert "the gateway finds payments by their numbers only" in review.message
    assert actions.actions_for(review) == ("poll", "enter-number", "mark-expired")


def test_other_words_of_fault_mail_nothing(world: World, toy: ByNumber, lost: Payment) -> None:
    before = unanswered().values().get()
    toy.fails = True
    world.time.advance(hours=2)
    world.run_worker()
    assert unanswered().values().get() == before


def test_proved_number_settles_payment(world: World, toy: ByNumber, lost: Payment) -> None:
    number = toy.toy.payments[lost.reference].number
    done = enter(f" {number} ")
    payment = world.fresh(lost)
    assert (done.resolved, payment.status, payment.transaction_no) == (True, "paid", number)
    assert "payment-unanswered" not in world.reviews()
    assert world.shop.is_paid(payment.order.key)


def test_number_of_other_payment_is_refused(world: World, toy: ByNumber, lost: Payment) -> None:
    other = world.start(world.order("12.50"))
    toy.toy.payments[other.reference].state = "paid"
    with pytest.raises(ActionNotPossible, match="is the number of another payment"):
        enter(toy.toy.payments[other.reference].number)
    payment = world.fresh(lost)
    assert (payment.is_open, payment.hinted_no) == (True, None)
    assert "payment-unanswered" in world.reviews()


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("", "is no number"),
        ("toy 1", "is no number"),
        ("toy-1\0", "knows no payment"),
        ("x" * 10_000, "is no number"),
        ("toy-999", "knows no payment with the number toy-999"),
        ("' OR 1=1 --", "is no number"),
        ("<b>1</b>", "knows no payment with the number"),
    ],
)
def test_unproved_number_is_refused(world: World, lost: Payment, number: str, said: str) -> None:
    with pytest.raises(ActionNotPossible, match=said):
        enter(number)
    assert world.fresh(lost).hinted_no is None


def test_silent_gateway_proves_no_number(world: World, toy: ByNumber, lost: Payment) -> None:
    toy.fails = True
    with pytest.raises(ActionNotPossible, match="no usable answer about it"):
        enter(toy.toy.payments[lost.reference].number)
    assert world.fresh(lost).hinted_no is None


# Another amount -----------------------------------------------------------------------------------


@pytest.fixture
def short(world: World, toy: ByNumber) -> Review:
    """The review of a payment that was paid with two dollars less."""
    payment = world.start(world.order("12.50"))
    toy.toy.payments[payment.reference].state = "paid"
    toy.says = {"amount": Decimal("10.50")}
    world.come_back(payment)
    return Review.objects.get()


def refund_all(review: Review) -> actions.Done:
    return actions.take_action(
        review.pk,
        "refund-reported",
        staff="ann",
        expected_version=review.version,
    )


def test_wrong_amount_is_refunded_at_once(world: World, toy: ByNumber, short: Review) -> None:
    assert refund_all(short).resolved
    refund = Refund.objects.get()
    assert (refund.status, refund.amount, refund.requested_by) == (
        "succeeded",
        Decimal("10.50"),
        "ann",
    )
    assert not world.shop.is_paid(short.order.key)  # type: ignore[union-attr]
    assert world.reviews() == []


def test_second_press_refunds_nothing_more(world: World, toy: ByNumber, short: Review) -> None:
    refund_all(short)
    done = refund_all(short)
    assert (done.resolved, done.refund, Refund.objects.count()) == (True, None, 1)


def test_unpaid_other_amount_offers_no_refund(world: World, toy: ByNumber) -> None:
    payment = world.start(world.order("12.50"))
    toy.says = {"amount": Decimal("10.50"), "status": TransactionStatus.PENDING}
    world.come_back(payment)
    assert actions.actions_for(Review.objects.get()) == ("poll", "mark-expired")
