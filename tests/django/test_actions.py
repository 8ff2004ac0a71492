"""The review actions of staff: each outcome in words, and each refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from types import ModuleType
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
from tillgate.django.review_text import recommendation_of
from tillgate.django.reviews import closing
from tillgate.django.reviews.opening import open_review
from tillgate.hooks import RefundOutcome
from tillgate.lifecycle import Found, NotFound, ReviewReason
from tillgate.wire.dialects import TransactionStatus


def held(world: World) -> tuple[Payment, Review]:
    """Return a paid payment of a cancelled order, and its review."""
    payment = world.start(world.order())
    ShopOrder.objects.update(status="cancelled")
    world.shopper_pays(payment)
    world.notification(payment)
    return world.fresh(payment), Review.objects.select_related("order").get(payment=payment)


def tell_again(review: Review) -> actions.Done:
    return actions.take_action(review.pk, "redeliver", staff="ann")


def test_late_action_names_who_was_quicker(world: World) -> None:
    """An action that comes too late changes nothing and names the clerk that resolved it."""
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


def test_unsuitable_action_is_refused_with_reason(world: World) -> None:
    _, review = held(world)
    with pytest.raises(ActionNotPossible, match=r"^'poll' does not resolve 'paid-not-payable'$"):
        actions.take_action(review.pk, "poll", staff="ann")
    with pytest.raises(ActionNotPossible, match=r"^a note must say why it can stay as it is$"):
        actions.take_action(review.pk, "dismiss", staff="ann")


def test_telling_again_fails_while_shop_refuses(world: World) -> None:
    """Staff read the shop's error while it does not take the money."""
    _, review = held(world)
    done = tell_again(review)
    assert (done.resolved, done.message) == (False, "the shop says: not-payable")


@pytest.fixture
def reopening(world: World) -> Iterator[list[bool]]:
    """Let the shop reopen cancelled orders, while the list says that it can."""
    manager, can = hooks.plugin_manager(), [True]
    plugin = manager.get_plugin("smallest-shop")

    @hooks.hookimpl
    def tillgate_reopen_order(order: hooks.Order) -> bool:
        return bool(can[-1] and ShopOrder.objects.filter(pk=order.key).update(status="open"))

    own = {name: one for name, one in vars(plugin).items() if name.startswith("tillgate_")}
    extended = ModuleType("extended")
    vars(extended).update(own, tillgate_reopen_order=tillgate_reopen_order)
    manager.unregister(plugin)
    manager.register(extended, name="smallest-shop")
    yield can
    manager.unregister(extended)
    manager.register(plugin, name="smallest-shop")


def test_reopening_delivers_late_money_at_once(world: World, reopening: list[bool]) -> None:
    payment, review = held(world)
    assert actions.actions_for(review) == ("refund", "reopen", "redeliver", "dismiss")
    assert "Reopen and deliver" in recommendation_of(review.reason, actions.actions_for(review))
    done = actions.take_action(review.pk, "reopen", staff="ann")
    assert (done.resolved, world.shop.times_paid(payment.order.key)) == (True, 1)
    second = actions.take_action(review.pk, "reopen", staff="bob")
    assert (second.resolved, world.shop.times_paid(payment.order.key)) == (True, 1)


def test_reopening_says_why_the_shop_cannot(world: World, reopening: list[bool]) -> None:
    """Nothing has changed then."""
    _, review = held(world)
    reopening.append(False)
    said = "^the shop cannot reopen the order: it is cancelled$"
    with pytest.raises(ActionNotPossible, match=said):
        actions.take_action(review.pk, "reopen", staff="ann")
    assert OutboxEvent.objects.filter(kind="payment-paid", done_at=None).count() == 0


def test_reopening_is_offered_by_plugins_that_can(world: World) -> None:
    _, review = held(world)
    assert actions.actions_for(review) == ("refund", "redeliver", "dismiss")
    assert "Deliver again" in recommendation_of(review.reason, actions.actions_for(review))
    with pytest.raises(ActionNotPossible, match="'reopen' does not resolve"):
        actions.take_action(review.pk, "reopen", staff="ann")


def test_i4_telling_again_refused_for_paid_order(world: World) -> None:
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    other = world.start(payment.order.key)
    world.shopper_pays(other)
    world.notification(other)
    with pytest.raises(ActionNotPossible, match=f"^order {payment.order} is paid already$"):
        tell_again(review)


