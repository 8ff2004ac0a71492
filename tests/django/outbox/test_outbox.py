"""Outbox events: exactly once, in order, and retried when the shop's handler fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.utils import timezone, translation

from tests.django.conftest import World
from tests.smallest_shop import plugin as shop_plugin
from tests.smallest_shop.models import ShopOrder
from tests.smallest_shop.placing import unregistered
from tillgate import hooks
from tillgate.django import actions
from tillgate.django import models as rows
from tillgate.django.accounting.audit import audit
from tillgate.django.models import Order, OutboxEvent, OutboxEventKind, Review, TimelineEntry
from tillgate.django.orders import registering
from tillgate.django.orders.locking import InsideTransaction
from tillgate.django.orders.values import payment_value
from tillgate.django.outbox import attempts, delivering, remote
from tillgate.django.outbox.attempts import retry
from tillgate.django.outbox.delivering import deliver
from tillgate.django.outbox.handlers import is_unpaid
from tillgate.django.outbox.remote import deliver_remote, enqueue_remote
from tillgate.django.payments import reconciling
from tillgate.django.refunds import queueing, settling
from tillgate.hooks import PaidOutcome, Payment, RemoteEvent


@pytest.fixture
def failing_shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A shop with a handler that writes and then raises, as long as the list holds something."""
    faults: list[str] = ["the shop's database is away"]
    real = shop_plugin.tillgate_payment_paid

    def breaking(plugin: str, hook: str, **arguments: Any) -> Any:
        if hook == "tillgate_payment_paid":
            outcome = real(**arguments)
            if faults:
                raise RuntimeError(faults[0])
            return outcome
        return call_owner(plugin, hook, **arguments)

    call_owner = hooks.call_owner
    monkeypatch.setattr("tillgate.hooks.call_owner", breaking)
    return faults  # type: ignore[return-value]


def test_i3_failed_handler_rolls_back_and_retries(
    world: World,
    failing_shop: list[str],
) -> None:
    payment = world.paid_payment()
    assert payment.status == "paid"
    assert world.shop.times_paid(payment.order.key) == 0
    failing_shop.clear()
    world.time.advance(minutes=1)
    world.run_worker()
    assert world.shop.times_paid(payment.order.key) == 1


def test_orders_without_due_events_stay_unlocked(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    failing_shop: list[str],
) -> None:
    """Due events of all other orders are delivered."""
    waiting = world.paid_payment().order
    failing_shop.clear()
    told = world.paid_payment().order
    enqueue_remote(world.shop.plugin, told.key, "invoice")
    locked, real = list[int](), delivering.deliver_now

    def deliver_now(order_id: int) -> int:
        locked.append(order_id)
        return real(order_id)

    monkeypatch.setattr(delivering, "deliver_now", deliver_now)
    world.time.advance(minutes=1)
    for order in (told, waiting, waiting):
        delivering.deliver_due(order.pk)
    assert locked == [waiting.pk]
    assert world.shop.times_paid(waiting.key) == 1


def test_missing_paid_hook_is_reported(world: World) -> None:
    """A shop without the hook that marks orders paid gets an error."""
    shop = hooks.plugin_manager().get_plugin("smallest-shop")
    hooks.plugin_manager().unregister(shop)
    forgetful = ModuleType("forgetful")
    vars(forgetful)["tillgate_describe_order"] = shop.tillgate_describe_order  # type: ignore[union-attr]
    hooks.plugin_manager().register(forgetful, name="smallest-shop")
    try:
        payment = world.paid_payment()
    finally:
        hooks.plugin_manager().unregister(forgetful)
        hooks.plugin_manager().register(shop, name="smallest-shop")
    fault = OutboxEvent.objects.get(payment=payment).fault
    assert (
        fault
        == "ConfigurationError: plugin: 'smallest-shop' does not implement tillgate_payment_paid, "
        "which marks an order paid"
    )


def test_failing_handler_opens_review(
    world: World,
    failing_shop: list[str],
) -> None:
    """The payment stays paid."""
    payment = world.paid_payment()
    for _ in range(5):
        world.time.advance(hours=1)
        world.run_worker()
    assert world.reviews() == ["delivery-failing"]
    assert world.fresh(payment).status == "paid"
    assert "database is away" in Review.objects.get().message
    failing_shop.clear()
    outbox_event = OutboxEvent.objects.get(kind="payment-paid")
    retry(outbox_event.pk)
    assert deliver(outbox_event.order_id) == 1
    assert world.shop.times_paid(payment.order.key) == 1


