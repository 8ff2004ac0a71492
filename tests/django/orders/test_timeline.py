"""The timeline's texts, word for word: everything that happens to an order, its cause, and its
subject (I10).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction

from tests.django.conftest import World
from tests.django.notifying import confirming
from tests.smallest_shop.models import ShopOrder
from tillgate import ConfigurationError, NotSent, hooks
from tillgate.django import actions
from tillgate.django.models import Order, OutboxEvent, Payment, Refund, Review, TimelineEntry
from tillgate.django.orders import registering
from tillgate.django.orders.timeline import record
from tillgate.django.payments import starting
from tillgate.django.refunds import queueing
from tillgate.django.refunds.external import record_external_refund
from tillgate.django.refunds.settling import settle_by_staff

PAID = ("payment.paid", "webhook", "the gateway says that it is paid", "payment")
TOLD = ("event.delivered", "outbox", "the shop was told: payment-paid (applied)", "payment")


def story(order_key: str) -> list[tuple[str, str, str, str]]:
    """Return the entries of an order: event, cause, sentence, and which rows they are about."""
    told = []
    for entry in TimelineEntry.objects.filter(order__key=order_key).order_by("id"):
        about = " ".join(name for name in ("payment", "refund") if getattr(entry, name))
        actor = entry.actor.partition(":")[0] if entry.actor.startswith("outbox:") else entry.actor
        told.append((entry.event, actor, entry.message, about))
    return told


def begun(payment: Payment) -> list[tuple[str, str, str, str]]:
    return [
        ("payment.created", "start", f"USD {payment.amount} with {payment.method}", "payment"),
        ("payment.pending", "start", f"transaction {payment.transaction_no}", "payment"),
    ]


def test_a_payment_and_its_refund(world: World) -> None:
    payment = world.paid_payment()
    queueing.refund(payment.pk, "2.50", staff="ann", reason="damaged")
    queueing.refund(payment.pk, "1.00")
    both = "payment refund"
    assert story(payment.order.key) == [
        *begun(payment),
        PAID,
        TOLD,
        ("refund.queued", "staff:ann", "USD 2.50: damaged", both),
        ("refund.sending", "refund", "USD 2.50", both),
        ("refund.succeeded", "refund", "refund success", both),
        ("event.delivered", "outbox", "the shop was told: refund-changed (succeeded)", both),
        ("refund.queued", "shop", "USD 1.00", both),
        ("refund.sending", "refund", "USD 1.00", both),
        ("refund.succeeded", "refund", "refund success", both),
        ("event.delivered", "outbox", "the shop was told: refund-changed (succeeded)", both),
    ]


@pytest.mark.parametrize("done", [True, False])
def test_unknown_refund_settled_by_staff(world: World, done: bool) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")
    settle_by_staff(refund.pk, done=done, staff="ann")
    status, found = ("succeeded", "done") if done else ("failed", "not done")
    outcome = refund.answer
    both, whole = (
        "payment refund",
        f"Refund of USD 2.50 of payment {payment.reference}: nobody knows whether it went out "
        f"({outcome}). ",
    )
    whole += "It is never sent again by itself."
    assert story(payment.order.key)[6:] == [
        ("refund.unknown", "refund", outcome, both),
        ("review.opened", "refund", whole, both),
        ("event.delivered", "outbox", "the shop was told: review-opened", "payment"),
        ("event.delivered", "outbox", "the shop was told: refund-changed (unknown)", both),
        (f"refund.{status}", "staff:ann", f"ann found that it was {found}", both),
        ("review.resolved", "staff:ann", f"ann found that it was {found}", "payment"),
        ("event.delivered", "outbox", f"the shop was told: refund-changed ({status})", both),
    ]
    review = Review.objects.get()
    assert (review.order, review.payment, review.refund, review.account) == (
        payment.order,
        payment,
        refund,
        "default",
    )
    assert (review.resolution, review.resolved_by) == (f"ann found that it was {found}", "ann")


def test_a_refund_that_a_notification_confirms(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50")
    address, form = (
        f"/payments/refund-notification/{refund.notification_key}/",
        "application/x-www-form-urlencoded",
    )
    world.client.post(address, confirming(refund), content_type=form)
    confirmed = "the gateway's notification confirmed it"
    assert story(payment.order.key)[10:] == [
        ("refund.succeeded", "webhook", confirmed, "payment refund"),
        ("review.resolved", "staff:tillgate", confirmed, "payment"),
        (
            "event.delivered",
            "outbox",
            "the shop was told: refund-changed (succeeded)",
            "payment refund",
        ),
    ]
    refund.refresh_from_db()
    assert refund.answer == confirmed


def test_interrupted_refund_and_unsent_refund(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One refund lost its process while sending, the other was never sent."""
    payment = world.paid_payment()
    from tillgate.django.refunds import sending

    with transaction.atomic():
        refund = queueing.queue_refund(payment.pk, "1.00")
        transaction.get_connection().run_on_commit.clear()
    sending._claim(refund.pk)
    world.time.advance(minutes=16)
    world.run_worker()
    assert (
        "refund.unknown",
        "worker",
        "the process ended while it was being sent",
        "payment refund",
    ) in story(payment.order.key)

    def refuse(*_: object) -> None:
        raise NotSent("refund", payment.reference, "connection refused")

    monkeypatch.setattr("tillgate.hooks.refund", refuse)
    queued = queueing.refund(payment.pk, "2.00")
    assert story(payment.order.key)[-1][:2] == ("refund.queued", "refund")
    assert "connection refused" in story(payment.order.key)[-1][2]
    assert queued.answer == story(payment.order.key)[-1][2]


