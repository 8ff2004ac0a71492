"""What a person can do about what needs one: each act's outcome in words, and what refuses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tests.django.conftest import World
from tests.django.gateway import queue
from tests.smallest_shop.models import ShopOrder
from tillgate import InvalidRequest, NotSent, OrderNotFound, OutcomeUnknown, Refunded, hooks
from tillgate.django import actions
from tillgate.django.actions import ActionNotPossible
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review, TimelineEntry
from tillgate.django.orders import locking, registering
from tillgate.django.outbox import attempts, delivering
from tillgate.django.outbox.remote import enqueue_remote
from tillgate.django.payments import by_staff, reconciling
from tillgate.django.refunds import limits, queueing
from tillgate.django.refunds.external import record_external_refund
from tillgate.django.refunds.limits import RefundNotPossible
from tillgate.django.reviews import closing
from tillgate.django.reviews.opening import open_review
from tillgate.hooks import RefundOutcome
from tillgate.lifecycle import Found, NotFound, ReviewReason
from tillgate.wire.dialects import TransactionStatus


def held(world: World) -> tuple[Payment, Review]:
    """Return a payment that is paid and did not pay its order, which was cancelled, and what was
    raised.
    """
    payment = world.start(world.order())
    ShopOrder.objects.update(status="cancelled")
    world.shopper_pays(payment)
    world.notification(payment)
    return world.fresh(payment), Review.objects.select_related("order").get(payment=payment)


def tell_again(review: Review) -> actions.Done:
    return actions.take_action(review.pk, "redeliver", staff="ann")


def test_an_act_that_comes_too_late_changes_nothing_and_says_who_was_quicker(world: World) -> None:
    _, review = held(world)
    actions.take_action(review.pk, "dismiss", staff="bob", note="  fine so ")
    done = actions.take_action(review.pk, "refund", staff="ann", amount="12.50")
    assert (done.resolved, done.message, done.refund) == (
        True,
        "bob had resolved it already: fine so",
        None,
    )
    assert actions.actions_for(Review.objects.get(pk=review.pk)) == ()
    assert not Refund.objects.exists()


def test_an_act_that_does_not_fit_is_refused_in_words(world: World) -> None:
    _, review = held(world)
    with pytest.raises(ActionNotPossible, match=r"^'poll' does not resolve 'paid-not-payable'$"):
        actions.take_action(review.pk, "poll", staff="ann")
    with pytest.raises(ActionNotPossible, match=r"^a note must say why it can stay as it is$"):
        actions.take_action(review.pk, "dismiss", staff="ann")


def test_telling_again_fails_in_words_while_the_shop_does_not_take_the_money(world: World) -> None:
    _, review = held(world)
    done = tell_again(review)
    assert (done.resolved, done.message) == (False, "the shop says: not-payable")


def test_i4_telling_again_is_refused_once_the_order_is_paid(world: World) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    other = world.start(payment.order.key)
    world.shopper_pays(other)
    world.notification(other)
    with pytest.raises(ActionNotPossible, match=f"^order {payment.order} is paid already$"):
        tell_again(review)


def test_telling_again_is_refused_for_a_payment_that_is_not_paid(world: World) -> None:
    payment, review = held(world)
    Payment.objects.filter(pk=payment.pk).update(status="pending")
    with pytest.raises(ActionNotPossible, match=f"^payment {payment.reference} is not paid$"):
        tell_again(review)


def test_telling_again_is_refused_once_a_part_was_given_back(world: World) -> None:
    payment, review = held(world)
    queueing.refund(payment.pk, "1.00")
    ShopOrder.objects.update(status="open")
    message = (
        f"^some of payment {payment.reference} was refunded, or may have been: the order is "
        "not paid by the rest$"
    )
    with pytest.raises(ActionNotPossible, match=message):
        tell_again(review)
    assert world.shop.times_paid(payment.order.key) == 0


def test_telling_again_waits_for_an_outbox_event_that_is_under_way_and_queues_no_other(
    world: World,
) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    with world.failing_handler("tillgate_payment_paid", times=9):
        first = tell_again(review)
        second = tell_again(review)
    fault = "ShopIsDown: tillgate_payment_paid was made to fail by the test"
    assert (first.resolved, first.message, second.message) == (
        False,
        f"the shop says: {fault}",
        f"the shop says: {fault}",
    )
    assert OutboxEvent.objects.filter(kind="payment-paid").count() == 2
    outbox_event = OutboxEvent.objects.filter(kind="payment-paid").latest("id")
    assert (outbox_event.payment, outbox_event.data, outbox_event.attempts) == (
        payment,
        {"again": review.pk},
        1,
    )


def test_what_was_accepted_while_telling_again_waited_is_not_told_any_more(world: World) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    with world.failing_handler("tillgate_payment_paid"):
        tell_again(review)
    assert actions.take_action(review.pk, "dismiss", staff="bob", note="paid in cash").resolved
    world.time.advance(hours=2)
    world.run_worker()
    assert world.shop.times_paid(payment.order.key) == 0
    assert (
        OutboxEvent.objects.get(kind="payment-paid", data__again=review.pk).outcome
        == "settled-otherwise"
    )
    assert Order.objects.get().paid_by is None


def test_telling_again_about_another_matter_goes_on_when_the_first_was_accepted(
    world: World,
) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    with world.failing_handler("tillgate_payment_paid"):
        tell_again(review)
    other = Review.objects.create(
        order=payment.order,
        payment=payment,
        reason="underpaid",
        facts={"detail": "Too little."},
        open_key="underpaid",
        opened_at=timezone.now(),
    )
    world.time.advance(hours=2)
    with world.failing_handler("tillgate_payment_paid"):
        tell_again(other)
    actions.take_action(review.pk, "dismiss", staff="bob", note="see the other")
    world.time.advance(hours=2)
    world.run_worker()
    assert world.shop.times_paid(payment.order.key) == 1
    assert Review.objects.get(pk=other.pk).resolved_by == "tillgate"


def test_a_matter_that_is_accepted_in_the_moment_of_telling_again_says_who_was_quicker(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")

    def deliver(order_id: int) -> int:
        actions.take_action(review.pk, "dismiss", staff="bob", note="paid in cash")
        return delivering.deliver(order_id)

    monkeypatch.setattr(actions, "deliver", deliver)
    done = tell_again(review)
    assert (done.resolved, done.message) == (True, "bob had resolved it already: paid in cash")
    assert world.shop.times_paid(payment.order.key) == 0


def unreachable(*_: Any, **__: Any) -> Any:
    raise NotSent("refund", "R", "no route to host")


def test_money_is_not_left_as_it_is_while_a_refund_of_it_waits_to_be_sent(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment, review = held(world)
    assert "withdraw" not in actions.actions_for(review)
    with monkeypatch.context() as patched:
        patched.setattr("tillgate.hooks.refund", unreachable)
        actions.take_action(review.pk, "refund", staff="ann", amount="12.50")
    assert actions.actions_for(review) == ("refund", "withdraw", "redeliver", "dismiss")
    with pytest.raises(
        ActionNotPossible,
        match=r"^a refund of USD 12\.50 of this payment is queued: withdraw it first$",
    ):
        actions.take_action(review.pk, "dismiss", staff="bob", note="shipped")
    done = actions.take_action(review.pk, "withdraw", staff="bob")
    assert (done.resolved, done.message, done.refund) == (
        False,
        "USD 12.50: withdrawn before it was sent: by bob",
        Refund.objects.get(),
    )
    assert actions.take_action(review.pk, "dismiss", staff="bob", note="shipped").resolved
    world.time.advance(hours=2)
    world.run_worker()
    assert [refund.status for refund in payment.refunds.all()] == ["failed"]
    assert world.refunded_amount(payment) == 0


def test_a_second_press_withdraws_no_other_refund_than_the_one_that_was_shown(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment, review = held(world)
    with monkeypatch.context() as patched:
        patched.setattr("tillgate.hooks.refund", unreachable)
        for amount in ("8.00", "3.00"):
            queueing.refund(payment.pk, amount)
    shown = actions.to_withdraw(review)
    assert shown is not None
    assert (shown.amount, actions.to_withdraw(review, payment.refunds.order_by("id"))) == (
        Decimal("3.00"),
        shown,
    )
    done = actions.take_action(review.pk, "withdraw", staff="bob", withdraws=shown.pk)
    assert done.message == "USD 3.00: withdrawn before it was sent: by bob"
    with pytest.raises(RefundNotPossible, match="the refund is failed by now"):
        actions.take_action(review.pk, "withdraw", staff="ann", withdraws=shown.pk)
    assert [refund.status for refund in payment.refunds.order_by("pk")] == ["queued", "failed"]


def test_a_refund_of_another_payment_is_not_withdrawn(world: World) -> None:
    _, review = held(world)
    ShopOrder.objects.update(status="open")
    other = queue(world.paid_payment())
    with pytest.raises(ActionNotPossible, match=r"^no refund of this payment waits to be sent$"):
        actions.take_action(review.pk, "withdraw", staff="bob", withdraws=other.pk)
    assert Refund.objects.get().status == "queued"


def test_money_is_not_left_as_it_is_while_a_refund_of_it_is_being_sent(world: World) -> None:
    payment, review = held(world)
    refund = queueing.refund(payment.pk, "1.00")
    Refund.objects.filter(pk=refund.pk).update(status="sending")
    with pytest.raises(
        ActionNotPossible,
        match=r"^a refund of USD 1\.00 of this payment is sending: look again in a moment$",
    ):
        actions.take_action(review.pk, "dismiss", staff="bob", note="shipped")


def test_what_is_about_no_money_of_the_payment_is_accepted_though_a_refund_of_it_waits(
    world: World,
) -> None:
    payment = world.paid_payment()
    queue(payment)
    about = {"order": payment.order, "payment": payment, "opened_at": timezone.now()}
    forged = Review.objects.create(
        reason="forged-notifications",
        facts={"detail": "Many."},
        open_key="forged",
        **about,
    )
    assert actions.take_action(forged.pk, "dismiss", staff="bob", note="a scanner").resolved


def test_what_waits_of_another_payment_keeps_nobody_from_accepting_and_is_not_withdrawn(
    world: World,
) -> None:
    _, review = held(world)
    ShopOrder.objects.update(status="open")
    other = queue(world.paid_payment())
    assert "withdraw" not in actions.actions_for(review)
    with pytest.raises(ActionNotPossible, match=r"^no refund of this payment waits to be sent$"):
        actions.take_action(review.pk, "withdraw", staff="bob")
    assert actions.take_action(review.pk, "dismiss", staff="bob", note="shipped").resolved
    assert Refund.objects.get(pk=other.pk).status == "queued"


def test_withdrawing_is_refused_in_words_when_nothing_waits(world: World) -> None:
    _, review = held(world)
    with pytest.raises(ActionNotPossible, match=r"^no refund of this payment waits to be sent$"):
        actions.take_action(review.pk, "withdraw", staff="ann")


def test_telling_again_waits_its_turn_behind_an_earlier_outbox_event(world: World) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    other, later = world.start(payment.order.key, "paypal"), timezone.now() + timedelta(minutes=5)
    OutboxEvent.objects.create(
        order=payment.order,
        payment=other,
        kind="payment-paid",
        created_at=timezone.now(),
        due_at=later,
    )
    OutboxEvent.objects.filter(kind="review-opened").delete()
    done = tell_again(review)
    assert (done.resolved, done.message) == (
        False,
        "the shop says: not yet, an earlier outbox event is waiting",
    )
    queued = OutboxEvent.objects.latest("id")
    assert (queued.kind, queued.payment, queued.due_at) == (
        "payment-paid",
        payment,
        queued.created_at,
    )


@pytest.mark.parametrize(
    ("status", "reopened"),
    [("open", True), ("cancelled", False), ("gone", False)],
)
def test_an_order_is_reopened_only_if_the_shop_takes_money_for_it_again(
    world: World,
    status: str,
    reopened: bool,
) -> None:
    order, other = world.order(), world.order()
    registering.close_order(world.shop.plugin, other)
    payment = world.start(order)
    registering.close_order(world.shop.plugin, order)
    world.shopper_pays(payment)
    world.notification(payment)
    review = Review.objects.get()
    assert (
        review.message
        == f"Payment {payment.reference}: it was paid, but the shop closed the order."
    )
    ShopOrder.objects.filter(pk=order).update(status=status)
    if status == "gone":
        ShopOrder.objects.filter(pk=order).delete()
    tell_again(review)
    assert (Order.objects.get(key=order).closed_at is None) is reopened
    assert Order.objects.get(key=other).closed_at is not None


def test_an_order_that_was_never_closed_is_not_reopened(world: World) -> None:
    _, review = held(world)
    ShopOrder.objects.update(status="open")
    assert tell_again(review).resolved
    assert not Review.objects.get().order.timeline.filter(event="order.reopened").exists()  # type: ignore[union-attr]


def test_a_failing_outbox_event_is_tried_again_and_its_outcome_told(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(DELIVERY_TRIES_BEFORE_REVIEW=1)
    payment = world.start(world.order())
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid", times=2):
        world.notification(payment)
        review = Review.objects.get()
        said = "ShopIsDown: tillgate_payment_paid was made to fail by the test"
        whole = f"The shop could not be told payment-paid of order {payment.order}: {said}"
        assert (review.message, review.payment, review.order) == (whole, payment, payment.order)
        done = actions.take_action(review.pk, "redeliver", staff="ann")
        assert (done.resolved, done.message) == (False, f"it failed again: {said}")
    done = actions.take_action(review.pk, "redeliver", staff="ann")
    assert (done.resolved, done.message) == (True, "the shop was told at attempt 3")
    assert world.shop.is_paid(payment.order.key)


def test_an_outbox_event_that_was_made_meanwhile_is_resolved_by_trying_again(world: World) -> None:
    payment = world.paid_payment()
    outbox_event = OutboxEvent.objects.get()
    review = Review.objects.create(
        reason="delivery-failing",
        facts={"detail": "It failed."},
        opened_at=timezone.now(),
        order=payment.order,
        outbox_event=outbox_event,
    )
    done = actions.take_action(review.pk, "redeliver", staff="ann")
    assert (done.resolved, done.message) == (True, "the shop was told: payment-paid")
    assert world.shop.times_paid(payment.order.key) == 1


def test_a_remote_outbox_event_is_tried_again_over_the_network(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment()
    enqueue_remote(world.shop.plugin, payment.order.key, "invoice")
    outbox_event = OutboxEvent.objects.get(kind="remote")
    review = Review.objects.create(
        reason="delivery-failing",
        facts={"detail": "It failed."},
        opened_at=timezone.now(),
        order=payment.order,
        outbox_event=outbox_event,
    )
    done = actions.take_action(review.pk, "redeliver", staff="ann")
    assert (done.resolved, done.message) == (True, "the shop was told: remote")


def test_a_refund_made_elsewhere_is_entered_and_what_a_person_has_not_seen_refuses_it(
    world: World,
) -> None:
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    actions.poll_now(payment, "ann")
    review = Review.objects.get()
    for amount in (None, ""):
        with pytest.raises(InvalidRequest) as none:
            actions.take_action(review.pk, "record-external-refund", staff="ann", amount=amount)
        assert (none.value.field, none.value.value) == ("amount", "")
    seen = Refund.objects.create(
        payment=payment,
        amount=Decimal("1.00"),
        status="failed",
        created_at=timezone.now(),
        status_since=timezone.now(),
    )
    with pytest.raises(
        limits.RefundNotPossible,
        match=f"^a refund of USD 1.00 of payment {payment.reference} was asked for in the "
        "meantime$",
    ):
        actions.take_action(
            review.pk, "record-external-refund", staff="ann", amount="2.50", newest_refund=0
        )
    done = actions.take_action(
        review.pk,
        "record-external-refund",
        staff="ann",
        amount="2.50",
        newest_refund=seen.pk,
    )
    assert (done.resolved, done.message) == (True, "USD 2.50 was refunded elsewhere")
    assert done.refund == Refund.objects.latest("id")


@pytest.mark.parametrize(
    ("action", "status", "found"),
    [("refund-done", "succeeded", "done"), ("refund-not-done", "failed", "not done")],
)
def test_what_a_person_found_of_an_unknown_refund_resolves_it(
    world: World,
    action: str,
    status: str,
    found: str,
) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")
    done = actions.take_action(Review.objects.get().pk, action, staff="ann")
    assert (done.resolved, done.message, done.refund) == (
        True,
        f"ann found that it was {found}",
        None,
    )
    refund.refresh_from_db()
    assert refund.status == status


def late_refund(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Refund, Review]:
    """Return a refund that the gateway accepted and did not finish for days, and its review."""
    accepted = Refunded(
        reference="x",
        amount=Decimal("2.50"),
        ret_msg="accepted",
        outcome=RefundOutcome.PENDING,
        refund_no="88",
    )
    monkeypatch.setattr(hooks, "refund", lambda account, request: accepted)
    monkeypatch.setattr(hooks, "query_refund", lambda account, request, refund_no: accepted)
    refund = queueing.refund(world.paid_payment().pk, "2.50")
    world.time.advance(days=8)
    world.run_worker()
    return refund, Review.objects.get(reason="refund-late")


@pytest.mark.parametrize(
    ("outcome", "is_over"),
    [("succeeded", True), ("failed", True), ("pending", False)],
)
def test_a_late_refund_is_asked_about_and_not_its_payment(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
    is_over: bool,
) -> None:
    refund, review = late_refund(world, monkeypatch)
    found = Refunded(
        reference="x",
        amount=Decimal("2.50"),
        ret_msg="x",
        outcome=RefundOutcome(outcome),
    )
    monkeypatch.setattr(hooks, "query_refund", lambda account, request, refund_no: found)
    before = world.queries()
    done = actions.take_action(review.pk, "poll", staff="ann")
    refund.refresh_from_db()
    assert (done.resolved, refund.status, world.queries()) == (is_over, outcome, before)
    assert (
        "staff:ann" in TimelineEntry.objects.filter(refund=refund).values_list("actor", flat=True)
    ) is is_over


@pytest.mark.parametrize(
    ("action", "status"),
    [("refund-done", "succeeded"), ("refund-not-done", "failed")],
)
def test_what_a_person_found_of_a_late_refund_resolves_it(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    status: str,
) -> None:
    refund, review = late_refund(world, monkeypatch)
    assert actions.take_action(review.pk, action, staff="ann").resolved
    refund.refresh_from_db()
    assert refund.status == status
    assert list(
        OutboxEvent.objects.filter(refund=refund).values_list("data__status", flat=True),
    ) == [status]


def test_giving_back_by_an_act_notes_who_why_and_the_key(world: World) -> None:
    payment, review = held(world)
    part = actions.take_action(
        review.pk,
        "refund",
        staff="ann",
        amount="2.50",
        idempotency_key="k1",
        newest_refund=0,
    )
    assert (part.resolved, part.message) == (False, "refund success")
    assert part.refund
    assert (part.refund.requested_by, part.refund.reason, part.refund.idempotency_key) == (
        "ann",
        "paid-not-payable",
        "k1",
    )
    with pytest.raises(limits.RefundNotPossible, match="in the meantime"):
        actions.take_action(
            review.pk,
            "refund",
            staff="ann",
            amount="10.00",
            idempotency_key="k2",
            newest_refund=0,
        )
    with pytest.raises(InvalidRequest) as none:
        actions.take_action(review.pk, "refund", staff="ann")
    assert (none.value.field, none.value.value) == ("amount", "")
    rest = actions.take_action(
        review.pk,
        "refund",
        staff="ann",
        amount="10.00",
        newest_refund=part.refund.pk,
    )
    assert (rest.resolved, rest.refund and rest.refund.idempotency_key) == (True, None)
    review.refresh_from_db()
    assert (review.resolution, review.resolved_by) == ("all of it was refunded: USD 12.50", "ann")
    assert payment.refunded_amount == Decimal("12.50")


def test_an_overpaid_order_is_settled_by_any_refund_that_succeeds_and_by_no_other(
    world: World,
) -> None:
    order = world.order("30.00")
    payment = world.start(order)
    world.shop.edit_total(order, Decimal("28.00"))
    world.shopper_pays(payment)
    world.notification(payment)
    review = Review.objects.get()
    world.sandbox.control.fault("refused", occasion="refund")
    assert not actions.take_action(review.pk, "refund", staff="ann", amount="2.00").resolved
    done = actions.take_action(review.pk, "refund", staff="ann", amount="2.00")
    review.refresh_from_db()
    assert (done.resolved, review.resolution, review.resolved_by) == (
        True,
        "USD 2.00 was refunded",
        "ann",
    )


def test_an_overpaid_order_is_settled_by_its_refund_whoever_sends_it(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = world.order("30.00")
    payment = world.start(order)
    world.shop.edit_total(order, Decimal("28.00"))
    world.shopper_pays(payment)
    world.notification(payment)
    review = Review.objects.get()

    def away(*_: Any) -> Any:
        raise NotSent("refund", payment.reference, "connection refused")

    with monkeypatch.context() as patch:
        patch.setattr("tillgate.hooks.refund", away)
        assert not actions.take_action(review.pk, "refund", staff="ann", amount="2.00").resolved
    world.time.advance(minutes=2)
    world.run_worker()
    review.refresh_from_db()
    assert (review.resolution, review.resolved_by) == ("USD 2.00 was refunded", "ann")


def test_i4_a_payment_that_is_told_again_and_given_back_before_the_shop_hears_of_it_pays_nothing(
    world: World,
) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    with world.failing_handler("tillgate_payment_paid", times=1):
        assert not tell_again(review).resolved
    assert actions.take_action(review.pk, "refund", staff="ann", amount="12.50").resolved
    world.a_day_passes()
    assert Order.objects.get().paid_by is None
    assert (world.shop.times_paid(payment.order.key), world.reviews()) == (0, [])


def test_i4_a_payment_that_is_told_again_pays_nothing_once_a_part_of_it_went_back(
    world: World,
) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    with world.failing_handler("tillgate_payment_paid", times=1):
        tell_again(review)
    queueing.refund(payment.pk, "2.50")
    world.a_day_passes()
    assert Order.objects.get().paid_by is None
    assert world.reviews() == ["paid-not-payable"]


def test_an_order_that_is_paid_in_the_end_leaves_nobody_asked_why_it_was_not(world: World) -> None:
    key = world.order("12.50")
    payment = world.start(key)
    world.shop.edit_total(key, Decimal("20.00"))
    world.shopper_pays(payment)
    world.notification(payment)
    [underpaid] = Review.objects.all()
    ShopOrder.objects.update(status="cancelled")
    tell_again(underpaid)
    assert world.reviews() == ["underpaid", "paid-not-payable"]
    ShopOrder.objects.update(status="open", total="12.50")
    assert tell_again(underpaid).resolved
    assert (world.reviews(), world.shop.times_paid(key)) == ([], 1)


# Asking again.


def test_looking_again_says_what_the_gateway_answered(
    world: World,
    configure: Callable[..., None],
) -> None:
    payment = world.start(world.order())
    done = actions.poll_now(payment, "ann")
    assert (done.resolved, done.message) == (True, "the gateway waits for the shopper")
    configure(NOTIFICATION_THROTTLE_SECONDS=5)
    done = actions.poll_now(payment, "ann")
    assert (done.resolved, done.message) == (
        False,
        "the gateway was asked a moment ago: try again in a few seconds",
    )


def test_asking_again_resolves_a_doubt_once_the_answer_is_in_order_and_not_before(
    world: World,
) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    world.sandbox.control.fault("wrong_amount", occasion="query")
    world.notification(payment)
    review = Review.objects.get()
    world.sandbox.control.fault("wrong_amount", occasion="query")
    again = actions.take_action(review.pk, "poll", staff="ann")
    assert (again.resolved, again.message) == (
        False,
        review.message.removeprefix(f"Payment {payment.reference}: ").removesuffix("."),
    )
    done = actions.take_action(review.pk, "poll", staff="ann")
    assert (done.resolved, done.message) == (True, "asked again: the gateway says that it is paid")
    assert ("payment.paid", "staff:ann") in payment.order.timeline.values_list("event", "actor")


def test_the_newest_payment_is_asked_about_when_a_gateway_is_silent_to_all(
    world: World,
    configure: Callable[..., None],
) -> None:
    world.start(world.order())
    newest = world.start(world.order())
    review = Review.objects.create(
        reason="gateway-silent",
        facts={"detail": "Silent."},
        account="default",
        opened_at=timezone.now(),
    )
    assert actions.take_action(review.pk, "poll", staff="ann").resolved
    asked = [
        entry.reference
        for entry in world.sandbox.service.journal.all()
        if entry.operation == "query"
    ]
    assert set(asked) == {newest.reference}
    empty = Review.objects.create(
        reason="gateway-silent",
        facts={"detail": "Silent."},
        account="other",
        opened_at=timezone.now(),
    )
    with pytest.raises(
        ActionNotPossible,
        match=r"^there is no payment of account other to ask about$",
    ):
        actions.take_action(empty.pk, "poll", staff="ann")


def test_i12_no_act_is_done_inside_a_transaction(world: World) -> None:
    payment, review = held(world)
    acts: dict[str, Callable[[], Any]] = {
        "take_action": lambda: actions.take_action(review.pk, "dismiss", staff="ann", note="x"),
        "poll_now": lambda: actions.poll_now(payment, "ann"),
    }
    for name, action in acts.items():
        with pytest.raises(RuntimeError, match=f"^{name} uses the network"), transaction.atomic():
            action()


@pytest.mark.parametrize("colleague", ["redeliver", "dismiss"])
def test_a_refund_is_not_sent_when_a_colleague_settles_its_matter_in_the_same_moment(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    colleague: str,
) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    real = queueing.refund

    def slow(*arguments: Any, **options: Any) -> Refund:
        actions.take_action(review.pk, colleague, staff="bob", note="it pays the next order")
        return real(*arguments, **options)

    monkeypatch.setattr(actions, "refund", slow)
    with pytest.raises(RefundNotPossible, match=r"^(bob|tillgate) had resolved it already: "):
        actions.take_action(review.pk, "refund", staff="ann", amount="12.50", newest_refund=0)
    assert not Refund.objects.exists()
    assert world.shop.is_paid(payment.order.key) is (colleague == "redeliver")


@pytest.mark.parametrize(
    ("reason", "is_over"),
    [("amount-mismatch", False), ("payment-unanswered", True), ("gateway-silent", True)],
)
def test_that_the_gateway_knows_no_such_payment_is_no_word_on_what_it_said_of_it(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    *,
    is_over: bool,
) -> None:
    payment = world.start(world.order())
    Payment.objects.update(transaction_no="")
    review = Review.objects.create(
        reason=reason,
        payment=payment,
        order=payment.order,
        account="default",
        facts={"detail": "Look."},
        opened_at=timezone.now(),
        open_key=reason,
    )
    monkeypatch.setattr(actions, "ask", lambda _: NotFound(asked_at=timezone.now()))
    world.time.advance(minutes=1)
    assert actions.take_action(review.pk, "poll", staff="ann").resolved is is_over
    assert bool(Review.objects.get(pk=review.pk).resolved_at) is is_over


def test_no_refund_made_elsewhere_is_entered_when_a_colleague_rules_it_out_in_the_same_moment(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    actions.poll_now(payment, "anna")
    [review] = Review.objects.all()
    real = record_external_refund

    def slow(*arguments: Any, **options: Any) -> Refund:
        actions.take_action(review.pk, "dismiss", staff="bob", note="no money went out")
        return real(*arguments, **options)

    monkeypatch.setattr(actions, "record_external_refund", slow)
    with pytest.raises(RefundNotPossible, match=r"^bob had resolved it already: no money went out"):
        actions.take_action(
            review.pk,
            "record-external-refund",
            staff="ann",
            amount="12.50",
            newest_refund=0,
        )
    assert not Refund.objects.exists()


def test_the_shop_is_not_told_again_when_a_colleague_settles_the_matter_in_the_same_moment(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    real = locking.locked_order

    def slow(order_id: int) -> Any:
        monkeypatch.setattr(actions, "locked_order", real)
        actions.take_action(review.pk, "dismiss", staff="bob", note="refunded in cash")
        return real(order_id)

    monkeypatch.setattr(actions, "locked_order", slow)
    done = tell_again(review)
    assert (done.resolved, done.message) == (True, "bob had resolved it already: refunded in cash")
    assert not world.shop.is_paid(payment.order.key)
    assert OutboxEvent.objects.filter(kind="payment-paid").count() == 1


def test_what_cannot_be_carried_over_the_network_is_given_up_when_a_person_accepts_that_and_what_waits_behind_it_is_carried(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = world.paid_payment().order
    hopeless, behind = (
        enqueue_remote(order.plugin, order.key, name) for name in ("invoice", "reminder")
    )
    real, carried = hooks.call_owner, list[str]()

    def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
        if hook == "tillgate_deliver":
            carried.append(arguments["outbox_event"].name)
            if carried[-1] == "invoice":
                raise RuntimeError("the other side is gone")
        return real(plugin, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", call_owner)
    for _ in range(20):
        world.time.advance(hours=1)
        world.run_worker()
    assert set(carried) == {"invoice"}
    review = Review.objects.get(reason="delivery-failing")
    with pytest.raises(ActionNotPossible, match="a note must say why"):
        actions.take_action(review.pk, "dismiss", staff="ann")
    assert OutboxEvent.objects.get(event_id=hopeless).done_at is None
    assert actions.take_action(review.pk, "dismiss", staff="ann", note="they closed").resolved
    row = OutboxEvent.objects.get(event_id=hopeless)
    assert (row.outcome, row.due_at, row.fault) == (
        "abandoned",
        None,
        "RuntimeError: the other side is gone",
    )
    entry = TimelineEntry.objects.get(event="event.abandoned")
    assert (entry.order, entry.actor, entry.message) == (
        order,
        "staff:ann",
        "not carried over the network: invoice: they closed",
    )
    before = len(carried)
    world.time.advance(days=1)
    world.run_worker()
    assert carried[before:] == ["reminder"]
    assert OutboxEvent.objects.get(event_id=behind).done_at
    assert world.reviews() == []
    attempts.abandon(row, "bob", "again")
    assert TimelineEntry.objects.get(event="event.abandoned") == entry, "it is done"


def test_what_the_shop_itself_must_be_told_is_tried_on_whatever_a_person_accepts(
    world: World,
) -> None:
    with world.failing_handler("tillgate_payment_paid", times=30):
        payment = world.paid_payment()
        for _ in range(20):
            world.time.advance(hours=1)
            world.run_worker()
        review = Review.objects.get(reason="delivery-failing")
        assert actions.take_action(review.pk, "dismiss", staff="ann", note="soon").resolved
    assert OutboxEvent.objects.get(payment=payment).done_at is None
    world.time.advance(hours=2)
    world.run_worker()
    assert OutboxEvent.objects.get(payment=payment).outcome == "applied"


# What the gateway tells nothing of ----------------------------------------------------------------


def unknown() -> None:
    raise OrderNotFound("000022", "order not found", 400)


def silenced() -> None:
    raise OutcomeUnknown("query", "", "no answer")


def the(reason: str) -> Review:
    return Review.objects.get(reason=reason, resolved_at=None)


@pytest.fixture
def forgotten(world: World, gateway: dict[str, Callable[[], object]]) -> Payment:
    """A payment whose time is over, and of which the gateway says that it knows nothing."""
    payment = world.start(world.order())
    gateway[payment.reference] = unknown
    world.time.advance(hours=3)
    world.run_worker()
    return payment


@pytest.fixture
def found(
    gateway: dict[str, Callable[[], object]],
    forgotten: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., None]:
    """Let the gateway know the payment again, as it stands or with what it says changed."""
    real = hooks.query

    def find(**changes: Any) -> None:
        gateway.pop(forgotten.reference, None)
        monkeypatch.setattr(
            "tillgate.hooks.query",
            lambda account, reference, **bounds: replace(
                real(account, reference, **bounds),
                **changes,
            ),
        )

    return find


def not_paid(review: Review, **given: Any) -> actions.Done:
    return actions.take_action(
        review.pk,
        "mark-expired",
        staff="ann",
        note="it is not in the back office",
        **given,
    )


def test_i2_a_payment_that_the_gateway_does_not_know_is_not_accepted_while_it_is_open(
    world: World,
    forgotten: Payment,
) -> None:
    """Accepted, it would stay open for ever, and keep its order waiting."""
    review = the("payment-unknown")
    assert actions.actions_for(review) == ("poll", "mark-expired")
    with pytest.raises(ActionNotPossible, match=r"^its payment is open: ask again"):
        actions.take_action(review.pk, "dismiss", staff="ann", note="their index lags")
    assert not_paid(review).resolved
    world.time.advance(hours=2)
    world.run_worker()
    assert world.shop.is_released(forgotten.order.key)


def test_a_paid_payment_that_the_gateway_does_not_know_is_accepted_and_never_let_expire(
    world: World,
    gateway: dict[str, Callable[[], object]],
) -> None:
    payment = world.paid_payment()
    gateway[payment.reference] = unknown
    world.time.advance(hours=2)
    world.run_worker()
    review = the("payment-unknown")
    assert actions.actions_for(review) == ("poll", "dismiss")
    with pytest.raises(InvalidRequest, match="is paid by now"):
        not_paid(review)


def test_i2_nobody_is_held_to_have_paid_nothing_of_whom_the_gateway_says_more_by_now(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """Asked once more before that, it says that it is paid, though not by which transaction."""
    world.pays_late(forgotten)
    found(transaction_no=None)
    world.time.advance(minutes=1)
    done = not_paid(the("payment-unknown"))
    assert (done.resolved, done.message) == (
        True,
        "asked again: the gateway says paid without a transactionNo",
    )
    assert world.reviews() == ["transaction-no-missing"]
    world.time.advance(hours=3)
    world.run_worker()
    assert world.fresh(forgotten).is_open
    assert not world.shop.is_released(forgotten.order.key)


def test_i2_nobody_is_held_to_have_paid_nothing_while_the_gateway_was_asked_just_now(
    world: World,
    forgotten: Payment,
    configure: Callable[..., None],
) -> None:
    """What it answers may be on its way."""
    configure(NOTIFICATION_THROTTLE_SECONDS=5)
    actions.poll_now(forgotten, "bob")
    done = not_paid(the("payment-unknown"))
    assert (done.resolved, done.message) == (
        False,
        "the gateway was asked a moment ago: try again in a few seconds",
    )
    assert world.fresh(forgotten).is_open


def test_a_payment_that_the_gateway_knows_in_order_again_is_not_let_expire(
    world: World,
    gateway: dict[str, Callable[[], object]],
) -> None:
    payment = world.start(world.order())
    gateway[payment.reference] = unknown
    world.time.advance(minutes=1)
    world.run_worker()
    del gateway[payment.reference]
    world.time.advance(minutes=1)
    done = not_paid(the("payment-unknown"))
    assert (done.resolved, done.message) == (True, "asked again: the gateway waits for the shopper")
    assert world.fresh(payment).is_open


def test_what_the_gateway_says_something_of_is_unknown_no_more_though_a_person_must_look_at_it(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """Else no button would end it: it cannot be accepted while the payment is open, nor let expire
    from there.
    """
    found(amount=Decimal("10.00"))
    world.time.advance(hours=1)
    world.run_worker()
    assert world.reviews() == ["amount-mismatch"]
    world.time.advance(hours=1)
    world.run_worker()
    assert world.reviews() == ["amount-mismatch"]


def test_i2_a_payment_of_which_something_else_waits_for_a_person_is_not_let_expire(
    world: World,
    gateway: dict[str, Callable[[], object]],
    forgotten: Payment,
) -> None:
    with transaction.atomic():
        open_review(ReviewReason.AMOUNT_MISMATCH, "It says 10.00.", "worker", forgotten)
    world.time.advance(minutes=1)
    with pytest.raises(InvalidRequest, match=r"is known to the gateway by now: It says 10\.00\."):
        not_paid(the("payment-unknown"))
    assert world.fresh(forgotten).is_open


def test_i2_that_a_person_lets_a_payment_expire_is_no_word_on_its_account(
    world: World,
    forgotten: Payment,
) -> None:
    with transaction.atomic():
        open_review(ReviewReason.WRONG_CREDENTIALS, "Refused.", "worker", forgotten)
    world.time.advance(minutes=1)
    assert not_paid(the("payment-unknown")).resolved
    assert world.reviews() == ["wrong-credentials"]


def test_what_a_colleague_resolves_while_a_person_lets_it_expire_changes_nothing(
    world: World,
    forgotten: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    review, real = the("payment-unknown"), by_staff.force_expire

    def too_late(*given: Any) -> Payment:
        closing.resolve(review.pk, "the shopper has a receipt", "bob")
        return real(*given)

    monkeypatch.setattr(actions, "force_expire", too_late)
    with pytest.raises(InvalidRequest, match="was resolved by somebody else in the meantime"):
        not_paid(review)
    assert world.fresh(forgotten).is_open


def test_i2_an_answer_in_hand_is_told_though_a_person_let_the_payment_expire_meanwhile(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
    gateway: dict[str, Callable[[], object]],
) -> None:
    world.pays_late(forgotten)
    found(transaction_no=None)
    read, answer = world.fresh(forgotten), reconciling.ask(forgotten)
    gateway[forgotten.reference] = unknown
    world.time.advance(seconds=30)
    assert not_paid(the("payment-unknown")).resolved
    reconciling.apply_answer(read, answer, "worker")
    assert world.reviews() == ["transaction-no-missing"]


@pytest.fixture
def doubted(world: World, forgotten: Payment, found: Callable[..., None]) -> Review:
    """What is told of a payment that the gateway reports paid without saying by which
    transaction.
    """
    world.pays_late(forgotten)
    found(transaction_no=None)
    world.time.advance(hours=1)
    world.run_worker()
    return the("transaction-no-missing")


def test_i2_what_the_gateway_says_of_an_open_payment_is_not_accepted(
    world: World,
    doubted: Review,
) -> None:
    """Accepted, nobody would know of it when the payment is let expire since the gateway has fallen
    silent.
    """
    assert actions.actions_for(doubted) == ("poll", "mark-expired")
    with pytest.raises(
        ActionNotPossible,
        match=r"^its payment is open: ask again, or marks it as expired",
    ):
        actions.take_action(doubted.pk, "dismiss", staff="ann", note="we know")


def test_i2_a_payment_that_the_gateway_calls_paid_is_let_expire_by_whoever_has_read_that_alone(
    world: World,
    doubted: Review,
    forgotten: Payment,
    gateway: dict[str, Callable[[], object]],
) -> None:
    gateway[forgotten.reference] = silenced
    world.time.advance(hours=9)
    world.run_worker()
    with pytest.raises(
        InvalidRequest,
        match=r"is known to the gateway by now: .*says paid without a transactionNo",
    ):
        not_paid(the("payment-unanswered"))
    assert world.fresh(forgotten).is_open
    assert not_paid(doubted, expected_version=doubted.version).resolved
    assert world.reviews() == []
    world.time.advance(hours=2)
    world.run_worker()
    assert world.shop.is_released(forgotten.order.key)


def test_what_was_read_of_a_payment_that_was_let_expire_is_not_told_again_and_anything_else_is(
    world: World,
    doubted: Review,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    assert not_paid(doubted).resolved
    for _ in range(3):
        world.time.advance(hours=12)
        world.run_worker()
    assert world.reviews() == []
    found(amount=Decimal("10.00"))
    world.time.advance(days=7)
    world.run_worker()
    assert world.reviews() == ["amount-mismatch"]


def test_i2_money_of_a_payment_that_was_let_expire_is_found_once_the_gateway_says_enough(
    world: World,
    doubted: Review,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    assert not_paid(doubted).resolved
    found()
    world.time.advance(days=1)
    world.run_worker()
    assert world.fresh(forgotten).status == "paid"


PENDING_WITH_ANOTHER_AMOUNT = {"amount": Decimal("10.00"), "status": TransactionStatus.PENDING}


@pytest.fixture
def waiting(world: World, forgotten: Payment, found: Callable[..., None]) -> Review:
    """What is told of a payment that the gateway says nobody has paid, of another amount."""
    found(**PENDING_WITH_ANOTHER_AMOUNT)
    world.time.advance(hours=1)
    world.run_worker()
    return the("amount-mismatch")


def test_i2_a_payment_is_let_expire_by_what_says_that_nobody_paid_as_long_as_nothing_says_more(
    world: World,
    waiting: Review,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    world.pays_late(forgotten)
    found(amount=Decimal("10.00"))
    world.time.advance(minutes=1)
    with pytest.raises(
        InvalidRequest,
        match=r"is known to the gateway by now: .*it is paid, but the amount is USD 10\.00",
    ):
        not_paid(waiting)
    assert world.fresh(forgotten).is_open
    world.time.advance(minutes=1)
    assert not_paid(the("amount-mismatch")).resolved


@pytest.mark.parametrize("since", ["pending", "silent"])
def test_i2_a_payment_that_was_called_paid_is_let_expire_by_who_has_read_that_whatever_was_said_since(
    world: World,
    waiting: Review,
    forgotten: Payment,
    found: Callable[..., None],
    gateway: dict[str, Callable[[], object]],
    since: str,
) -> None:
    world.pays_late(forgotten)
    found(transaction_no=None)
    world.time.advance(hours=1)
    world.run_worker()
    found(**PENDING_WITH_ANOTHER_AMOUNT)
    world.time.advance(hours=1)
    world.run_worker()
    if since == "silent":
        gateway[forgotten.reference] = silenced
    with pytest.raises(InvalidRequest, match="says paid without a transactionNo"):
        not_paid(waiting)
    world.time.advance(minutes=1)
    assert not_paid(the("transaction-no-missing")).resolved
    assert world.reviews() == []


def test_i2_a_payment_that_a_notification_finds_to_be_called_paid_while_a_person_lets_it_expire_stays_open(
    world: World,
    waiting: Review,
    forgotten: Payment,
    found: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = by_staff.force_expire

    def slowly(*given: Any) -> Payment:
        world.pays_late(forgotten)
        found(transaction_no=None)
        world.time.advance(seconds=10)
        world.notification(forgotten)
        return real(*given)

    monkeypatch.setattr(actions, "force_expire", slowly)
    with pytest.raises(InvalidRequest, match="says paid without a transactionNo"):
        not_paid(waiting, expected_version=waiting.version)
    assert world.reviews() == ["amount-mismatch", "transaction-no-missing"]


def test_what_says_something_else_each_time_is_ended_all_the_same(
    world: World,
    waiting: Review,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An amount in another currency, at the rate of the day."""
    real = hooks.query
    monkeypatch.setattr(
        "tillgate.hooks.query",
        lambda account, reference, **bounds: replace(
            real(account, reference, **bounds),
            amount=Decimal("10.01"),
        ),
    )
    world.time.advance(minutes=1)
    assert not_paid(waiting, expected_version=waiting.version).resolved


