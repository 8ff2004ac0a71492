"""Payments: started, reconciled, closed; each test names its promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate import Account, ConfigurationError, InvalidRequest, NotSent, hooks
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review, TimelineEntry
from tillgate.django.orders.locking import InsideTransaction
from tillgate.django.payments import reconciling, starting
from tillgate.django.payments.admission import NotPayable
from tillgate.django.payments.creating import StartOutcome
from tillgate.django.payments.reconciling import (
    apply_answer,
    ask,
    claim_poll,
    facts_of,
    is_unchanged,
)
from tillgate.django.reviews.opening import version_of
from tillgate.django.worker.run import run_worker
from tillgate.lifecycle import (
    Decision,
    Found,
    Inconclusive,
    PaymentFacts,
    PaymentStatus,
    ReviewReason,
)
from tillgate.sandbox import PUBLISHED_STORE_NO
from tillgate.wire.dialects import REFERENCE, V3, Dialect


def test_i1_only_gateway_query_makes_order_paid(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    assert payment.payment_url.startswith(world.sandbox.base_url)
    world.notification(payment, f"status=success&amount=12.50&reference={payment.reference}")
    assert not world.shop.is_paid(order)
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.shop.is_paid(order)
    assert world.fresh(payment).status == "paid"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong_amount", "amount-mismatch"),
        ("missing_amount", "amount-missing"),
        ("wrong_currency", "currency-mismatch"),
        ("missing_currency", "currency-mismatch"),
        ("wrong_settle_currency", "currency-mismatch"),
        ("wrong_transaction_no", "transaction-no-mismatch"),
    ],
)
def test_i1_disagreeing_paid_answer_awaits_staff(
    world: World,
    fault: str,
    reason: str,
) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    world.sandbox.control.fault(fault, occasion="query")
    world.notification(payment)
    assert world.reviews() == [reason]
    assert not world.shop.is_paid(order)
    world.notification(payment)  # the next answer is right
    assert world.shop.is_paid(order)


def test_i2_worker_finds_payment_without_notification(
    world: World,
) -> None:
    """The payment is found although both its notification and its return are lost."""
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    world.time.advance(seconds=6)
    assert world.run_worker().news["changed"] == 1
    assert world.shop.is_paid(order)


def test_i2_money_of_lost_creation_is_found(world: World) -> None:
    order = world.order()
    world.sandbox.control.fault("lost_response", occasion="pay")
    started = starting.start_payment(world.shop.plugin, order, method="alipay")
    assert (started.outcome, started.payment.status) == (StartOutcome.UNKNOWN, "created")
    world.shopper_pays(started.payment)
    world.time.advance(seconds=6)
    world.run_worker()
    assert world.shop.is_paid(order)


def test_i2_tail_poll_finds_late_money(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(ORDER_UNPAID_AFTER_MINUTES=600)
    order = world.order()
    payment = world.start(order)
    world.time.advance(hours=3)
    world.run_worker()
    assert world.fresh(payment).status == "closed"
    world.pays_late(payment)
    world.time.advance(hours=2)
    world.run_worker()
    assert world.shop.is_paid(order)


def test_i2_money_after_months_is_found(
    world: World,
) -> None:
    """The worker finds it although its notification was lost."""
    payment = world.start(world.order())
    for days in (1, 10, 35):
        world.time.advance(days=days)
        world.run_worker()
    world.pays_late(payment)
    world.time.advance(days=31)
    world.run_worker()
    assert (world.fresh(payment).status, world.reviews()) == ("paid", ["paid-not-payable"])


@pytest.mark.parametrize(
    ("dialect", "reviews", "external"),
    [(REFERENCE, ["changed-after-paid"], 0), (V3, [], 1)],
)
def test_i2_external_refund_is_found_year_later(
    world: World,
    configure: Callable[..., None],
    dialect: Dialect,
    reviews: list[str],
    external: int,
) -> None:
    """It becomes a review or an external refund, depending on the dialect."""
    configure({"DIALECT": dialect} | ({"STORE_NO": PUBLISHED_STORE_NO} if dialect is V3 else {}))
    world.sandbox.control.set_options({"word_refunded": "refunded"})
    payment = world.paid_payment()
    world.time.advance(days=365)
    world.run_worker()
    world.sandbox.control.refund(payment.reference, "12.50")
    world.time.advance(days=31)
    world.run_worker()
    assert (world.reviews(), Refund.objects.filter(external=True).count()) == (reviews, external)


def test_i2_chargeback_is_found_year_later(
    world: World,
) -> None:
    """The bank takes the money back, and the gateway sends no notification."""
    payment = world.paid_payment()
    world.time.advance(days=365)
    world.run_worker()
    world.sandbox.control.reverse(payment.reference)
    world.time.advance(days=31)
    world.run_worker()
    assert world.reviews() == ["changed-after-paid"]


def test_i2_late_money_after_release_needs_review(world: World) -> None:
    """The shop has already released the order."""
    order = world.order()
    payment = world.start(order)
    world.time.advance(hours=3)
    world.run_worker()
    world.time.advance(hours=2)
    world.run_worker()
    assert world.shop.is_released(order)
    world.pays_late(payment)
    world.time.advance(days=1)
    world.run_worker()
    assert world.fresh(payment).status == "paid"
    assert world.reviews() == ["paid-not-payable"]


def test_i3_repeated_notifications_tell_shop_once(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    for _ in range(5):
        assert world.notification(payment).content == b"success"
        world.come_back(payment)
    assert world.shop.times_paid(order) == 1
    assert OutboxEvent.objects.count() == 1


def test_i4_second_payment_is_reviewed_not_delivered(world: World) -> None:
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    world.shopper_pays(first)
    world.shopper_pays(second)
    world.notification(first)
    world.notification(second)
    assert world.shop.times_paid(order) == 1
    assert world.fresh(second).status == "paid"
    assert world.reviews() == ["second-payment"]
    assert Order.objects.get().paid_by == first


def test_i4_undelivered_payment_blocks_second_payment(
    world: World,
) -> None:
    """No second payment starts while the first one's event cannot be delivered."""
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid", times=99):
        world.notification(payment)
        assert (world.fresh(payment).status, world.shop.is_paid(order)) == ("paid", False)
        again = starting.start_payment(world.shop.plugin, order, method="paypal")
    assert (again.outcome, again.payment.pk) == ("paid", payment.pk)
    assert len(world.sandbox.service.transactions()) == 1