def test_a_refund_made_elsewhere(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    actions.poll_now(payment, "ann")
    entered = record_external_refund(payment.pk, "12.50", staff="bob")
    message = (
        "it was paid, and now the gateway says 'reversed': the shopper's bank took the money back "
        "(charge-back), or it was refunded in the gateway's own pages"
    )
    assert story(payment.order.key)[4:] == [
        ("review.opened", "staff:ann", f"Payment {payment.reference}: {message}.", "payment"),
        ("event.delivered", "outbox", "the shop was told: review-opened", "payment"),
        ("refund.external", "staff:bob", "USD 12.50 was refunded elsewhere", "payment refund"),
        ("review.resolved", "staff:bob", "USD 12.50 was refunded elsewhere", "payment"),
        (
            "event.delivered",
            "outbox",
            "the shop was told: refund-changed (succeeded)",
            "payment refund",
        ),
    ]
    assert (entered.requested_by, entered.reason, entered.external, entered.due_at) == (
        "bob",
        "made elsewhere",
        True,
        None,
    )


def test_refused_creation_and_unpaid_order(world: World) -> None:
    order = world.shop.place_order(Decimal("12.50"))
    world.sandbox.control.fault("refused", occasion="pay")
    registering.open_order(world.shop.plugin, order)
    started = starting.start_payment(world.shop.plugin, order, method="alipay")
    world.time.advance(minutes=61)
    world.run_worker()
    assert story(order) == [
        ("order.opened", "shop", "the shop placed the order", ""),
        ("payment.created", "start", "USD 12.50 with alipay", "payment"),
        ("payment.failed", "start", started.detail, "payment"),
        ("event.delivered", "outbox", "the shop was told: order-unpaid", ""),
    ]


def test_order_closed_around_payment_start(world: World) -> None:
    """One order is closed before a payment began, the other after it."""
    registering.open_order(world.shop.plugin, "never begun")
    registering.close_order(world.shop.plugin, "never begun", "staff")
    registering.close_order(world.shop.plugin, "never begun", "staff")
    assert story("never begun")[1:] == [("order.closed", "staff", "the shop closed the order", "")]
    order = world.order()
    payment = world.start(order)
    world.shop.close_order(order)
    world.shopper_pays(payment)
    world.notification(payment)
    message = f"Payment {payment.reference}: it was paid, but it is cancelled."
    assert story(order) == [
        *begun(payment),
        ("order.closed", "shop", "the shop closed the order", ""),
        PAID,
        ("review.opened", "outbox", message, "payment"),
        ("event.delivered", "outbox", "the shop was told: payment-paid (not-payable)", "payment"),
    ]


@pytest.mark.parametrize(
    ("change", "reason", "detail", "outcome"),
    [
        (
            {"total": Decimal("20.00")},
            "underpaid",
            "USD 12.50 was paid, and the order costs USD 20.00 by now",
            "underpaid",
        ),
        (
            {"total": Decimal("10.00")},
            "overpaid",
            "USD 12.50 was paid, and the order costs USD 10.00 by now",
            "applied",
        ),
        (
            {"status": "cancelled"},
            "paid-not-payable",
            "it was paid, but it is cancelled",
            "not-payable",
        ),
        (
            None,
            "paid-not-payable",
            "it was paid, but the shop does not know the order any more",
            "not-payable",
        ),
    ],
)
def test_order_changed_during_payment(
    world: World,
    change: dict[str, Any] | None,
    reason: str,
    detail: str,
    outcome: str,
) -> None:
    order = world.order()
    payment = world.start(order)
    ShopOrder.objects.update(**change) if change else ShopOrder.objects.all().delete()
    world.shopper_pays(payment)
    world.notification(payment)
    assert story(order)[3:5] == [
        ("review.opened", "outbox", f"Payment {payment.reference}: {detail}.", "payment"),
        ("event.delivered", "outbox", f"the shop was told: payment-paid ({outcome})", "payment"),
    ]
    review = Review.objects.get()
    assert (review.reason, review.account, review.payment, review.order) == (
        reason,
        "default",
        payment,
        payment.order,
    )
    assert OutboxEvent.objects.get(kind="payment-paid").outcome == outcome


def test_i4_a_second_payment(world: World) -> None:
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    for payment in (first, second):
        world.shopper_pays(payment)
        world.notification(payment)
    message = "the order was paid by another payment already; this one can be refunded"
    assert (
        "review.opened",
        "outbox",
        f"Payment {second.reference}: {message}.",
        "payment",
    ) in story(order)
    assert (
        "event.delivered",
        "outbox",
        "the shop was told: payment-paid (second-payment)",
        "payment",
    ) in story(order)
    queueing.refund(second.pk, "12.50", staff="ann")
    assert (
        "review.resolved",
        "staff:ann",
        "all of it was refunded: USD 12.50",
        "payment",
    ) in story(order)


def test_shop_retold_after_reopening_order(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shop.close_order(order)
    world.shopper_pays(payment)
    world.notification(payment)
    ShopOrder.objects.update(status="open")
    review = Review.objects.get()
    done = actions.take_action(review.pk, "redeliver", staff="ann")
    message = "the shop was told again, and has applied the payment"
    assert (done.resolved, done.message) == (True, message)
    assert story(order)[6:] == [
        ("order.reopened", "staff:ann", "the shop takes money for it again", ""),
        ("event.requeued", "staff:ann", "the shop is told again that it is paid", "payment"),
        ("event.delivered", "outbox", "the shop was told: review-opened", "payment"),
        ("review.resolved", "staff:tillgate", message, "payment"),
        ("event.delivered", "outbox", "the shop was told: payment-paid (applied)", "payment"),
    ]
    assert Order.objects.get().closed_at is None
    assert OutboxEvent.objects.filter(kind="payment-paid").latest("id").data == {"again": review.pk}


def test_lost_creation_answer_and_overtaking_notification(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = world.order()
    world.sandbox.control.fault("lost_response", occasion="pay")
    started = starting.start_payment(world.shop.plugin, order, method="alipay")
    assert story(order)[1] == ("payment.outcome-unknown", "start", started.detail, "payment")
    assert TimelineEntry.objects.get(event="payment.outcome-unknown").evidence == {
        "error": "OutcomeUnknown",
    }
    overtaken, real = world.order(), hooks.pay

    def pay(*arguments: Any, **named: Any) -> Any:
        created = real(*arguments, **named)
        world.notification(Payment.objects.get(order__key=overtaken))
        return created

    monkeypatch.setattr("tillgate.hooks.pay", pay)
    quick = starting.start_payment(world.shop.plugin, overtaken, method="alipay")
    assert (quick.outcome, quick.payment.status) == ("redirect", "pending")
    number = quick.payment.transaction_no
    assert story(overtaken) == [
        ("payment.created", "start", "USD 12.50 with alipay", "payment"),
        ("payment.pending", "webhook", "the gateway waits for the shopper", "payment"),
        ("payment.answered-late", "start", f"transaction {number}", "payment"),
    ]
    fresh = world.fresh(quick.payment)
    assert (fresh.transaction_no, bool(number), fresh.payment_url) == (
        number,
        True,
        quick.payment.payment_url,
    )
    assert fresh.payment_url.startswith(world.sandbox.base_url)
    assert (
        TimelineEntry.objects.get(event="payment.answered-late").evidence["transactionNo"] == number
    )


# The fields of an entry, and the calls of observers.


class Listener:
    """An observer that keeps all that it hears."""

    def __init__(self) -> None:
        self.heard: list[hooks.Event] = []

    @hooks.hookimpl
    def tillgate_event(self, event: hooks.Event) -> None:
        self.heard.append(event)


@pytest.fixture
def listener() -> Any:
    one = Listener()
    hooks.plugin_manager().register(one, name="listener")
    yield one
    hooks.plugin_manager().unregister(name="listener")


def test_observers_hear_timeline_entries_with_subject(
    world: World,
    listener: Listener,
) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = queueing.refund(payment.pk, "2.50", staff="ann")
    heard = {event.name: event for event in listener.heard}
    entry = TimelineEntry.objects.get(event="review.opened")
    assert heard["review.opened"].at == entry.at
    assert heard["review.opened"].reference == payment.reference
    assert heard["review.opened"].fields == {
        "actor": "refund",
        "message": entry.message,
        "order": str(payment.order),
        "reason": "refund-unknown",
        "method": "alipay",
        "amount": "12.50",
        "currency": "USD",
        "status": "paid",
        "transaction_no": payment.transaction_no,
        "refund": refund.pk,
        "refund_amount": "2.50",
        "refund_status": "unknown",
    }
    assert entry.evidence == {"reason": "refund-unknown"}
    assert heard["payment.paid"].fields == {
        "actor": "webhook",
        "message": "the gateway says that it is paid",
        "order": str(payment.order),
        "method": "alipay",
        "amount": "12.50",
        "currency": "USD",
        "status": "paid",
        "transaction_no": payment.transaction_no,
    }
    registering.open_order(world.shop.plugin, world.shop.place_order(Decimal("12.50")))
    assert (listener.heard[-1].name, listener.heard[-1].reference) == ("order.opened", None)


def test_observers_hear_account_reviews(
    world: World,
    listener: Listener,
    configure: Any,
) -> None:
    """These reviews are in no timeline."""
    payment = world.start(world.order())
    configure({"TOKEN": "another token"})
    world.notification(payment)
    [event] = [event for event in listener.heard if event.name == "review.opened"]
    review = Review.objects.get()
    assert event.fields == {
        "reason": "wrong-credentials",
        "account": "default",
        "actor": "webhook",
        "message": review.message,
    }
    assert (event.at, event.reference) == (review.opened_at, None)
    assert review.message.startswith("Account default: ")
    assert (review.evidence, review.order, review.payment) == (
        {"reference": payment.reference},
        None,
        payment,
    )


def test_refund_reports_account_review_to_observers(
    world: World,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The refund met a problem of its payment's account."""
    payment = world.paid_payment()

    def refuse(*_: object) -> None:
        raise ConfigurationError("token", "***", "is empty")

    monkeypatch.setattr("tillgate.hooks.refund", refuse)
    queueing.refund(payment.pk, "2.50")
    [event] = [event for event in listener.heard if event.name == "review.opened"]
    assert (event.fields["reason"], event.fields["account"], event.fields["actor"]) == (
        "account-gone",
        "default",
        "refund",
    )


def test_refund_notification_reports_account_review(
    world: World,
    listener: Listener,
    configure: Callable[..., None],
) -> None:
    """Observers hear of it when the notification meets a problem of the account."""
    payment = world.paid_payment()
    refund = queueing.refund(payment.pk, "2.50")
    configure({"MERCHANT_NO": "999999"})
    assert (
        world.client.post(
            f"/payments/refund-notification/{refund.notification_key}/",
            {"status": "success"},
        ).status_code
        == 503
    )
    [event] = [event for event in listener.heard if event.name == "review.opened"]
    assert (event.fields["reason"], event.fields["account"], event.fields["actor"]) == (
        "account-gone",
        "default",
        "webhook",
    )


def test_evidence_is_bounded_json(world: World) -> None:
    payment = world.start(world.order())
    evidence = {
        "amount": Decimal("12.10"),
        "flags": [True, False, None, 7],
        "many": list(range(51)),
        "pair": ("a", "b"),
        "deep": {"x" * 101: {"text": "y" * 1001}},
        "broken": "a\ud800b\0c",
        "wide": {str(number): number for number in range(51)},
    }
    record("test.event", payment.order, "c" * 161, "A sentence.", evidence=evidence)
    entry = TimelineEntry.objects.latest("id")
    assert entry.actor == "c" * 160
    assert entry.evidence == {
        "amount": "12.10",
        "flags": [True, False, None, 7],
        "many": list(range(50)),
        "pair": ["a", "b"],
        "deep": {"x" * 100: {"text": "y" * 1000}},
        "broken": "a?b\ufffdc",
        "wide": {str(number): number for number in range(50)},
    }
    assert type(entry.evidence["flags"][0]) is bool


def test_rolled_back_entries_reach_no_observer(world: World, listener: Listener) -> None:
    payment = world.start(world.order())
    before = len(listener.heard)
    with transaction.atomic():
        record("test.event", payment.order, "test", "A sentence.")
        transaction.set_rollback(True)
    assert len(listener.heard) == before
    assert not Refund.objects.exists()


@pytest.mark.parametrize("depth", [19, 20, 600])
def test_i2_deep_answer_parts_are_left_out(
    world: World,
    depth: int,
) -> None:
    """Parts too deep to store do not prevent the entry from being recorded."""
    payment = world.start(world.order())
    deep: Any = "the end"
    for _ in range(depth):
        deep = [deep]
    with transaction.atomic():
        record("payment.paid", payment.order, "worker", "x", payment=payment, evidence={"x": deep})
    kept = TimelineEntry.objects.latest("id").evidence["x"]
    while isinstance(kept, list):
        [kept] = kept
    assert kept == ("the end" if depth < 20 else "...")