def test_i2_a_payment_of_which_the_gateway_waits_for_the_shopper_is_not_let_expire(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = hooks.query
    payment = world.start(world.order())
    monkeypatch.setattr(
        "tillgate.hooks.query",
        lambda account, reference, **bounds: replace(
            real(account, reference, **bounds),
            amount=Decimal("10.00"),
        ),
    )
    reconciling.apply_answer(payment, reconciling.ask(payment), "worker")
    monkeypatch.setattr("tillgate.hooks.query", real)
    Payment.objects.update(last_polled_at=None)
    world.time.advance(minutes=1)
    done = not_paid(the("amount-mismatch"))
    assert (done.resolved, done.message) == (True, "asked again: the gateway waits for the shopper")
    assert world.fresh(payment).is_open


@pytest.mark.parametrize("was_created", [True, False])
def test_i2_a_payment_that_the_gateway_has_called_paid_and_does_not_know_since_is_left_to_a_person(
    world: World,
    doubted: Review,
    forgotten: Payment,
    gateway: dict[str, Callable[[], object]],
    *,
    was_created: bool,
) -> None:
    if not was_created:
        Payment.objects.update(transaction_no=None)
    gateway[forgotten.reference] = unknown
    world.time.advance(hours=1)
    world.run_worker()
    assert world.fresh(forgotten).is_open
    assert world.reviews() == ["transaction-no-missing", "payment-unknown"]
    assert the("payment-unknown").message.endswith(
        "the gateway does not know it, though it reported it paid.",
    )
    world.time.advance(minutes=1)
    with pytest.raises(InvalidRequest, match="says paid without a transactionNo"):
        not_paid(the("payment-unknown"))
    assert not_paid(doubted).resolved
    assert world.reviews() == []


ODD = {"status": TransactionStatus.UNRECOGNISED, "status_text": "processing"}


PAID_WITH_ANOTHER_AMOUNT = {"amount": Decimal("10.00")}


def said_in_turn(world: World, found: Callable[..., None], *answers: dict[str, Any]) -> None:
    for answer in answers:
        found(**answer)
        world.time.advance(hours=1)
        world.run_worker()


def test_i2_that_the_gateway_has_called_an_open_payment_paid_is_not_hidden_by_what_it_says_next(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
    gateway: dict[str, Callable[[], object]],
) -> None:
    world.pays_late(forgotten)
    said_in_turn(world, found, PAID_WITH_ANOTHER_AMOUNT, PENDING_WITH_ANOTHER_AMOUNT)
    assert the("amount-mismatch").message.endswith(
        "it is paid, but the amount is USD 10.00 instead of USD 12.50.",
    )
    Payment.objects.update(transaction_no=None)
    gateway[forgotten.reference] = unknown
    world.time.advance(hours=6)
    world.run_worker()
    assert world.fresh(forgotten).is_open


def test_what_the_gateway_says_of_a_payment_that_is_settled_is_told_whatever_it_said_before(
    world: World,
    doubted: Review,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    assert not_paid(doubted).resolved
    for answer in (PAID_WITH_ANOTHER_AMOUNT, PENDING_WITH_ANOTHER_AMOUNT):
        found(**answer)
        world.time.advance(minutes=1)
        actions.poll_now(world.fresh(forgotten), "bob")
    assert the("amount-mismatch").message.endswith(
        ": the amount is USD 10.00 instead of USD 12.50.",
    )


def test_i2_that_the_gateway_has_called_a_payment_paid_is_more_than_a_word_that_may_mean_so(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    world.pays_late(forgotten)
    said_in_turn(world, found, ODD, PAID_WITH_ANOTHER_AMOUNT, ODD)
    with pytest.raises(InvalidRequest, match="it is paid, but"):
        not_paid(the("unrecognised-status"))
    world.time.advance(minutes=1)
    assert not_paid(the("amount-mismatch")).resolved
    assert world.reviews() == []


@pytest.mark.parametrize("forgets", [True, False])
def test_i2_a_word_that_nobody_knows_ends_nothing_though_there_is_time_to_learn_more(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    *,
    forgets: bool,
) -> None:
    payment, real = world.start(world.order()), hooks.query
    world.shopper_pays(payment)
    for answer in (PAID_WITH_ANOTHER_AMOUNT, ODD):
        monkeypatch.setattr(
            "tillgate.hooks.query",
            lambda account, reference, says=answer, **bounds: replace(
                real(account, reference, **bounds),
                **says,
            ),
        )
        world.time.advance(minutes=2)
        world.run_worker()
    assert actions.poll_now(payment, "bob").resolved is False
    assert world.reviews() == ["amount-mismatch"]
    world.time.advance(hours=3)
    reconciling.apply_answer(
        world.fresh(payment),
        NotFound(asked_at=timezone.now(), expired_is_forgotten=forgets),
        "worker",
    )
    assert world.fresh(payment).is_open


@pytest.mark.parametrize(
    "status",
    [TransactionStatus.PENDING, TransactionStatus.FAILED, TransactionStatus.CLOSED],
)
def test_i2_an_answer_from_before_the_gateway_has_called_a_payment_paid_ends_nothing(
    world: World,
    doubted: Review,
    forgotten: Payment,
    found: Callable[..., None],
    status: TransactionStatus,
) -> None:
    found(status=status)
    read, answer = world.fresh(forgotten), reconciling.ask(forgotten)
    assert isinstance(answer, Found)
    before = replace(answer, asked_at=doubted.opened_at - timedelta(seconds=5))
    reconciling.apply_answer(read, before, "worker")
    assert world.fresh(forgotten).is_open
    reconciling.apply_answer(world.fresh(forgotten), answer, "worker")
    assert not world.fresh(forgotten).is_open, "what it says by now"


def test_i2_a_payment_that_the_gateway_calls_paid_is_told_though_it_did_not_know_it_a_moment_before(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """The answers come in another order than the questions."""
    world.pays_late(forgotten)
    Payment.objects.update(transaction_no=None)
    found(transaction_no=None)
    read = world.fresh(forgotten)
    answer = reconciling.ask(read)
    reconciling.apply_answer(
        world.fresh(forgotten),
        NotFound(asked_at=timezone.now() - timedelta(seconds=3)),
        "worker",
    )
    assert world.fresh(forgotten).status == "expired"
    reconciling.apply_answer(read, answer, "notification")
    assert world.reviews() == ["transaction-no-missing"]


def test_what_the_gateway_said_only_when_a_payment_was_let_expire_is_told_again(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    world.pays_late(forgotten)
    said_in_turn(world, found, PAID_WITH_ANOTHER_AMOUNT)
    review = the("amount-mismatch")
    found(amount=Decimal("99999.00"))
    world.time.advance(minutes=1)
    assert not_paid(review, expected_version=review.version).resolved
    world.time.advance(days=1)
    world.run_worker()
    assert the("amount-mismatch").message.endswith(
        "the amount is USD 99,999.00 instead of USD 12.50.",
    )


def test_a_payment_of_which_the_gateway_now_says_nothing_and_now_knows_nothing_is_told_of_once(
    world: World,
    doubted: Review,
    forgotten: Payment,
    gateway: dict[str, Callable[[], object]],
) -> None:
    Payment.objects.update(transaction_no=None)
    for answer in (silenced, unknown) * 4:
        gateway[forgotten.reference] = answer
        world.time.advance(hours=12)
        world.run_worker()
    assert Review.objects.filter(reason="payment-unanswered").count() == 1


def test_i2_what_the_gateway_has_said_only_when_a_payment_is_let_expire_is_read_first(
    world: World,
    doubted: Review,
    found: Callable[..., None],
) -> None:
    """Another doubt that it is paid, of which nobody was mailed yet."""
    found(**PAID_WITH_ANOTHER_AMOUNT)
    world.time.advance(minutes=1)
    with pytest.raises(InvalidRequest, match="it is paid, but the amount"):
        not_paid(doubted, expected_version=doubted.version)
    world.time.advance(minutes=1)
    assert not_paid(doubted, expected_version=doubted.version).resolved, (
        "it stands beside it by now"
    )


def test_who_asks_is_told_what_the_gateway_says_though_it_is_a_word_that_nobody_knows(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    found(**ODD)
    done = actions.poll_now(forgotten, "bob")
    assert (done.resolved, done.message) == (
        False,
        "the gateway says 'processing', which is not a status we know",
    )


@pytest.mark.parametrize("was_created", [True, False])
def test_a_word_that_nobody_knows_keeps_nothing_open_that_the_gateway_has_forgotten_since(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
    *,
    was_created: bool,
) -> None:
    if not was_created:
        Payment.objects.update(transaction_no=None)
    said_in_turn(world, found, ODD)
    if not was_created:
        Payment.objects.update(transaction_no=None)
    reconciling.apply_answer(
        world.fresh(forgotten),
        NotFound(asked_at=timezone.now(), expired_is_forgotten=was_created),
        "worker",
    )
    assert world.fresh(forgotten).status == "expired"


def test_a_word_that_nobody_knows_is_not_told_of_a_payment_that_was_closed_since(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    found(**ODD)
    read, answer = world.fresh(forgotten), reconciling.ask(forgotten)
    found(status=TransactionStatus.CLOSED)
    world.time.advance(seconds=10)
    actions.poll_now(world.fresh(forgotten), "bob")
    reconciling.apply_answer(read, answer, "worker")
    assert (world.fresh(forgotten).status, world.reviews()) == ("closed", [])


def test_i7_a_notification_that_comes_while_a_person_lets_a_payment_expire_brings_the_next_look_forward(
    world: World,
    forgotten: Payment,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    gateway: dict[str, Callable[[], object]],
) -> None:
    configure(NOTIFICATION_THROTTLE_SECONDS=5)
    real = by_staff.force_expire

    def slowly(*given: Any) -> Payment:
        world.pays_late(forgotten)
        del gateway[forgotten.reference]
        world.notification(forgotten)
        return real(*given)

    monkeypatch.setattr(actions, "force_expire", slowly)
    world.time.advance(minutes=1)
    assert not_paid(the("payment-unknown")).resolved
    assert world.fresh(forgotten).status == "expired"
    world.time.advance(minutes=1)
    world.run_worker()
    assert world.fresh(forgotten).status == "paid"


def test_what_a_version_that_allowed_it_has_accepted_of_an_open_payment_is_told_again(
    world: World,
    doubted: Review,
    forgotten: Payment,
) -> None:
    closing.resolve(doubted.pk, "we know", "ann", dismissed=True)
    world.time.advance(days=1)
    world.run_worker()
    assert world.reviews() == ["transaction-no-missing"]


def test_what_the_gateway_says_of_a_payment_that_is_settled_is_accepted(
    world: World,
    doubted: Review,
    forgotten: Payment,
) -> None:
    assert not_paid(doubted).resolved
    with transaction.atomic():
        open_review(
            ReviewReason.AMOUNT_MISMATCH, "It says 10.00.", "worker", world.fresh(forgotten)
        )
    told = the("amount-mismatch")
    assert actions.actions_for(told) == ("poll", "dismiss")
    world.time.advance(minutes=1)
    with pytest.raises(InvalidRequest, match="is expired by now"):
        not_paid(told)
    assert actions.take_action(told.pk, "dismiss", staff="ann", note="refunded there").resolved


def test_i9_an_answer_in_hand_is_outrun_by_what_a_persons_question_has_learnt_meanwhile(
    world: World,
) -> None:
    """A person's question is answered by the gateway: only a person's word counts for less."""
    payment = world.start(world.order())
    read, answer = world.fresh(payment), NotFound(asked_at=timezone.now())
    world.time.advance(seconds=10)
    world.shopper_pays(payment)
    actions.poll_now(payment, "ann")
    reconciling.apply_answer(read, answer, "worker")
    assert world.fresh(payment).status == "paid"
    assert world.reviews() == []


def test_a_payment_that_moves_is_not_unknown_any_more_whichever_door_brought_the_news(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    world.pays_late(forgotten)
    found()
    world.notification(forgotten)
    assert world.fresh(forgotten).status == "paid"
    assert world.reviews() == []


def test_i5_what_was_not_read_is_not_settled_by_entering_a_refund(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.set_options({"word_paid": "part-refunded"})
    actions.poll_now(payment, "ann")
    read = the("changed-after-paid")
    world.sandbox.control.set_options({"word_paid": "charged-back"})
    world.time.advance(minutes=1)
    actions.poll_now(world.fresh(payment), "bob")
    with pytest.raises(ActionNotPossible, match=r"it says something else by now: .*'charged-back'"):
        actions.take_action(
            read.pk,
            "record-external-refund",
            staff="ann",
            amount="2.00",
            newest_refund=0,
            expected_version=read.version,
        )
    with pytest.raises(RefundNotPossible, match="it says something else by now"):
        record_external_refund(payment.pk, "2.00", staff="ann", about=read)
    assert not Refund.objects.exists()


def test_i2_what_was_accepted_is_told_again_after_an_answer_in_order_that_a_notification_brought(
    world: World,
    doubted: Review,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    assert not_paid(doubted).resolved
    found()
    world.time.advance(minutes=1)
    world.notification(forgotten)
    assert world.fresh(forgotten).status == "paid"
    found(transaction_no=None)
    world.time.advance(hours=2)
    world.run_worker()
    assert world.reviews() == ["transaction-no-missing"]


def test_a_number_of_two_payments_is_no_matter_of_a_refund_for_another_reason(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be one and the same money behind both orders: then the other has none any more."""
    first, second = world.paid_payment(), world.start(world.order())
    Payment.objects.filter(pk=first.pk).update(transaction_no=world.fresh(second).transaction_no)
    world.shopper_pays(second)
    world.notification(second)
    queueing.refund(second.pk, "2.50", staff="ann", reason="a cup was broken")
    queueing.refund(second.pk, "10.00", staff="ann", reason="the rest as well")
    assert world.reviews() == ["duplicate-transaction-no"]


def test_i2_a_payment_that_was_let_expire_is_told_again_once_the_gateway_says_that_it_is_paid(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    found(amount=Decimal("10.00"))
    actions.poll_now(forgotten, "bob")
    world.time.advance(minutes=1)
    assert not_paid(the("amount-mismatch")).resolved
    assert world.reviews() == []
    world.pays_late(forgotten)
    world.time.advance(days=1)
    world.run_worker()
    message = (
        f"Payment {forgotten.reference}: the gateway says that it is paid, but the amount "
        "is USD 10.00 instead of USD 12.50."
    )
    assert the("amount-mismatch").message == message
    assert world.fresh(forgotten).status == "expired"


def test_i5_on_the_payments_own_page_too_nothing_is_settled_that_was_not_read(world: World) -> None:
    payment = world.paid_payment()
    for word in ("part-refunded", "charged-back"):
        world.sandbox.control.set_options({"word_paid": word})
        actions.poll_now(world.fresh(payment), "ann")
        world.time.advance(minutes=1)
    for read in ("", "0123456789abcdef"):
        with pytest.raises(
            RefundNotPossible,
            match=r"it says something else by now: .*'charged-back'",
        ):
            record_external_refund(payment.pk, "2.00", staff="ann", expected_version=read)
    assert record_external_refund(
        payment.pk,
        "2.00",
        staff="ann",
        expected_version=the("changed-after-paid").version,
    )
    assert world.reviews() == []
