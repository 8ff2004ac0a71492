"""The timeline for clerks, their notes, and the clerk who has a review."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import translation

from tests.django.conftest import World
from tests.shop.test_summaries import DETAILS, known
from tillgate import InvalidRequest, hooks, shop
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review, TimelineEntry
from tillgate.django.refunds import queueing
from tillgate.django.reviews.opening import open_review
from tillgate.django.worker.retention import erase_order
from tillgate.lifecycle import ReviewReason


def texts(world: World, order: Order) -> list[str]:
    return [line.text for line in shop.clerk_timeline(world.shop.plugin, order.key)]


def test_paid_and_refunded_order_reads_plainly(world: World) -> None:
    payment = known(world.paid_payment("12.50"))
    queueing.refund(payment.pk, "5.00", staff="ann")
    open_review(ReviewReason.DISPUTED, {}, "test", payment)
    assert texts(world, payment.order) == [
        "Ordered",
        "Paid USD 12.50 with Visa ending 4242",
        "Refunded USD 5.00 by ann",
        "Needs review: Disputed by the shopper's bank",
    ]


def test_failed_attempts_are_one_line(world: World) -> None:
    order = world.order("12.50")
    for number in (1, 2):
        payment = world.start(order)
        Payment.objects.filter(pk=payment.pk).update(
            status="failed",
            details={"decline_reason": {"code": "lost_card", "text": f"declined {number}"}},
        )
    ours = Payment.objects.latest("pk").order
    assert texts(world, ours) == [
        "Ordered",
        "2 attempts without a payment. The last: Not paid with Alipay: declined 2 (lost_card)",
    ]


def test_open_and_cancelled_order_are_told(world: World) -> None:
    payment = world.start(world.order("12.50"))
    shop.close_order(payment.order.plugin, payment.order.key)
    assert texts(world, payment.order) == [
        "Ordered",
        "The shopper pays USD 12.50 with Alipay",
        "Cancelled by the shop",
    ]


@pytest.mark.parametrize(("answer", "is_told"), [(None, True), ("no mail address", False)])
def test_mail_is_a_line_when_sent(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    answer: str | None,
    *,
    is_told: bool,
) -> None:
    payment = world.paid_payment("12.50")
    plugin, key = payment.order.plugin, payment.order.key
    with transaction.atomic():
        shop.enqueue_remote(plugin, key, "order-paid", payment_id=str(payment.pk))
    real = hooks.call_owner

    def call(owner: str, name: str, **arguments: object) -> object:
        return answer if name == "tillgate_deliver" else real(owner, name, **arguments)

    monkeypatch.setattr(hooks, "call_owner", call)
    shop.deliver_remote(plugin, key)
    assert OutboxEvent.objects.get(kind="remote").done_at is not None
    assert ("Confirmation mailed" in texts(world, payment.order)) is is_told


def test_first_and_newest_lines_stay(world: World) -> None:
    payment = world.paid_payment("12.50")
    for _ in range(8):
        queueing.refund(payment.pk, "1.00", staff="ann")
    found = texts(world, payment.order)
    assert len(found) == 6
    assert found[0] == "Ordered"


def test_lines_are_in_german(world: World) -> None:
    payment = known(world.paid_payment("12.50"), DETAILS)
    with translation.override("de"):
        assert texts(world, payment.order) == [
            "Bestellt",
            "12,50 USD bezahlt mit Visa mit den Endziffern 4242",
        ]


def test_unknown_order_has_no_line(world: World) -> None:
    assert shop.clerk_timeline(world.shop.plugin, "nonsense") == []


# Notes --------------------------------------------------------------------------------------------


def note(world: World, payment: Payment, text: str) -> None:
    shop.add_note(world.shop.plugin, str(payment.pk), text, staff="ann")


def test_note_is_shown_and_kept(world: World) -> None:
    payment = world.paid_payment("12.50")
    note(world, payment, "  Ann rang: <b>send it</b> to ann@shop.example ")
    line = shop.clerk_timeline(world.shop.plugin, payment.order.key)[-1]
    assert (line.text, line.is_note) == ("ann: Ann rang: <b>send it</b> to ***", True)
    entry = TimelineEntry.objects.latest("pk")
    assert (entry.event, entry.actor, entry.payment) == ("payment.noted", "staff:ann", payment)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is empty"), (" \n", "is empty"), ("x" * 10_000, "is longer than 1000 characters")],
)
def test_unusable_note_is_refused(world: World, text: str, said: str) -> None:
    payment = world.paid_payment("12.50")
    with pytest.raises(InvalidRequest, match=said):
        note(world, payment, text)
    assert not TimelineEntry.objects.filter(event="payment.noted").exists()


def test_other_plugins_payment_takes_no_note(world: World) -> None:
    payment = world.paid_payment("12.50")
    with pytest.raises(InvalidRequest, match="is no payment of plugin"):
        shop.add_note("another", str(payment.pk), "hello", staff="ann")


def test_erased_note_leaves_no_line(world: World) -> None:
    payment = world.paid_payment("12.50")
    note(world, payment, "hello")
    erase_order(payment.order.plugin, payment.order.key, "test")
    assert not any("hello" in text for text in texts(world, payment.order))


# Taking a review ----------------------------------------------------------------------------------


@pytest.fixture
def review(world: World) -> Review:
    found = open_review(ReviewReason.DISPUTED, {}, "test", world.paid_payment())
    assert found is not None
    return found


def test_taken_review_shows_who_has_it(world: World, review: Review) -> None:
    shop.take_review(str(review.pk), staff="ann")
    (shown,) = shop.open_reviews(world.shop.plugin)
    assert shown.taken_by == "ann"
    shop.take_review(str(review.pk), staff="", taken_by="ann")
    (shown,) = shop.open_reviews(world.shop.plugin)
    assert shown.taken_by == ""


def test_two_clerks_take_one_review(world: World, review: Review) -> None:
    """The second reads the name of its holder, and may take it over from there."""
    shop.take_review(str(review.pk), staff="ann")
    with pytest.raises(InvalidRequest, match="ann has it"):
        shop.take_review(str(review.pk), staff="bob")
    shop.take_review(str(review.pk), staff="bob", taken_by="ann")
    assert Review.objects.get().taken_by == "bob"


def test_own_second_press_is_no_error(world: World, review: Review) -> None:
    shop.take_review(str(review.pk), staff="ann")
    shop.take_review(str(review.pk), staff="ann")


def test_resolved_review_cannot_be_taken(world: World, review: Review) -> None:
    Review.objects.update(resolved_at=review.opened_at + timedelta(hours=1), resolved_by="bob")
    with pytest.raises(InvalidRequest, match="was resolved by bob"):
        shop.take_review(str(review.pk), staff="ann")


def test_unknown_review_cannot_be_taken(world: World) -> None:
    with pytest.raises(InvalidRequest, match="is the id of no review"):
        shop.take_review("12345", staff="ann")
    assert not Refund.objects.exists()