def test_failure_in_the_log_names_its_order(
    world: World,
    failing_shop: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Staff search the log by the order's number, and no row's number is of use to them."""
    order = world.paid_payment().order
    event = OutboxEvent.objects.get(kind="payment-paid")
    assert failing_shop
    assert f"outbox event {event.event_id} of order {order} failed" in caplog.text


def test_outbox_events_wait_for_previous_one(
    world: World,
    failing_shop: list[str],
) -> None:
    """This applies to the events of one order."""
    payment = world.paid_payment()
    from tillgate.django.refunds import queueing

    queueing.refund(payment.pk, "2.50")
    assert world.shop.refunded(payment.order.key) == 0
    failing_shop.clear()
    world.time.advance(minutes=1)
    world.run_worker()
    kinds = list(OutboxEvent.objects.order_by("done_at", "id").values_list("kind", flat=True))
    assert kinds == ["payment-paid", "refund-changed"]
    assert str(world.shop.refunded(payment.order.key)) == "2.50"


class Mailer:
    """A plugin that carries outbox events over the network, and fails as often as it should."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.said = failures, ""
        self.carried: list[tuple[str, str]] = []
        self.languages: list[str | None] = []

    @hooks.hookimpl
    def tillgate_deliver(self, outbox_event: RemoteEvent) -> str | None:
        self.carried.append((outbox_event.event_id, outbox_event.name))
        self.languages.append(translation.get_language())
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the mail server is away")
        return self.said or None

    @hooks.hookimpl
    def tillgate_describe_order(self, order_key: str) -> hooks.OrderDescription | None:
        return shop_plugin.tillgate_describe_order(order_key)

    @hooks.hookimpl
    def tillgate_payment_paid(self, payment: Payment) -> PaidOutcome:
        enqueue_remote(
            "mailing-shop",
            payment.order.key,
            "confirmation",
            data={"to": "ann@example.com"},
            payment_id=payment.id,
        )
        enqueue_remote("mailing-shop", payment.order.key, "invoice", payment_id=payment.id)
        return PaidOutcome.APPLIED


@pytest.fixture
def mailer(world: World) -> Iterator[Mailer]:
    mailing = Mailer(failures=1)
    hooks.plugin_manager().register(mailing, name="mailing-shop")
    world.shop.plugin = "mailing-shop"
    yield mailing
    hooks.plugin_manager().unregister(mailing)


def test_i3_remote_event_retries_keep_its_id(
    world: World,
    mailer: Mailer,
) -> None:
    """Remote events go out in order, each under one event id until it succeeds."""
    payment = world.paid_payment()
    assert mailer.carried == []
    world.run_worker()
    world.time.advance(minutes=1)
    world.run_worker()
    names = [name for _, name in mailer.carried]
    assert names == ["confirmation", "confirmation", "invoice"]
    assert mailer.carried[0][0] == mailer.carried[1][0]
    assert not OutboxEvent.objects.filter(done_at__isnull=True).exists()
    assert deliver_remote(payment.order_id) == 0


def test_failed_events_come_last(
    world: World,
    mailer: Mailer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mailer.failures = 0
    with world.failing_handler("tillgate_payment_paid"):
        failed = world.paid_payment().order
    enqueue_remote("mailing-shop", failed.key, "reminder")
    world.time.advance(minutes=1)
    # the process dies before it delivers
    monkeypatch.setattr(delivering, "deliver_now", lambda _: 0)
    fresh = world.paid_payment().order
    world.run_worker()
    told = list(
        TimelineEntry.objects.filter(event="event.delivered")
        .order_by("id")
        .values_list("order__key", "message"),
    )
    at = {
        (key, message.split(": ")[1].split()[0]): place for place, (key, message) in enumerate(told)
    }
    last = at[failed.key, "payment-paid"]
    assert at[fresh.key, "payment-paid"] < last
    assert at[failed.key, "reminder"] < last


def test_delayed_remote_event_blocks_no_other(
    world: World,
    mailer: Mailer,
) -> None:
    """It has its turn afterwards."""
    order, mailer.failures = world.start(world.order()).order, 0
    enqueue_remote("mailing-shop", order.key, "reminder", delay=timedelta(minutes=30))
    enqueue_remote("mailing-shop", order.key, "receipt")
    world.run_worker()
    world.time.advance(minutes=29)
    world.run_worker()
    assert [name for _, name in mailer.carried] == ["receipt"]
    world.time.advance(minutes=1)
    world.run_worker()
    assert [name for _, name in mailer.carried] == ["receipt", "reminder"]


def test_timeline_says_why_nothing_was_sent(world: World, mailer: Mailer) -> None:
    order, mailer.failures, mailer.said = (
        world.start(world.order()).order,
        0,
        "not mailed: no address\0",
    )
    enqueue_remote("mailing-shop", order.key, "receipt")
    world.run_worker()
    assert order.timeline.get(event="event.delivered").message == "not mailed: no address\ufffd"


def test_failing_remote_event_opens_review(
    world: World,
    mailer: Mailer,
) -> None:
    mailer.failures = 3
    payment = world.paid_payment()
    for _ in range(3):
        world.time.advance(hours=1)
        world.run_worker()
    assert world.reviews() == ["delivery-failing"]
    said = (
        f"The shop could not send confirmation of order mailing-shop:{payment.order.key}: "
        "ConnectionError"
    )
    assert Review.objects.get().message.startswith(said)


def test_dead_workers_remote_event_is_resumed(
    world: World,
    mailer: Mailer,
) -> None:
    """Another worker takes the event over after its lease."""
    from tillgate.django.outbox.remote import _claim_remote

    mailer.failures = 0
    payment = world.paid_payment()
    assert _claim_remote(payment.order_id)
    assert deliver_remote(payment.order_id) == 0
    world.time.advance(minutes=3)
    assert deliver_remote(payment.order_id) == 2


def test_shop_is_told_in_its_language(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The language of the notification's request has no effect."""
    heard: list[str | None] = []
    real = hooks.call_owner

    def listening(plugin: str, hook: str, **arguments: Any) -> Any:
        heard.append(translation.get_language())
        return real(plugin, hook, **arguments)

    payment = world.start(world.order())
    world.shopper_pays(payment)
    monkeypatch.setattr(hooks, "call_owner", listening)
    with translation.override("de"):
        reconciling.reconcile(payment, "return")
    assert set(heard) == {"en-us"}


# Writing and delivering ---------------------------------------------------------------------------


def in_seconds(outbox_event: OutboxEvent) -> int | None:
    """Return in how many seconds an outbox event is due."""
    return (
        round((outbox_event.due_at - timezone.now()).total_seconds())
        if outbox_event.due_at
        else None
    )


def shop_says(monkeypatch: pytest.MonkeyPatch, outcome: object) -> None:
    """Let the shop answer a paid payment with something of its own."""
    real = hooks.call_owner
    monkeypatch.setattr(
        hooks,
        "call_owner",
        lambda plugin, hook, **rest: (
            outcome if hook.endswith("_paid") else real(plugin, hook, **rest)
        ),
    )


def test_finished_outbox_event_says_so(world: World) -> None:
    """Its row records the outcome and the time."""
    outbox_event = OutboxEvent.objects.get(payment=world.paid_payment())
    assert (
        outbox_event.outcome,
        outbox_event.attempts,
        outbox_event.due_at,
        outbox_event.fault,
    ) == ("applied", 1, None, "")
    assert outbox_event.done_at
    assert outbox_event.done_at >= outbox_event.created_at
    assert Order.objects.get().paid_by == outbox_event.payment


def test_timeline_records_deliveries_and_results(world: World) -> None:
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "12.50")
    unpaid = world.start(unregistered()).order
    rows.Payment.objects.filter(order=unpaid).update(status="failed")
    OutboxEvent.objects.create(
        order=unpaid,
        kind="order-unpaid",
        created_at=timezone.now(),
        due_at=timezone.now(),
    )
    deliver(unpaid.pk)
    told = rows.TimelineEntry.objects.filter(event="event.delivered").order_by("id")
    assert [(entry.message, entry.order, entry.payment, entry.refund) for entry in told] == [
        ("the shop was told: payment-paid (applied)", payment.order, payment, None),
        ("the shop was told: refund-changed (succeeded)", payment.order, payment, refund),
        ("the shop was told: order-unpaid", unpaid, None, None),
    ]
    assert [entry.actor for entry in told] == [
        f"outbox:{outbox_event.event_id}" for outbox_event in OutboxEvent.objects.order_by("id")
    ]


def test_missing_order_is_no_delivery_failure(world: World) -> None:
    with pytest.raises(Order.DoesNotExist):
        deliver(4711)


def test_failed_event_retries_at_growing_intervals(
    world: World,
) -> None:
    """It is tried again at least every hour."""
    with world.failing_handler("tillgate_payment_paid", times=99):
        payment = world.paid_payment()
        circuit_breaker = []
        for _ in range(12):
            outbox_event = OutboxEvent.objects.get(kind="payment-paid")
            circuit_breaker.append(in_seconds(outbox_event))
            world.time.advance(seconds=(circuit_breaker[-1] or 0) + 1)
            assert deliver(payment.order_id) == 0
    assert circuit_breaker == [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]
    outbox_event = OutboxEvent.objects.get(kind="payment-paid")
    assert (outbox_event.attempts, outbox_event.done_at) == (13, None)
    assert outbox_event.fault == "ShopIsDown: tillgate_payment_paid was made to fail by the test"
    world.time.advance(seconds=3595)
    assert deliver(payment.order_id) == 0
    world.time.advance(seconds=6)
    assert deliver(payment.order_id) == 1
    outbox_event.refresh_from_db()
    assert (outbox_event.attempts, outbox_event.fault, outbox_event.due_at) == (14, "", None)


def test_long_fault_text_is_shortened(
    world: World,
    failing_shop: list[str],
) -> None:
    failing_shop[0] = "x" * 2000
    payment = world.paid_payment()
    for _ in range(2):
        world.time.advance(hours=1)
        world.run_worker()
    outbox_event = OutboxEvent.objects.get()
    assert outbox_event.fault == f"RuntimeError: {'x' * 986}"
    review = Review.objects.get()
    assert (
        review.message
        == f"The shop could not be told payment-paid of order {payment.order}: RuntimeError: "
        f"{'x' * 186}"
    )
    assert (review.order, review.payment, review.outbox_event, review.refund) == (
        payment.order,
        payment,
        outbox_event,
        None,
    )
    failing_shop.clear()
    world.time.advance(hours=1)
    world.run_worker()
    review.refresh_from_db()
    assert (review.resolution, review.resolved_by) == ("the shop was told at attempt 4", "tillgate")


def test_failed_refund_event_names_its_refund(world: World) -> None:
    payment = world.paid_payment()
    with world.failing_handler("tillgate_refund_changed", times=3):
        refund = queueing.refund(payment.pk, "1.00")
        for _ in range(2):
            world.time.advance(hours=1)
            world.run_worker()
    review = Review.objects.get()
    assert (review.refund, review.payment) == (refund, payment)
    assert review.message.startswith(
        f"The shop could not be told refund-changed of order {payment.order}: ",
    )
    assert payment.order.timeline.get(event="review.opened").actor == "outbox"


def test_due_events_run_one_by_one(
    world: World,
) -> None:
    """Delivery stops at the first event that is not due."""
    order = world.start(world.order()).order
    for after in (0, 0, 60, 0):
        OutboxEvent.objects.create(
            order=order,
            kind="order-unpaid",
            created_at=timezone.now(),
            due_at=timezone.now() + timedelta(seconds=after),
        )
    assert deliver(order.pk) == 2
    assert deliver(order.pk) == 0
    world.time.advance(seconds=61)
    assert deliver(order.pk) == 2
    assert set(OutboxEvent.objects.values_list("outcome", flat=True)) == {"not-any-more"}
    assert world.shop.is_payable(order.key)


def test_event_done_elsewhere_has_not_failed(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another worker has carried it out in the meantime."""
    outbox_event = OutboxEvent.objects.get(payment=world.paid_payment())
    attempts.note_failure(outbox_event.order_id, outbox_event.pk, RuntimeError("too late"))
    outbox_event.refresh_from_db()
    assert (outbox_event.attempts, outbox_event.fault, outbox_event.due_at) == (1, "", None)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (PaidOutcome.UNDERPAID, "underpaid"),
        (PaidOutcome.NOT_PAYABLE, "paid-not-payable"),
        ("underpaid", "underpaid"),
    ],
)
def test_unapplied_payment_is_held_for_staff(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: object,
    reason: str,
) -> None:
    shop_says(monkeypatch, outcome)
    payment = world.paid_payment()
    review = Review.objects.get()
    assert (review.reason, review.account, review.payment) == (reason, "default", payment)
    assert (
        review.message == f"Payment {payment.reference}: it was paid, and the shop says: {outcome}."
    )
    assert payment.order.timeline.get(event="review.opened").actor == "outbox"
    assert (OutboxEvent.objects.get(kind="payment-paid").outcome, Order.objects.get().paid_by) == (
        str(outcome),
        None,
    )


def test_held_money_explains_reason_and_options(
    world: World,
) -> None:
    """Money that does not pay its order is held for staff."""

    def gone(order: str) -> None:
        ShopOrder.objects.filter(pk=order).delete()

    def closed(order: str) -> None:
        registering.close_order(world.shop.plugin, order)

    def cancelled(order: str) -> None:
        ShopOrder.objects.filter(pk=order).update(status="cancelled")

    def dearer(order: str) -> None:
        world.shop.edit_total(order, Decimal("12.51"))

    def cheaper(order: str) -> None:
        world.shop.edit_total(order, Decimal("12.49"))

    def paid_twice(order: str) -> None:
        other = world.start(order, "paypal")
        world.shopper_pays(other)
        world.notification(other)

    for happens, reason, detail, outcome in (
        (
            gone,
            "paid-not-payable",
            "it was paid, but the shop does not know the order any more",
            "not-payable",
        ),
        (closed, "paid-not-payable", "it was paid, but the shop closed the order", "not-payable"),
        (cancelled, "paid-not-payable", "it was paid, but it is cancelled", "not-payable"),
        (
            dearer,
            "underpaid",
            "USD 12.50 was paid, and the order costs USD 12.51 by now",
            "underpaid",
        ),
        (
            cheaper,
            "overpaid",
            "USD 12.50 was paid, and the order costs USD 12.49 by now",
            "applied",
        ),
        (
            paid_twice,
            "second-payment",
            "the order was paid by another payment already; this one can be refunded",
            "second-payment",
        ),
    ):
        order = world.order()
        payment = world.start(order)
        happens(order)
        world.shopper_pays(payment)
        world.notification(payment)
        review = Review.objects.get(payment=payment)
        assert (review.reason, review.message) == (
            reason,
            f"Payment {payment.reference}: {detail}.",
        )
        assert (review.order, review.account) == (payment.order, "default")
        outbox_event = OutboxEvent.objects.get(kind="payment-paid", payment=payment)
        assert (outbox_event.outcome, outbox_event.fault, world.fresh(payment).status) == (
            outcome,
            "",
            "paid",
        )
        assert (Order.objects.get(pk=payment.order_id).paid_by == payment) == (outcome == "applied")


@pytest.mark.parametrize("outcome", [None, "done", True])
def test_invalid_outcome_counts_as_plugin_fault(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: object,
) -> None:
    """The outbox event is tried again."""
    shop_says(monkeypatch, outcome)
    world.paid_payment()
    outbox_event = OutboxEvent.objects.get()
    shown = "" if outcome is None else f": {outcome!r}"
    said = (
        f"ConfigurationError: tillgate_payment_paid{shown} of plugin smallest-shop must return "
        "a PaidOutcome"
    )
    assert (outbox_event.fault, outbox_event.done_at) == (said, None)


def test_repeated_second_payment_applies_once(world: World) -> None:
    payment = world.paid_payment()
    OutboxEvent.objects.create(
        order=payment.order,
        payment=payment,
        kind="payment-paid",
        created_at=timezone.now(),
        due_at=timezone.now(),
    )
    assert deliver(payment.order_id) == 1
    assert OutboxEvent.objects.filter(kind="payment-paid").latest("id").outcome == "not-payable"
    assert world.shop.times_paid(payment.order.key) == 1


def test_order_closing_during_payment_stays_paid(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shop closes the order while marking it paid; the order ends up paid and closed."""
    real = hooks.call_owner

    def closing(plugin: str, hook: str, **arguments: Any) -> Any:
        outcome = real(plugin, hook, **arguments)
        if hook == "tillgate_payment_paid":
            registering.close_order(plugin, arguments["payment"].order.key)
        return outcome

    monkeypatch.setattr(hooks, "call_owner", closing)
    payment = world.paid_payment()
    order = Order.objects.get()
    assert (order.paid_by, order.closed_at is not None) == (payment, True)


def test_applied_retry_closes_only_its_review(
    world: World,
) -> None:
    """Telling the shop again closes the review once the shop applies the payment."""
    held = [world.start(world.order()) for _ in range(2)]
    ShopOrder.objects.update(status="cancelled")
    for payment in held:
        world.shopper_pays(payment)
        world.notification(payment)
    ShopOrder.objects.update(status="open")
    payment, review = held[0], Review.objects.get(payment=held[0])
    about = {"again": review.pk}
    OutboxEvent.objects.create(
        order=payment.order,
        payment=payment,
        kind="payment-paid",
        data=about,
        created_at=timezone.now(),
        due_at=timezone.now(),
    )
    with world.failing_handler("tillgate_payment_paid"):
        deliver(payment.order_id)
        review.refresh_from_db()
        assert review.resolved_at is None
        world.time.advance(minutes=1)
        assert deliver(payment.order_id) == 1
    review.refresh_from_db()
    assert (review.resolution, review.resolved_by) == (
        "the shop was told again, and has applied the payment",
        "tillgate",
    )
    assert Review.objects.get(payment=held[1]).resolved_at is None


def test_returning_shop_hears_refunds_in_order(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shop that was away still hears every status of a refund."""
    told: list[tuple[str, str]] = []
    real = hooks.call_owner

    def listening(plugin: str, hook: str, **arguments: Any) -> Any:
        if hook == "tillgate_refund_changed":
            told.append((arguments["refund"].id, arguments["refund"].status.value))
        return real(plugin, hook, **arguments)

    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    with world.failing_handler("tillgate_refund_changed", times=2):
        refund = queueing.refund(payment.pk, "12.50")
        settling.settle_by_staff(refund.pk, done=True, staff="ann")
    OutboxEvent.objects.create(
        order=payment.order,
        payment=payment,
        refund=refund,
        kind="refund-changed",
        created_at=timezone.now(),
        due_at=timezone.now(),
    )
    monkeypatch.setattr(hooks, "call_owner", listening)
    world.time.advance(minutes=1)
    assert deliver(payment.order_id) == 3
    assert told == [
        (str(refund.pk), "unknown"),
        (str(refund.pk), "succeeded"),
        (str(refund.pk), "succeeded"),
    ]
    outcomes = (
        OutboxEvent.objects.filter(kind="refund-changed")
        .order_by("id")
        .values_list("outcome", flat=True)
    )
    assert list(outcomes) == ["unknown", "succeeded", ""], "the last tells the refund as it stands"


def test_order_without_live_payment_is_unpaid(world: World) -> None:
    """None of its payments is open or holds money."""
    order = world.order()
    payment = world.start(order)
    row = payment.order
    assert not is_unpaid(row)
    rows.Payment.objects.update(status="failed")
    assert is_unpaid(row)
    rows.Payment.objects.update(status="paid")
    assert not is_unpaid(row)
    known = {"payment": payment, "created_at": timezone.now(), "status_since": timezone.now()}
    rows.Refund.objects.create(amount=Decimal("12.49"), status="succeeded", **known)
    rows.Refund.objects.create(amount=Decimal("12.50"), status="unknown", **known)
    assert not is_unpaid(row)
    rows.Refund.objects.create(amount=Decimal("0.01"), status="succeeded", **known)
    assert is_unpaid(row)
    row.paid_by = payment
    assert not is_unpaid(row)


def test_shop_hears_which_order_needs_review(world: World) -> None:
    heard: list[hooks.Review] = []

    class Hearing:
        @hooks.hookimpl
        def tillgate_review_opened(self, review: hooks.Review) -> None:
            heard.append(review)

    payment = world.paid_payment()
    hooks.plugin_manager().register(Hearing(), name="hearing")
    try:
        payment.order.plugin = "hearing"
        payment.order.save()
        world.sandbox.control.reverse(payment.reference)
        actions.poll_now(payment, "ann")
    finally:
        hooks.plugin_manager().unregister(name="hearing")
    raised = Review.objects.get()
    assert raised.payment is not None
    told = payment_value(raised.payment)
    assert heard == [
        hooks.Review(
            id=str(raised.pk),
            reason="changed-after-paid",
            message=raised.message,
            order=told.order,
            payment=told,
        ),
    ]
    assert OutboxEvent.objects.get(kind="review-opened").outcome == ""


def test_unpaid_order_reaches_its_own_shop(world: World) -> None:
    """The shop that placed the order hears that it stays unpaid."""
    order = world.start(unregistered()).order
    rows.Payment.objects.update(status="failed")
    OutboxEvent.objects.create(
        order=order,
        kind="order-unpaid",
        created_at=timezone.now(),
        due_at=timezone.now(),
    )
    assert deliver(order.pk) == 1
    assert (OutboxEvent.objects.get().outcome, world.shop.is_released(order.key)) == ("", True)


def test_outbox_event_runs_exactly_when_due(
    world: World,
    mailer: Mailer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, moment = world.start(world.order()).order, timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: moment)
    OutboxEvent.objects.create(order=order, kind="order-unpaid", created_at=moment, due_at=moment)
    enqueue_remote("mailing-shop", order.key, "receipt")
    mailer.failures = 0
    assert (deliver(order.pk), deliver_remote(order.pk)) == (1, 1)


def test_local_and_remote_events_run_independently(
    world: World,
    mailer: Mailer,
) -> None:
    first, second = world.start(world.order()).order, world.start(world.order()).order
    mailer.failures = 0
    local = {"kind": "order-unpaid", "created_at": timezone.now(), "due_at": timezone.now()}
    OutboxEvent.objects.create(order=first, **local)
    enqueue_remote("mailing-shop", first.key, "receipt")
    assert deliver_remote(first.pk) == 1
    assert list(
        first.outbox_events.filter(done_at__isnull=True).values_list("kind", flat=True),
    ) == ["order-unpaid"]
    enqueue_remote("mailing-shop", second.key, "receipt")
    OutboxEvent.objects.create(order=second, **local)
    assert deliver(second.pk) == 1
    assert list(
        second.outbox_events.filter(done_at__isnull=True).values_list("kind", flat=True),
    ) == ["remote"]


# Over the network.


def test_remote_event_belongs_to_its_order(world: World) -> None:
    """Another shop's order with the same key is not confused with it."""
    order = world.start(world.order()).order
    world.start(world.order())
    Order.objects.create(plugin="another-shop", key=order.key, created_at=timezone.now())
    event = enqueue_remote(world.shop.plugin, order.key, "receipt")
    assert OutboxEvent.objects.get(event_id=event).order == order


def test_remote_event_uses_shop_language(
    world: World,
    mailer: Mailer,
) -> None:
    payment = world.paid_payment()
    mailer.failures = 0
    with translation.override("de"):
        assert deliver_remote(payment.order_id) == 2
    assert mailer.languages == ["en-us", "en-us"]


def test_remote_event_outlasting_lease_acts_once(
    world: World,
    mailer: Mailer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two workers may carry the event, yet it is done once."""
    payment = world.paid_payment()
    mailer.failures = 0
    real = hooks.call_owner

    def slow(plugin: str, hook: str, **arguments: Any) -> Any:
        monkeypatch.setattr(hooks, "call_owner", real)
        world.time.advance(minutes=3)
        assert deliver_remote(payment.order_id) == 2, "another worker takes both"
        return real(plugin, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", slow)
    deliver_remote(payment.order_id)
    assert [name for _, name in mailer.carried] == ["confirmation", "invoice", "confirmation"]
    assert list(OutboxEvent.objects.filter(kind="remote").values_list("attempts", flat=True)) == [
        2,
        1,
    ], "the lost lease is an attempt"
    assert (
        payment.order.timeline.filter(message="carried over the network: confirmation").count() == 1
    )


def test_remote_event_is_due_at_once(
    world: World,
    mailer: Mailer,
) -> None:
    """It is leased for two minutes."""
    payment = world.paid_payment()
    first, second = OutboxEvent.objects.filter(kind="remote").order_by("id")
    assert (first.name, first.data, first.payment, first.refund) == (
        "confirmation",
        {"to": "ann@example.com"},
        payment,
        None,
    )
    assert (second.data, second.due_at is not None) == ({}, True)
    claimed = remote._claim_remote(payment.order_id)
    assert claimed
    assert claimed[0] == first
    first.refresh_from_db()
    assert in_seconds(first) == 120
    assert remote._claim_remote(payment.order_id) is None
    world.time.advance(seconds=119)
    assert remote._claim_remote(payment.order_id) is None
    world.time.advance(seconds=2)
    again = remote._claim_remote(payment.order_id)
    assert again
    assert again[0] == first


def test_failed_remote_event_succeeds_next_time(
    world: World,
    mailer: Mailer,
) -> None:
    """The failure is recorded."""
    payment = world.paid_payment()
    assert deliver_remote(payment.order_id) == 0
    failed = OutboxEvent.objects.get(name="confirmation")
    assert (failed.attempts, failed.fault, in_seconds(failed)) == (
        1,
        "ConnectionError: the mail server is away",
        10,
    )
    world.time.advance(seconds=11)
    assert deliver_remote(payment.order_id) == 2
    failed.refresh_from_db()
    assert (failed.attempts, failed.fault, failed.due_at, failed.done_at is not None) == (
        2,
        "",
        None,
        True,
    )


def test_late_remote_success_closes_review(
    world: World,
    mailer: Mailer,
) -> None:
    """The event had been failing for a long time."""
    mailer.failures = 3
    payment = world.paid_payment()
    for _ in range(4):
        world.time.advance(hours=1)
        deliver_remote(payment.order_id)
    review = Review.objects.get()
    assert (review.payment, review.resolved_by) == (payment, "tillgate")


def test_i12_remote_delivery_runs_outside_transactions(world: World) -> None:
    order = world.start(world.order()).order
    with (
        pytest.raises(InsideTransaction, match=r"^deliver_remote uses the network"),
        transaction.atomic(),
    ):
        deliver_remote(order.pk)


def test_retry_makes_only_one_event_due(
    world: World,
    mailer: Mailer,
) -> None:
    payment = world.paid_payment()
    later = timezone.now() + timedelta(hours=1)
    OutboxEvent.objects.update(due_at=later)
    first = OutboxEvent.objects.get(name="confirmation")
    retry(first.pk)
    first.refresh_from_db()
    assert in_seconds(first) == 0
    assert OutboxEvent.objects.get(name="invoice").due_at == later
    done = OutboxEvent.objects.get(kind="payment-paid")
    OutboxEvent.objects.filter(pk=done.pk).update(due_at=None)
    retry(done.pk)
    done.refresh_from_db()
    assert done.due_at is None
    assert ShopOrder.objects.get(pk=payment.order.key).status == "open", (
        "the mailing shop marks nothing"
    )


def test_i1_other_currency_pays_no_order(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The order has changed its currency since the payment started."""
    payment, real = world.start(world.order()), hooks.call_owner

    def in_another_currency(plugin: str, hook: str, **arguments: Any) -> Any:
        answer = real(plugin, hook, **arguments)
        return (
            dataclasses.replace(answer, currency="KWD")
            if hook == "tillgate_describe_order"
            else answer
        )

    monkeypatch.setattr(hooks, "call_owner", in_another_currency)
    world.shopper_pays(payment)
    world.notification(payment)
    assert (world.fresh(payment).status, world.shop.is_paid(payment.order.key)) == ("paid", False)
    assert world.reviews() == ["paid-not-payable"]
    assert "it was paid in USD, and the order is in KWD by now" in Review.objects.get().message


def test_i4_refunded_payment_pays_no_order(
    world: World,
) -> None:
    """The refund came before the shop heard of the payment."""
    payment = world.start(world.order("12.50"))
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid", times=1):
        world.notification(payment)
    queueing.refund(payment.pk, "12.50")
    world.a_day_passes()
    assert OutboxEvent.objects.get(kind="payment-paid").outcome == "given-back"
    assert (world.shop.times_paid(payment.order.key), world.reviews()) == (0, [])
    assert list(audit(timezone.now() - timedelta(days=9), timezone.now())) == []


def test_partly_refunded_payment_pays_its_order(
    world: World,
) -> None:
    """The partial refund came before the shop heard of the payment."""
    payment = world.start(world.order("12.50"))
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid", times=1):
        world.notification(payment)
    queueing.refund(payment.pk, "2.50")
    world.a_day_passes()
    assert (world.shop.times_paid(payment.order.key), world.shop.refunded(payment.order.key)) == (
        1,
        Decimal("2.50"),
    )


def test_remote_failure_hides_no_local_failure(
    world: World,
    configure: Callable[..., None],
) -> None:
    """Each failing outbox event of a refund has its own review."""
    configure(DELIVERY_TRIES_BEFORE_REVIEW=1)
    payment = world.paid_payment("12.50")
    refund = queueing.refund(payment.pk, "2.50")
    for kind in (OutboxEventKind.REMOTE, OutboxEventKind.REFUND_CHANGED):
        failed = OutboxEvent.objects.create(
            order=payment.order,
            payment=payment,
            refund=refund,
            kind=kind,
            created_at=timezone.now(),
            due_at=timezone.now(),
        )
        attempts.note_failure(payment.order_id, failed.pk, ConnectionError("away"))
        assert failed.reviews.count() == 1


def test_success_closes_other_workers_review(
    world: World,
    mailer: Mailer,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another worker failed to carry the same remote event in the meantime."""
    configure(DELIVERY_TRIES_BEFORE_REVIEW=1)
    payment = world.paid_payment()
    real = hooks.call_owner

    def slow(plugin: str, hook: str, **arguments: Any) -> Any:
        monkeypatch.setattr(hooks, "call_owner", real)
        world.time.advance(minutes=3)
        assert deliver_remote(payment.order_id) == 0, "another worker takes it, and fails"
        assert world.reviews() == ["delivery-failing"]
        return real(plugin, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", slow)
    deliver_remote(payment.order_id)
    assert OutboxEvent.objects.get(name="confirmation").attempts == 3
    assert world.reviews() == []


def test_refunded_second_payment_is_not_reported(
    world: World,
) -> None:
    """It was refunded before its turn came."""
    order = world.order("12.50")
    first, second = world.start(order), world.start(order, "paypal")
    world.shopper_pays(first)
    world.notification(first)
    with world.failing_handler("tillgate_refund_changed", times=1):
        queueing.refund(first.pk, "2.50")
        world.shopper_pays(second)
        world.notification(second)
        queueing.refund(second.pk, "12.50")
    world.a_day_passes()
    assert world.reviews() == []
    assert list(
        OutboxEvent.objects.filter(kind="payment-paid")
        .order_by("id")
        .values_list("outcome", flat=True),
    ) == [
        "applied",
        "given-back",
    ]


def test_i3_handler_swallowing_lost_transaction_reruns(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a deadlock InnoDB rolls everything back, the order's lock included, and the rest would be
    committed alone.
    """
    real, told = hooks.call_owner, list[str]()

    def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
        answer = real(plugin, hook, **arguments)
        if hook == "tillgate_payment_paid":
            told.append(hook)
            if len(told) == 1:
                with connection.cursor() as cursor:
                    cursor.execute("ROLLBACK")  # as the database would
        return answer

    monkeypatch.setattr(hooks, "call_owner", call_owner)
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    world.notification(payment)
    outbox_event = OutboxEvent.objects.get(payment=payment)
    assert (outbox_event.done_at, outbox_event.attempts, world.shop.is_paid(order)) == (
        None,
        1,
        False,
    )
    world.time.advance(minutes=2)
    world.run_worker()
    assert OutboxEvent.objects.get(payment=payment).outcome == "applied"
    assert world.shop.times_paid(order) == 1


@pytest.mark.parametrize(
    "hook",
    [
        "tillgate_order_unpaid",
        "tillgate_refund_changed",
        "tillgate_payment_paid",
        "tillgate_review_opened",
    ],
)
def test_i3_handler_swallowing_undone_write_reruns(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    hook: str,
) -> None:
    """Django goes back to the savepoint silently where a row could not be saved inside of it, even
    when the error is caught.
    """
    real, told = hooks.call_owner, list[str]()

    def call_owner(plugin: str, called: str, **arguments: Any) -> Any:
        answer = real(plugin, called, **arguments)
        if called == hook:
            ShopOrder.objects.update(refunded=F("refunded") + 100)
            told.append(called)
            if len(told) == 1:
                with suppress(IntegrityError):
                    ShopOrder(pk=ShopOrder.objects.latest("pk").pk, total=1).save(force_insert=True)
        return answer

    monkeypatch.setattr(hooks, "call_owner", call_owner)
    key = world.order("12.50")
    registering.open_order(world.shop.plugin, key)
    if hook == "tillgate_order_unpaid":
        world.a_day_passes()
    else:
        payments = [world.start(key, method=method) for method in ("alipay", "paypal")][
            : 1 + (hook == "tillgate_review_opened")
        ]
        for payment in payments:
            world.shopper_pays(payment)
            world.notification(payment)
        if hook == "tillgate_refund_changed":
            queueing.refund(payments[0].pk, payments[0].amount)
    assert not OutboxEvent.objects.filter(
        kind=hook.removeprefix("tillgate_").replace("_", "-"),
        attempts=1,
        done_at__isnull=False,
    ).exists()
    world.a_day_passes()
    assert len(told) == 2
    assert 100 <= ShopOrder.objects.get().refunded < 200, "what was undone was done again, once"
    assert OutboxEvent.objects.get(attempts=2).done_at is not None


def test_old_event_leaves_reopened_order_alone(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An event queued earlier does not release an order that is expected again."""
    real, faults = hooks.call_owner, [RuntimeError("the shop is away")]

    def call_owner(plugin: str, hook: str, **arguments: Any) -> Any:
        if hook == "tillgate_order_unpaid" and faults:
            raise faults.pop()
        return real(plugin, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", call_owner)
    key = world.order()
    registering.open_order(world.shop.plugin, key)
    world.time.advance(minutes=61)
    world.run_worker()
    registering.open_order(world.shop.plugin, key)
    world.time.advance(minutes=5)
    world.run_worker()
    assert not world.shop.is_released(key)
    world.a_day_passes()
    assert (world.shop.is_released(key), world.shop.times_released(key)) == (True, 1)
