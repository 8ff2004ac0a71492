"""A payment that the gateway reports paid with another amount: no shopper pays it again, and staff
can accept it as paid (I1, I4).
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.utils import translation

from tests.django.conftest import World
from tillgate.django import actions, review_text
from tillgate.django.models import Payment, Review, TimelineEntry
from tillgate.django.refunds import queueing
from tillgate.errors import InvalidRequest
from tillgate.lifecycle import ReviewAction


def in_doubt(world: World, total: str = "13.43", times: int = 100) -> tuple[Payment, Review]:
    """Return a payment that the gateway reports paid with a cent more, and its review."""
    payment = world.start(world.order(total))
    world.shopper_pays(payment)
    world.sandbox.control.fault("wrong_amount", occasion="query", times=times)
    world.notification(payment)
    return payment, Review.objects.get(reason="amount-mismatch")


def accept(review: Review) -> actions.Done:
    return actions.take_action(
        review.pk,
        ReviewAction.ACCEPT_AS_PAID,
        staff="ann",
        expected_version=review.version,
    )


def test_staff_can_accept_reported_amount(
    world: World,
) -> None:
    """The payment is paid, and the shop hears of the difference."""
    payment, review = in_doubt(world)
    assert actions.actions_for(review)[0] is ReviewAction.ACCEPT_AS_PAID
    assert accept(review).resolved
    paid = world.fresh(payment)
    assert (paid.status, paid.amount) == ("paid", Decimal("13.44"))
    assert (world.shop.is_paid(payment.order.key), world.reviews()) == (True, ["overpaid"])
    entry = TimelineEntry.objects.get(event="payment.accepted")
    assert (entry.actor, entry.payment) == ("staff:ann", payment)
    assert queueing.refund(payment.pk, "13.44").amount == Decimal("13.44"), (
        "the payment holds what the gateway has"
    )


def test_i5_accepted_amount_limits_refunds(world: World) -> None:
    payment, review = in_doubt(world)
    accept(review)
    with pytest.raises(InvalidRequest, match=r"13\.44"):
        queueing.refund(payment.pk, "13.45")


def test_agreeing_answer_pays_as_usual(world: World) -> None:
    """The gateway agrees by the time staff accept the payment."""
    payment, review = in_doubt(world, times=1)
    assert accept(review).resolved
    assert (world.fresh(payment).status, world.fresh(payment).amount) == ("paid", Decimal("13.43"))
    assert not TimelineEntry.objects.filter(event="payment.accepted").exists()


def test_i1_changed_amount_is_not_accepted(world: World) -> None:
    """Staff can only accept the amount that they have read."""
    payment, review = in_doubt(world)
    Review.objects.update(facts={**review.facts, "found": "13.50"})
    with pytest.raises(InvalidRequest, match=r"13\.50"):
        accept(review)
    assert world.fresh(payment).status == "pending"


def test_unpaid_answer_offers_no_acceptance(world: World) -> None:
    payment = world.start(world.order("13.43"))
    world.sandbox.control.fault("wrong_amount", occasion="query", times=100)
    world.notification(payment)
    review = Review.objects.get(reason="amount-mismatch")
    assert not review.reported_paid
    assert ReviewAction.ACCEPT_AS_PAID not in actions.actions_for(review)


def test_i4_i13_order_in_doubt_shows_no_page(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wording of the review makes no difference."""
    payment, review = in_doubt(world)
    page = world.client.get(world.way_to_pay(payment.order.key)).content.decode()
    monkeypatch.setattr(review_text, "_in_context", lambda *_, **__: "something else entirely")
    assert review.message.endswith("something else entirely.")
    assert payment.payment_url not in page
    assert (
        payment.payment_url
        not in world.client.get(world.way_to_pay(payment.order.key)).content.decode()
    )
    assert world.choose(payment.order.key).status_code == 200, "the shopper is asked first"


def test_review_message_follows_reader_language(world: World) -> None:
    _, review = in_doubt(world)
    with translation.override("de"):
        assert review.message.startswith("Zahlung ")
        assert "13,44 USD statt 13,43 USD" in review.message
    assert "USD 13.44 instead of USD 13.43" in review.message