def test_i4_money_for_closed_order_is_reviewed(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shop.close_order(order)
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.fresh(payment).status == "paid"
    assert world.reviews() == ["paid-not-payable"]
    assert world.shop.times_paid(order) == 0


def test_i4_changed_order_total_raises_review(
    world: World,
) -> None:
    """An order that shrank is paid as well; one that grew is not."""
    grown, shrunk = world.order(), world.order()
    for order, total in ((grown, "20.00"), (shrunk, "10.00")):
        payment = world.start(order)
        world.shop.edit_total(order, Decimal(total))
        world.shopper_pays(payment)
        world.notification(payment)
    assert world.reviews() == ["underpaid", "overpaid"]
    assert not world.shop.is_paid(grown)
    assert world.shop.is_paid(shrunk)


def test_i7_notification_flood_causes_one_query(
    world: World,
    configure: Callable[..., None],
) -> None:
    """One query is sent per throttle interval."""
    configure(NOTIFICATION_THROTTLE_SECONDS=5)
    payment = world.start(world.order())
    before = world.queries()
    for _ in range(50):
        world.notification(payment)
    assert world.queries() == before + 1
    due = world.fresh(payment).next_poll_at
    assert due is not None
    assert due <= timezone.now() + timedelta(seconds=5)


def test_i8_new_attempt_gets_new_reference(world: World) -> None:
    order = world.order()
    world.sandbox.control.fault("lost_request", occasion="pay")
    first = world.start(order)
    world.time.advance(seconds=20)
    second = world.start(order)
    assert first.reference != second.reference
    assert first.reference.startswith(f"S{order}-")


def test_i9_a_paid_payment_never_moves_back(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    world.time.advance(days=2)
    world.run_worker()
    assert world.fresh(payment).status == "paid"
    assert world.reviews() == ["changed-after-paid"]


def test_i10_every_change_leaves_timeline_entry(world: World) -> None:
    """A poll that changes nothing leaves none."""
    payment = world.start(world.order())
    before = TimelineEntry.objects.count()
    world.notification(payment)
    world.come_back(payment)
    assert TimelineEntry.objects.count() == before
    world.shopper_pays(payment)
    world.notification(payment)
    assert list(TimelineEntry.objects.values_list("event", flat=True)) == [
        "payment.created",
        "payment.pending",
        "payment.paid",
        "event.delivered",
    ]


def test_i12_nothing_is_sent_inside_transaction(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    for action in (
        lambda: world.start(order),
        lambda: reconciling.reconcile(payment, "test"),
        run_worker,
    ):
        with pytest.raises(InsideTransaction, match="inside a transaction"), transaction.atomic():
            action()


def test_a_double_click_makes_one_payment(world: World) -> None:
    order = world.order()
    assert world.start(order).pk == world.start(order).pk


def test_another_method_is_another_payment(world: World) -> None:
    order = world.order()
    assert world.start(order).pk != world.start(order, "paypal").pk


def test_start_finds_earlier_paid_payment(
    world: World,
) -> None:
    """The notification of the earlier payment was lost."""
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    again = starting.start_payment(world.shop.plugin, order, method="paypal")
    assert (again.outcome, again.payment.pk) == (StartOutcome.PAID, payment.pk)
    assert world.shop.is_paid(order)


def test_shopper_may_retry_refused_creation(world: World) -> None:
    order = world.order()
    world.sandbox.control.fault("refused", occasion="pay")
    started = starting.start_payment(world.shop.plugin, order, method="alipay")
    assert (started.outcome, started.payment.status) == (StartOutcome.REFUSED, "failed")
    assert (
        starting.start_payment(world.shop.plugin, order, method="alipay").outcome
        is StartOutcome.REDIRECT
    )


@pytest.mark.parametrize("state", ["paid", "cancelled"])
def test_unpayable_order_is_refused_without_sending(
    world: World,
    state: str,
) -> None:
    order = world.order()
    ShopOrder.objects.update(status=state)
    with pytest.raises(NotPayable, match=state):
        world.start(order)
    assert not Payment.objects.exists()
    assert not world.sandbox.service.transactions()


def test_method_not_offered_is_refused(
    world: World,
    configure: Callable[..., None],
) -> None:
    configure(PAYMENT_METHODS=["paypal"])
    with pytest.raises(InvalidRequest, match="not offered"):
        world.start(world.order())


def test_wrong_merchant_number_raises_one_review(
    world: World,
    configure: Callable[..., None],
) -> None:
    """No order is closed because of it."""
    payments = [world.start(world.order()) for _ in range(3)]
    configure({"TOKEN": "another token"})
    for _ in range(12):
        world.time.advance(minutes=15)
        world.run_worker()
    assert {world.fresh(payment).status for payment in payments} == {"pending"}
    assert world.reviews() == ["wrong-credentials"]


def test_payments_of_changed_account_are_held(
    world: World,
    configure: Callable[..., None],
) -> None:
    """One review covers all of them."""
    payment = world.start(world.order())
    configure({"MERCHANT_NO": "999"})
    world.notification(payment)
    world.notification(payment)
    assert world.reviews() == ["account-gone"]
    assert world.fresh(payment).status == "pending"


def test_unknown_account_fails_before_any_write(world: World) -> None:
    with pytest.raises(ConfigurationError, match="'elsewhere'"):
        starting.start_payment(
            world.shop.plugin,
            world.order(),
            method="alipay",
            account="elsewhere",
        )
    assert not Payment.objects.exists()


def test_an_unrecognised_status_past_expiry_is_raised(world: World) -> None:
    payment = world.start(world.order())
    world.sandbox.control.set_options({"word_pending": "settling", "word_expired": "settling"})
    try:
        world.time.advance(hours=3)
        world.run_worker()
    finally:
        world.sandbox.control.set_options({"word_pending": "pending", "word_expired": "closed"})
    assert world.reviews() == ["unrecognised-status"]
    assert world.fresh(payment).status == "pending"


def test_open_payment_delays_unpaid_message(
    world: World,
) -> None:
    """The shop hears that an order is unpaid only when no payment is open."""
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    world.sandbox.control.decline(first.reference)
    world.notification(first)
    assert world.fresh(first).status == "failed"
    world.time.advance(minutes=61)
    world.run_worker()
    assert world.shop.is_payable(order)
    world.sandbox.control.decline(second.reference)
    world.notification(second)
    assert world.shop.is_payable(order)  # the shopper may still try again
    world.time.advance(minutes=61)
    world.run_worker()
    assert world.shop.is_released(order)


# Looking ------------------------------------------------------------------------------------------


def about(moment: datetime | None, seconds: float) -> bool:
    """Tell whether a moment is in so many seconds, or nearly."""
    return moment is not None and abs((moment - timezone.now()).total_seconds() - seconds) < 5


def test_i7_poll_is_claimed_once_per_interval(
    world: World,
    configure: Callable[..., None],
) -> None:
    """A denied claim brings the next poll forward."""
    configure(NOTIFICATION_THROTTLE_SECONDS=30)
    payment = world.start(world.order())
    world.time.advance(minutes=7)
    Payment.objects.update(next_poll_at=timezone.now() + timedelta(hours=1))
    payment = world.fresh(payment)
    assert claim_poll(payment, "h" * 32, counted={"notifications": 1, "forged_notifications": 2})
    row = world.fresh(payment)
    assert (row.notifications, row.forged_notifications, row.last_notification) == (1, 2, "h" * 32)
    assert (payment.notifications, payment.last_polled_at, payment.next_poll_at) == (
        1,
        row.last_polled_at,
        row.next_poll_at,
    )
    assert about(row.last_polled_at, 0)
    assert about(row.next_poll_at, 30 + 60), (
        "should this process die, the worker looks after a minute"
    )
    Payment.objects.update(next_poll_at=timezone.now() + timedelta(hours=1))
    payment = world.fresh(payment)
    assert not claim_poll(payment, counted={"notifications": 1})
    assert about(world.fresh(payment).next_poll_at, 30)
    assert world.fresh(payment).last_notification == "h" * 32
    Payment.objects.update(next_poll_at=timezone.now() + timedelta(seconds=10))
    assert not claim_poll(world.fresh(payment))
    assert about(world.fresh(payment).next_poll_at, 10), "it is not put off"
    Payment.objects.update(next_poll_at=None)
    assert not claim_poll(world.fresh(payment))
    assert about(world.fresh(payment).next_poll_at, 30)
    world.time.advance(seconds=30)
    assert claim_poll(world.fresh(payment))


def test_i7_stale_claim_keeps_newer_counts(
    world: World,
    configure: Callable[..., None],
) -> None:
    """Notifications counted since the row was read are not lost."""
    configure(NOTIFICATION_THROTTLE_SECONDS=30)
    payment = world.start(world.order())
    old = world.fresh(payment)
    assert claim_poll(payment, counted={"notifications": 1})
    assert not claim_poll(old, "h" * 32, counted={"notifications": 1})
    assert (old.notifications, world.fresh(payment).notifications) == (2, 2)
    assert (old.last_notification, world.fresh(payment).last_notification) == ("h" * 32, "h" * 32)


def test_i7_poll_may_repeat_exactly_after_interval(
    world: World,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(NOTIFICATION_THROTTLE_SECONDS=30)
    payment, moment = world.start(world.order()), timezone.now()
    claims = []
    for after in (0, 29, 30):
        monkeypatch.setattr(timezone, "now", lambda after=after: moment + timedelta(seconds=after))
        claims.append(claim_poll(world.fresh(payment)))
    assert claims == [True, False, True]


def test_notification_claims_no_paid_payment_poll(world: World) -> None:
    """Staff may still poll a paid payment."""
    payment = world.paid_payment()
    due = payment.next_poll_at
    assert not claim_poll(payment, counted={"notifications": 1})
    assert (world.fresh(payment).next_poll_at, payment.notifications) == (
        due,
        world.fresh(payment).notifications,
    )
    assert claim_poll(payment)


def test_reconcile_after_recent_poll_returns_row(
    world: World,
    configure: Callable[..., None],
) -> None:
    """The payment is returned as stored, without another query."""
    payment = world.start(world.order())
    configure(NOTIFICATION_THROTTLE_SECONDS=30)
    assert reconciling.reconcile(payment, "test").status == "pending"
    world.shopper_pays(payment)
    before = world.queries()
    Payment.objects.update(description="as it stands")
    seen = reconciling.reconcile(payment, "test")
    assert (seen.status, seen.description, world.queries()) == ("pending", "as it stands", before)
    with (
        pytest.raises(InsideTransaction, match=r"^reconcile uses the network"),
        transaction.atomic(),
    ):
        reconciling.reconcile(payment, "test")


def test_waiting_caller_gets_one_short_attempt(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker may take longer and try again."""
    asked: list[tuple[str, Any, Any]] = []
    real = hooks.query

    def query(account: Account, reference: str, **bounds: Any) -> Any:
        asked.append((reference, bounds["deadline_seconds"], bounds["attempts"]))
        return real(account, reference, **bounds)

    monkeypatch.setattr(hooks, "query", query)
    payment = world.start(world.order())
    ask(payment)
    reconciling.reconcile(payment, "test")
    world.notification(payment)
    assert asked == [
        (payment.reference, None, None),
        (payment.reference, 5.0, 1),
        (payment.reference, 5.0, 1),
    ]


def test_anything_preventing_query_is_inconclusive(
    world: World,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    payment = world.start(world.order())

    def breaking(*_: object, **__: object) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(hooks, "query", breaking)
        assert ask(payment) == Inconclusive(detail="ZeroDivisionError in a plugin")
    assert f"the query of {payment.reference} failed in a plugin" in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(reconciling, "account_of", breaking)
        assert ask(payment) == Inconclusive(detail="ZeroDivisionError in a plugin")
    assert f"the account of {payment.reference} could not be found" in caplog.text
    with monkeypatch.context() as patch:
        error = NotSent("query", "x", "connection refused")
        patch.setattr(hooks, "query", lambda *_, **__: (_ for _ in ()).throw(error))
        assert ask(payment) == Inconclusive(detail=str(error))
    configure({"MERCHANT_NO": "999"})
    gone = ask(payment)
    assert isinstance(gone, Inconclusive)
    assert (gone.review, gone.detail.startswith("merchant_no: '999' was ")) == (
        ReviewReason.ACCOUNT_GONE,
        True,
    )


def test_facts_are_row_and_certain_refunds(world: World) -> None:
    """Refunds of unknown outcome do not count as refunded."""
    payment = world.paid_payment()
    known = {"payment": payment, "created_at": timezone.now(), "status_since": timezone.now()}
    for amount, status in (("1.10", "succeeded"), ("2.20", "succeeded"), ("4.00", "unknown")):
        Refund.objects.create(amount=Decimal(amount), status=status, **known)
    facts = PaymentFacts(
        reference=payment.reference,
        amount=Decimal("12.50"),
        status=PaymentStatus.PAID,
        expires_at=payment.expires_at,
        closes_at=payment.page_closes_at,
        currency="USD",
        transaction_no=payment.transaction_no,
        refunded=Decimal("3.30"),
    )
    assert facts_of(payment) == facts
    assert facts_of(payment, Decimal(9)).refunded == 9
    payment.currency, payment.status = "EUR", "closed"
    assert (facts_of(payment).currency, facts_of(payment).refunded) == ("EUR", Decimal(0))


# Applying -----------------------------------------------------------------------------------------


def test_unchanging_answer_sets_next_poll(world: World) -> None:
    payment = world.fresh(world.start(world.order()))
    world.time.advance(seconds=20)
    apply_answer(payment, ask(payment), "test")
    assert about(world.fresh(payment).next_poll_at, 10), "thirty seconds after it was begun"
    world.time.advance(minutes=30)
    apply_answer(payment, ask(payment), "test")
    assert about(world.fresh(payment).next_poll_at, 600)
    apply_answer(payment, Inconclusive(detail="time-out"), "test")
    assert about(world.fresh(payment).next_poll_at, 120)
    Payment.objects.update(next_poll_at=timezone.now(), notifications=7)
    apply_answer(payment, ask(payment), "test")
    assert about(world.fresh(payment).next_poll_at, 0), (
        "a notification that came since has brought it forward"
    )


def test_answer_schedules_only_its_own_payment(world: World) -> None:
    first, second = world.start(world.order()), world.start(world.order())
    world.time.advance(minutes=30)
    later = timezone.now() + timedelta(hours=5)
    Payment.objects.update(status_since=first.status_since, next_poll_at=later)
    payment = world.fresh(first)
    apply_answer(payment, ask(payment), "test")
    assert about(world.fresh(first).next_poll_at, 600)
    assert world.fresh(second).next_poll_at == later


def test_stale_answer_keeps_next_poll_time(world: World) -> None:
    """The payment has changed its status since the query."""
    payment = world.fresh(world.start(world.order()))
    answer = ask(payment)
    later = timezone.now() + timedelta(hours=5)
    Payment.objects.update(status="closed", status_since=timezone.now(), next_poll_at=later)
    apply_answer(payment, answer, "test")
    assert world.fresh(payment).next_poll_at == later


def test_answer_fills_in_transaction_number(world: World) -> None:
    """The payment keeps its status."""
    payment = world.fresh(world.start(world.order()))
    number = payment.transaction_no
    Payment.objects.update(transaction_no=None)
    payment.transaction_no = None
    seen = apply_answer(payment, ask(payment), "test")
    row = world.fresh(payment)
    assert (seen.transaction_no, row.transaction_no, row.status, row.status_since) == (
        number,
        number,
        "pending",
        payment.status_since,
    )
    assert seen.order == payment.order
    entry = TimelineEntry.objects.get(actor="test")
    assert (entry.event, entry.message, entry.payment) == (
        "payment.identified",
        f"transaction {number}",
        row,
    )
    apply_answer(row, ask(row), "test")
    assert TimelineEntry.objects.get(actor="test") == entry, "it is learnt once"


def test_answer_predating_paid_changes_nothing(
    world: World,
) -> None:
    world.sandbox.control.fault("lost_response", occasion="pay")
    read = world.fresh(world.start(world.order()))
    assert read.status == "created"
    pending = ask(read)
    assert isinstance(pending, Found)
    world.shopper_pays(read)
    world.notification(read)
    assert world.fresh(read).status == "paid"
    seen = apply_answer(
        read,
        replace(pending, asked_at=timezone.now() + timedelta(seconds=20)),
        "test",
    )
    assert (seen.status, world.reviews()) == ("paid", [])


def test_answer_asked_at_status_moment_counts(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query sent in the same instant as the last status change is not too old."""
    moment = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: moment)
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    apply_answer(payment, ask(payment), "test")
    assert world.reviews() == ["changed-after-paid"]
    review = Review.objects.get()
    assert (review.order, review.payment, review.account) == (payment.order, payment, "default")
    assert review.message.startswith(
        f"Payment {payment.reference}: it was paid, and now the gateway says ",
    )
    assert TimelineEntry.objects.get(event="review.opened").actor == "test"
    assert not TimelineEntry.objects.filter(event="payment.identified").exists(), (
        "its number was known"
    )


def test_known_review_makes_answer_unchanged(world: World) -> None:
    """An answer brings nothing new if a review of the same fact is already open."""
    payment = world.fresh(world.start(world.order()))
    of_account, of_payment = (
        "wrong-credentials:account:default",
        f"amount-mismatch:payment:{payment.pk}",
    )
    for reason, key, other in (
        (ReviewReason.WRONG_CREDENTIALS, of_account, of_payment),
        (ReviewReason.AMOUNT_MISMATCH, of_payment, of_account),
    ):
        decision = Decision(
            status=PaymentStatus.PENDING,
            transaction_no=payment.transaction_no,
            detail="so",
            review=reason,
        )
        assert is_unchanged(
            payment,
            decision,
            {
                key: version_of(
                    reason,
                    {"error": "so"} if reason is ReviewReason.WRONG_CREDENTIALS else {},
                    subject="default"
                    if reason is ReviewReason.WRONG_CREDENTIALS
                    else payment.reference,
                )[1],
            },
        )
        assert not is_unchanged(
            payment,
            decision,
            {
                other: version_of(
                    reason,
                    {"error": "so"} if reason is ReviewReason.WRONG_CREDENTIALS else {},
                    subject="default"
                    if reason is ReviewReason.WRONG_CREDENTIALS
                    else payment.reference,
                )[1],
            },
        )
        is_of_account = reason is ReviewReason.WRONG_CREDENTIALS
        assert is_unchanged(payment, decision, {key: "It said something else."}) is is_of_account, (
            "whichever payment met it"
        )


def test_inconclusive_answer_can_raise_review(
    world: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The payment is polled again soon."""
    payment = world.fresh(world.start(world.order()))
    world.time.advance(minutes=30)
    seen = apply_answer(
        payment,
        Inconclusive(detail="bad signature", review=ReviewReason.SIGNATURE_MISMATCH),
        "test",
    )
    assert seen.status == "pending"
    review = Review.objects.get()
    assert (review.reason, review.message) == (
        "signature-mismatch",
        "Account default: bad signature.",
    )
    assert (review.payment, review.account, review.evidence) == (
        payment,
        "default",
        {"reference": payment.reference},
    )
    assert about(world.fresh(payment).next_poll_at, 120)
    [heard] = [vars(entry) for entry in caplog.records if entry.name == "tillgate.events"]
    assert (heard["event"], heard["actor"]) == ("review.opened", "test")


@pytest.mark.parametrize(
    ("word", "status", "seconds"),
    [
        ("success", "paid", 3600),
        ("failed", "failed", 3600),
        ("closed", "closed", 3600),
        ("pending", "pending", 600),
    ],
)
def test_answer_writes_status_and_next_poll(
    world: World,
    word: str,
    status: str,
    seconds: float,
) -> None:
    world.sandbox.control.fault("lost_response", occasion="pay")
    payment = world.fresh(world.start(world.order()))
    began = payment.status_since
    world.time.advance(minutes=5)
    if word != "pending":
        world.shopper_pays(payment)
        world.sandbox.control.set_options({"word_paid": word})
    try:
        seen = apply_answer(payment, ask(payment), "test")
    finally:
        world.sandbox.control.set_options({"word_paid": "success"})
    row = world.fresh(payment)
    assert (seen.status, row.status) == (status, status)
    assert row.transaction_no
    assert about(row.status_since, 0)
    assert row.status_since > began
    assert about(row.next_poll_at, seconds)
    entry = TimelineEntry.objects.get(event=f"payment.{status}")
    assert (entry.payment, entry.actor, entry.evidence["status"]) == (payment, "test", word)
    unpaid = row.order.unpaid_check_at
    assert about(unpaid, 3600) if status in ("failed", "closed") else unpaid is None
    assert OutboxEvent.objects.filter(kind="payment-paid", payment=payment).count() == (
        status == "paid"
    )


def test_i7_answer_keeps_poll_brought_forward(
    world: World,
) -> None:
    """A notification that arrives during a query brings the next poll forward."""
    world.sandbox.control.fault("lost_response", occasion="pay")
    payment = world.fresh(world.start(world.order()))
    answer = ask(payment)
    soon = timezone.now() + timedelta(seconds=1)
    Payment.objects.update(notifications=1, next_poll_at=soon)
    apply_answer(payment, answer, "test")
    assert (world.fresh(payment).status, world.fresh(payment).next_poll_at) == ("pending", soon)


def test_i7_notification_during_query_delays_no_poll(
    world: World,
) -> None:
    world.sandbox.control.fault("lost_response", occasion="pay")
    payment = world.fresh(world.start(world.order()))
    world.time.advance(minutes=30)
    answer = ask(payment)
    Payment.objects.update(notifications=1, next_poll_at=timezone.now() + timedelta(hours=5))
    apply_answer(payment, answer, "test")
    assert about(world.fresh(payment).next_poll_at, 600)


def test_i9_answer_older_than_status_moves_nothing(
    world: World,
) -> None:
    payment = world.fresh(world.start(world.order()))
    before = ask(payment)
    world.shopper_pays(payment)
    world.notification(payment)
    paid = world.fresh(payment)
    apply_answer(payment, before, "test")
    assert apply_answer(paid, before, "test").status == "paid"
    assert world.reviews() == []
    assert world.fresh(payment).next_poll_at == paid.next_poll_at


def test_duplicate_transaction_number_raises_review(
    world: World,
) -> None:
    """Both payments are paid."""
    first, second = world.paid_payment(), world.start(world.order())
    Payment.objects.filter(pk=first.pk).update(transaction_no=second.transaction_no)
    world.shopper_pays(second)
    world.notification(second)
    assert world.shop.is_paid(second.order.key)
    review = Review.objects.get()
    assert (review.reason, review.payment, review.order) == (
        "duplicate-transaction-no",
        second,
        second.order,
    )
    said = (
        f"The gateway gave transaction {second.transaction_no} to {second.reference} and to "
        f"{first.reference}."
    )
    assert (review.message, TimelineEntry.objects.get(event="review.opened").actor) == (
        said,
        "webhook",
    )


def test_sandbox_and_live_may_share_numbers(
    world: World,
) -> None:
    """A transaction number given out by both raises no review."""
    first, second = world.paid_payment(), world.start(world.order())
    Payment.objects.filter(pk=first.pk).update(transaction_no=second.transaction_no, sandbox=False)
    world.shopper_pays(second)
    world.notification(second)
    assert world.shop.is_paid(second.order.key)
    assert world.reviews() == []


@pytest.mark.parametrize("word", ["pending", "failed"])
def test_unpaid_duplicate_number_raises_no_review(
    world: World,
    word: str,
) -> None:
    first = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="pay")
    second = world.fresh(world.start(world.order()))
    Payment.objects.filter(pk=first.pk).update(
        transaction_no=world.sandbox.service.find(second.reference).transaction_no,
    )
    if word == "failed":
        world.sandbox.control.decline(second.reference)
    assert apply_answer(second, ask(second), "test").status == word
    assert world.reviews() == []


def test_missing_numbers_are_not_duplicates(world: World) -> None:
    for _ in range(2):
        world.sandbox.control.fault("lost_request", occasion="pay")
        payment = world.fresh(world.start(world.order()))
        world.time.advance(hours=3)
        assert apply_answer(payment, ask(payment), "test").status == "expired"
        assert TimelineEntry.objects.get(event="payment.expired", payment=payment).evidence == {}
    assert world.reviews() == []


def test_paid_payment_queues_its_outbox_event(world: World) -> None:
    payment = world.paid_payment()
    outbox_event = OutboxEvent.objects.get()
    assert (outbox_event.kind, outbox_event.payment, outbox_event.order) == (
        "payment-paid",
        payment,
        payment.order,
    )
    assert about(outbox_event.created_at, 0)


def test_i3_worker_delivers_after_process_ends(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process ends before it can tell the shop."""
    with monkeypatch.context() as patch:
        patch.setattr(reconciling, "deliver", lambda order_id: 0)
        payment = world.paid_payment()
    assert (payment.status, world.shop.times_paid(payment.order.key)) == ("paid", 0)
    world.run_worker()
    assert world.shop.times_paid(payment.order.key) == 1