def test_telling_again_refused_for_unpaid_payment(world: World) -> None:
    payment, review = held(world)
    Payment.objects.filter(pk=payment.pk).update(status="pending")
    with pytest.raises(ActionNotPossible, match=f"^payment {payment.reference} is not paid$"):
        tell_again(review)


def test_telling_again_refused_after_partial_refund(world: World) -> None:
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


def test_telling_again_reuses_event_under_way(
    world: World,
) -> None:
    """A second press waits for the outbox event under way and queues no other."""
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


def test_accepted_review_stops_pending_redelivery(world: World) -> None:
    """If staff accept the review while the redelivery waits, the event is not delivered again."""
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


def test_telling_again_about_another_review_continues(
    world: World,
) -> None:
    """Accepting the first review does not stop a redelivery for another one."""
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


def test_review_accepted_during_redelivery_names_who(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A colleague that accepts it at that moment is named, and the event is not delivered."""
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


def test_review_not_accepted_while_refund_waits(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Staff must withdraw a queued refund of the payment before they accept the review."""
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


def test_second_press_withdraws_only_shown_refund(
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


def test_refund_of_another_payment_not_withdrawn(world: World) -> None:
    _, review = held(world)
    ShopOrder.objects.update(status="open")
    other = queue(world.paid_payment())
    with pytest.raises(ActionNotPossible, match=r"^no refund of this payment waits to be sent$"):
        actions.take_action(review.pk, "withdraw", staff="bob", withdraws=other.pk)
    assert Refund.objects.get().status == "queued"


def test_review_not_accepted_while_sending_refund(world: World) -> None:
    payment, review = held(world)
    refund = queueing.refund(payment.pk, "1.00")
    Refund.objects.filter(pk=refund.pk).update(status="sending")
    with pytest.raises(
        ActionNotPossible,
        match=r"^a refund of USD 1\.00 of this payment is sending: look again in a moment$",
    ):
        actions.take_action(review.pk, "dismiss", staff="bob", note="shipped")


def test_unrelated_review_accepted_while_refund_waits(
    world: World,
) -> None:
    """A review that is not about the payment's money can still be accepted."""
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


def test_other_payments_refund_blocks_nothing(
    world: World,
) -> None:
    """A queued refund of another payment does not stop staff from accepting, and stays queued."""
    _, review = held(world)
    ShopOrder.objects.update(status="open")
    other = queue(world.paid_payment())
    assert "withdraw" not in actions.actions_for(review)
    with pytest.raises(ActionNotPossible, match=r"^no refund of this payment waits to be sent$"):
        actions.take_action(review.pk, "withdraw", staff="bob")
    assert actions.take_action(review.pk, "dismiss", staff="bob", note="shipped").resolved
    assert Refund.objects.get(pk=other.pk).status == "queued"


def test_withdrawing_nothing_is_refused_in_words(world: World) -> None:
    _, review = held(world)
    with pytest.raises(ActionNotPossible, match=r"^no refund of this payment waits to be sent$"):
        actions.take_action(review.pk, "withdraw", staff="ann")


def test_telling_again_waits_for_earlier_event(world: World) -> None:
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
def test_order_reopens_only_if_shop_agrees(
    world: World,
    status: str,
    reopened: bool,
) -> None:
    """A closed order is reopened only if the shop takes money for it again."""
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


def test_order_never_closed_is_not_reopened(world: World) -> None:
    _, review = held(world)
    ShopOrder.objects.update(status="open")
    assert tell_again(review).resolved
    assert not Review.objects.get().order.timeline.filter(event="order.reopened").exists()  # type: ignore[union-attr]


def test_failing_event_is_retried_with_outcome(
    world: World,
    configure: Callable[..., None],
) -> None:
    """Staff can retry a failing outbox event and read its outcome."""
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


def test_retry_resolves_review_of_delivered_event(world: World) -> None:
    """An outbox event that was delivered in the meantime counts as resolved."""
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


def test_remote_event_is_retried_over_network(
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


def test_external_refund_entered_unless_view_stale(
    world: World,
) -> None:
    """A newer refund that the clerk has not seen refuses the entry."""
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
def test_staff_finding_resolves_unknown_refund(
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
def test_asking_about_late_refund_skips_payment(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
    is_over: bool,
) -> None:
    """The gateway is asked about the refund and not about its payment."""
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
def test_staff_finding_resolves_late_refund(
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


def test_refund_action_records_person_reason_key(world: World) -> None:
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


def test_only_successful_refund_settles_overpaid_order(
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


def test_workers_refund_also_settles_overpaid_order(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The refund settles the review even if the worker sends it later."""
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


def test_i4_refund_before_redelivery_pays_nothing(
    world: World,
) -> None:
    """A payment refunded before the shop hears of it again does not pay the order."""
    payment, review = held(world)
    ShopOrder.objects.update(status="open")
    with world.failing_handler("tillgate_payment_paid", times=1):
        assert not tell_again(review).resolved
    assert actions.take_action(review.pk, "refund", staff="ann", amount="12.50").resolved
    world.a_day_passes()
    assert Order.objects.get().paid_by is None
    assert (world.shop.times_paid(payment.order.key), world.reviews()) == (0, [])


def test_i4_partial_refund_before_redelivery_pays_nothing(
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


def test_paid_order_closes_its_earlier_reviews(world: World) -> None:
    """Once the order is paid, no review asks why it was not."""
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


def test_doubt_resolves_once_answer_is_orderly(
    world: World,
) -> None:
    """Asking again resolves a review only when the gateway's answer is in order."""
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


def test_silent_gateway_asked_about_newest_payment(
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


def test_i12_no_action_inside_a_transaction(world: World) -> None:
    payment, review = held(world)
    acts: dict[str, Callable[[], Any]] = {
        "take_action": lambda: actions.take_action(review.pk, "dismiss", staff="ann", note="x"),
        "poll_now": lambda: actions.poll_now(payment, "ann"),
    }
    for name, action in acts.items():
        with pytest.raises(RuntimeError, match=f"^{name} uses the network"), transaction.atomic():
            action()


@pytest.mark.parametrize("colleague", ["redeliver", "dismiss"])
def test_refund_not_sent_after_colleague_settles(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    colleague: str,
) -> None:
    """A colleague that settles the review at the same moment stops the refund."""
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
def test_not_found_leaves_earlier_doubt_open(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    *,
    is_over: bool,
) -> None:
    """That the gateway does not know the payment settles no doubt about its earlier answer."""
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


def test_external_refund_stopped_by_colleagues_ruling(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No refund is entered when a colleague rules it out at the same moment."""
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


def test_redelivery_stopped_by_colleague_settling_review(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event is not delivered again when a colleague settles the review at the same moment."""
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


def test_accepting_abandons_undeliverable_remote_event(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The outbox events that wait behind it are then delivered."""
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


def test_shops_own_event_retried_despite_acceptance(
    world: World,
) -> None:
    """A shop event is delivered again even if staff accept the review."""
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


# Payments without an answer -----------------------------------------------------------------------


def unknown() -> None:
    raise OrderNotFound("000022", "order not found", 400)


def silenced() -> None:
    raise OutcomeUnknown("query", "", "no answer")


def the(reason: str) -> Review:
    return Review.objects.get(reason=reason, resolved_at=None)


@pytest.fixture
def forgotten(world: World, gateway: dict[str, Callable[[], object]]) -> Payment:
    """A payment after its time that the gateway does not know."""
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
    """Let the gateway know the payment again, as it stands or with a changed answer."""
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


def test_i2_unknown_open_payment_is_not_accepted(
    world: World,
    forgotten: Payment,
) -> None:
    """Dismissed, it would stay open without end, and keep its order waiting."""
    review = the("payment-unknown")
    assert actions.actions_for(review) == ("poll", "mark-expired")
    with pytest.raises(ActionNotPossible, match=r"^its payment is open: ask again"):
        actions.take_action(review.pk, "dismiss", staff="ann", note="their index lags")
    assert not_paid(review).resolved
    world.time.advance(hours=2)
    world.run_worker()
    assert world.shop.is_released(forgotten.order.key)


def test_unknown_paid_payment_accepted_never_expired(
    world: World,
    gateway: dict[str, Callable[[], object]],
) -> None:
    """A paid payment that the gateway does not know can be accepted but not expired."""
    payment = world.paid_payment()
    gateway[payment.reference] = unknown
    world.time.advance(hours=2)
    world.run_worker()
    review = the("payment-unknown")
    assert actions.actions_for(review) == ("poll", "dismiss")
    with pytest.raises(InvalidRequest, match="is paid by now"):
        not_paid(review)


def test_i2_newer_answer_stops_manual_expiry(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """Queried once more before that, it says that it is paid, without its transaction."""
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


def test_i2_recent_question_blocks_manual_expiry(
    world: World,
    forgotten: Payment,
    configure: Callable[..., None],
) -> None:
    """Its answer may be on its way."""
    configure(NOTIFICATION_THROTTLE_SECONDS=5)
    actions.poll_now(forgotten, "bob")
    done = not_paid(the("payment-unknown"))
    assert (done.resolved, done.message) == (
        False,
        "the gateway was asked a moment ago: try again in a few seconds",
    )
    assert world.fresh(forgotten).is_open


def test_payment_known_again_is_not_expired(
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


def test_doubtful_answer_closes_unknown_review(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """Else no button would end it: the review cannot be dismissed while the payment is open, and
    offers no force-expire.
    """
    found(amount=Decimal("10.00"))
    world.time.advance(hours=1)
    world.run_worker()
    assert world.reviews() == ["amount-mismatch"]
    world.time.advance(hours=1)
    world.run_worker()
    assert world.reviews() == ["amount-mismatch"]


def test_i2_other_open_review_blocks_expiry(
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


def test_i2_manual_expiry_leaves_account_review_open(
    world: World,
    forgotten: Payment,
) -> None:
    with transaction.atomic():
        open_review(ReviewReason.WRONG_CREDENTIALS, "Refused.", "worker", forgotten)
    world.time.advance(minutes=1)
    assert not_paid(the("payment-unknown")).resolved
    assert world.reviews() == ["wrong-credentials"]


def test_colleagues_resolution_stops_manual_expiry(
    world: World,
    forgotten: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    review, real = the("payment-unknown"), by_staff.force_expire

    def too_late(*given: Any) -> Payment:
        closing.resolve(review.pk, "the shopper has a receipt", "bob")
        return real(*given)

    monkeypatch.setattr(actions, "force_expire", too_late)
    with pytest.raises(InvalidRequest, match="was resolved by another clerk in the meantime"):
        not_paid(review)
    assert world.fresh(forgotten).is_open


def test_i2_late_answer_reported_after_manual_expiry(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
    gateway: dict[str, Callable[[], object]],
) -> None:
    """An answer already in hand opens a review even if staff have just expired the payment."""
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
    """The review of a payment that the gateway reports paid without its transaction."""
    world.pays_late(forgotten)
    found(transaction_no=None)
    world.time.advance(hours=1)
    world.run_worker()
    return the("transaction-no-missing")


def test_i2_open_payments_doubt_is_not_accepted(
    world: World,
    doubted: Review,
) -> None:
    """If it were accepted, it would be unknown when staff mark the payment as expired after the
    gateway stopped answering.
    """
    assert actions.actions_for(doubted) == ("poll", "mark-expired")
    with pytest.raises(
        ActionNotPossible,
        match=r"^its payment is open: ask again, or marks it as expired",
    ):
        actions.take_action(doubted.pk, "dismiss", staff="ann", note="we know")


def test_i2_reported_paid_expires_only_when_read(
    world: World,
    doubted: Review,
    forgotten: Payment,
    gateway: dict[str, Callable[[], object]],
) -> None:
    """Only staff that have read that the gateway reports the payment paid can expire it."""
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


def test_expired_payment_repeats_only_new_doubts(
    world: World,
    doubted: Review,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """The doubt that staff read when they expired a payment opens no review again, but new doubts
    do.
    """
    assert not_paid(doubted).resolved
    for _ in range(3):
        world.time.advance(hours=12)
        world.run_worker()
    assert world.reviews() == []
    found(amount=Decimal("10.00"))
    world.time.advance(days=7)
    world.run_worker()
    assert world.reviews() == ["amount-mismatch"]


def test_i2_money_of_expired_payment_is_found(
    world: World,
    doubted: Review,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """The payment becomes paid once the gateway gives a complete answer."""
    assert not_paid(doubted).resolved
    found()
    world.time.advance(days=1)
    world.run_worker()
    assert world.fresh(forgotten).status == "paid"


PENDING_WITH_ANOTHER_AMOUNT = {"amount": Decimal("10.00"), "status": TransactionStatus.PENDING}


@pytest.fixture
def waiting(world: World, forgotten: Payment, found: Callable[..., None]) -> Review:
    """The review of a payment that the gateway reports unpaid, of another amount."""
    found(**PENDING_WITH_ANOTHER_AMOUNT)
    world.time.advance(hours=1)
    world.run_worker()
    return the("amount-mismatch")


def test_i2_paid_answer_outweighs_unpaid_review(
    world: World,
    waiting: Review,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """A review that says unpaid cannot expire a payment that the gateway now calls paid."""
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
def test_i2_paid_report_outlasts_later_answers(
    world: World,
    waiting: Review,
    forgotten: Payment,
    found: Callable[..., None],
    gateway: dict[str, Callable[[], object]],
    since: str,
) -> None:
    """A payment once reported paid expires only for staff that read so, after any later answer."""
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


def test_i2_paid_notification_stops_manual_expiry(
    world: World,
    waiting: Review,
    forgotten: Payment,
    found: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The payment stays open if a notification finds it reported paid at that moment."""
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


def test_changing_answer_does_not_block_expiry(
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


def test_i2_payment_awaiting_shopper_is_not_expired(
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
def test_i2_forgotten_paid_report_needs_a_person(
    world: World,
    doubted: Review,
    forgotten: Payment,
    gateway: dict[str, Callable[[], object]],
    *,
    was_created: bool,
) -> None:
    """A payment that the gateway reported paid and no longer knows is left to staff."""
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


def test_i2_later_answer_hides_no_paid_report(
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


def test_settled_payment_reports_newest_answer(
    world: World,
    doubted: Review,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """The gateway's answer about a settled payment opens a review after any earlier answer."""
    assert not_paid(doubted).resolved
    for answer in (PAID_WITH_ANOTHER_AMOUNT, PENDING_WITH_ANOTHER_AMOUNT):
        found(**answer)
        world.time.advance(minutes=1)
        actions.poll_now(world.fresh(forgotten), "bob")
    assert the("amount-mismatch").message.endswith(
        ": the amount is USD 10.00 instead of USD 12.50.",
    )


def test_i2_paid_report_outweighs_unrecognised_status(
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
def test_i2_unrecognised_status_ends_nothing(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    *,
    forgets: bool,
) -> None:
    """After a paid answer, an unrecognised status leaves the payment open."""
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
def test_i2_answer_older_than_paid_report_ignored(
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


def test_i2_paid_answer_told_despite_not_found(
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


def test_answer_learnt_while_expiring_is_retold(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """An answer that came only when staff expired the payment opens a review later."""
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


def test_alternating_silence_and_unknown_reported_once(
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


def test_i2_new_doubt_is_read_before_expiring(
    world: World,
    doubted: Review,
    found: Callable[..., None],
) -> None:
    """Another doubt that it is paid, not yet mailed."""
    found(**PAID_WITH_ANOTHER_AMOUNT)
    world.time.advance(minutes=1)
    with pytest.raises(InvalidRequest, match="it is paid, but the amount"):
        not_paid(doubted, expected_version=doubted.version)
    world.time.advance(minutes=1)
    assert not_paid(doubted, expected_version=doubted.version).resolved, (
        "it stands beside it by now"
    )


def test_staff_question_shows_unrecognised_status(
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
def test_forgotten_payment_expires_despite_unrecognised_status(
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


def test_unrecognised_status_not_reported_once_closed(
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


def test_i7_notification_while_expiring_advances_next_query(
    world: World,
    forgotten: Payment,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    gateway: dict[str, Callable[[], object]],
) -> None:
    """The next query comes earlier if a notification arrives while staff expire the payment."""
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


def test_previously_accepted_open_payment_is_retold(
    world: World,
    doubted: Review,
    forgotten: Payment,
) -> None:
    """An older version allowed staff to dismiss this review."""
    closing.resolve(doubted.pk, "we know", "ann", dismissed=True)
    world.time.advance(days=1)
    world.run_worker()
    assert world.reviews() == ["transaction-no-missing"]


def test_settled_payments_review_can_be_accepted(
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


def test_i9_staff_question_outruns_older_answer(
    world: World,
) -> None:
    """The gateway answers the question of staff: only the word of staff counts for less."""
    payment = world.start(world.order())
    read, answer = world.fresh(payment), NotFound(asked_at=timezone.now())
    world.time.advance(seconds=10)
    world.shopper_pays(payment)
    actions.poll_now(payment, "ann")
    reconciling.apply_answer(read, answer, "worker")
    assert world.fresh(payment).status == "paid"
    assert world.reviews() == []


def test_any_news_closes_the_unknown_review(
    world: World,
    forgotten: Payment,
    found: Callable[..., None],
) -> None:
    """A payment that moves on is not unknown any more, even if a notification brought the news."""
    world.pays_late(forgotten)
    found()
    world.notification(forgotten)
    assert world.fresh(forgotten).status == "paid"
    assert world.reviews() == []


def test_i5_external_refund_settles_nothing_unread(world: World) -> None:
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


def test_i2_accepted_doubt_returns_after_orderly_answer(
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


def test_unrelated_refund_keeps_duplicate_number_review(
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


def test_i2_expired_payment_retold_when_reported_paid(
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


def test_i5_payments_own_page_settles_nothing_unread(world: World) -> None:
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
