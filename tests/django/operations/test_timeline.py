"""What a timeline tells, word for word: everything that happens to an order, what caused it, and what it is about (I10)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction

from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate import ConfigurationError, NotSent, hooks
from tillgate.django import operations
from tillgate.django.models import Attention, Delivery, Order, Payment, Refund, TimelineEntry
from tillgate.django.operations.refunds import enter_external_refund, settle_by_person
from tillgate.django.operations.timeline import record

PAID = ("payment.paid", "notice", "the gateway says that it is paid", "payment")
TOLD = ("delivery.done", "delivery", "the shop was told: payment-paid (applied)", "payment")


def story(order_key: str) -> list[tuple[str, str, str, str]]:
    """Return the entries of an order: event, cause, sentence, and which rows they are about."""
    told = []
    for entry in TimelineEntry.objects.filter(order__key=order_key).order_by("id"):
        about = " ".join(name for name in ("payment", "refund") if getattr(entry, name))
        cause = entry.cause.partition(":")[0] if entry.cause.startswith("delivery:") else entry.cause
        told.append((entry.event, cause, entry.sentence, about))
    return told


def begun(payment: Payment) -> list[tuple[str, str, str, str]]:
    return [
        ("payment.created", "start", f"USD {payment.amount} with {payment.vendor}", "payment"),
        ("payment.pending", "start", f"transaction {payment.transaction_no}", "payment"),
    ]


def test_a_payment_and_its_refund(world: World) -> None:
    payment = world.paid_payment()
    operations.refund(payment.pk, "2.50", person="ann", reason="damaged")
    operations.refund(payment.pk, "1.00")
    both = "payment refund"
    assert story(payment.order.key) == [
        *begun(payment),
        PAID,
        TOLD,
        ("refund.queued", "person:ann", "USD 2.50: damaged", both),
        ("refund.sending", "refund", "USD 2.50", both),
        ("refund.succeeded", "refund", "refund success", both),
        ("delivery.done", "delivery", "the shop was told: refund-changed (succeeded)", both),
        ("refund.queued", "shop", "USD 1.00", both),
        ("refund.sending", "refund", "USD 1.00", both),
        ("refund.succeeded", "refund", "refund success", both),
        ("delivery.done", "delivery", "the shop was told: refund-changed (succeeded)", both),
    ]


@pytest.mark.parametrize("done", [True, False])
def test_a_refund_that_nobody_knows_of_until_a_person_looks(world: World, done: bool) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = operations.refund(payment.pk, "2.50")
    settle_by_person(refund.pk, done=done, person="ann")
    status, found = ("succeeded", "done") if done else ("refused", "not done")
    outcome = refund.answer
    both, whole = "payment refund", f"Refund of USD 2.50 of payment {payment.reference}: nobody knows whether it went out ({outcome}). "
    whole += "It is never sent again by itself. Look at the gateway and say whether it was done."
    assert story(payment.order.key)[6:] == [
        ("refund.unknown", "refund", outcome, both),
        ("attention.raised", "refund", whole, both),
        ("delivery.done", "delivery", "the shop was told: attention-raised", "payment"),
        ("delivery.done", "delivery", "the shop was told: refund-changed (unknown)", both),
        (f"refund.{status}", "person:ann", f"ann found that it was {found}", both),
        ("attention.resolved", "person:ann", f"ann found that it was {found}", "payment"),
        ("delivery.done", "delivery", f"the shop was told: refund-changed ({status})", both),
    ]
    attention = Attention.objects.get()
    assert (attention.order, attention.payment, attention.refund, attention.account) == (payment.order, payment, refund, "default")
    assert (attention.resolution, attention.resolved_by) == (f"ann found that it was {found}", "ann")


def test_a_refund_that_a_notice_confirms(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = operations.refund(payment.pk, "2.50")
    world.client.post(f"/payments/refund-notice/{refund.notice_key}/", "status=success", content_type="application/x-www-form-urlencoded")
    confirmed = "the gateway's notice confirmed it"
    assert story(payment.order.key)[10:] == [
        ("refund.succeeded", "notice", confirmed, "payment refund"),
        ("attention.resolved", "person:tillgate", confirmed, "payment"),
        ("delivery.done", "delivery", "the shop was told: refund-changed (succeeded)", "payment refund"),
    ]
    refund.refresh_from_db()
    assert refund.answer == confirmed


def test_a_refund_whose_process_died_and_one_that_never_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = world.paid_payment()
    from tillgate.django.operations import refunds

    with transaction.atomic():
        refund = operations.queue_refund(payment.pk, "1.00")
        transaction.get_connection().run_on_commit.clear()
    refunds._claim(refund.pk)
    world.time.advance(minutes=16)
    world.sweep()
    assert ("refund.unknown", "sweep", "the process ended while it was being sent", "payment refund") in story(payment.order.key)

    def refuse(*_: object) -> None:
        raise NotSent("refund", payment.reference, "connection refused")

    monkeypatch.setattr("tillgate.hooks.refund", refuse)
    queued = operations.refund(payment.pk, "2.00")
    assert story(payment.order.key)[-1][:2] == ("refund.queued", "refund")
    assert "connection refused" in story(payment.order.key)[-1][2]
    assert queued.answer == story(payment.order.key)[-1][2]


def test_a_refund_made_elsewhere(world: World) -> None:
    payment = world.paid_payment()
    world.sandbox.control.reverse(payment.reference)
    operations.look_again(payment, "ann")
    entered = enter_external_refund(payment.pk, "12.50", person="bob")
    sentence = "it was paid, and now the gateway says 'reversed'"
    assert story(payment.order.key)[4:] == [
        ("attention.raised", "person:ann", f"Payment {payment.reference}: {sentence}.", "payment"),
        ("delivery.done", "delivery", "the shop was told: attention-raised", "payment"),
        ("refund.external", "person:bob", "USD 12.50 was given back elsewhere", "payment refund"),
        ("attention.resolved", "person:bob", "USD 12.50 was refunded elsewhere", "payment"),
        ("delivery.done", "delivery", "the shop was told: refund-changed (succeeded)", "payment refund"),
    ]
    assert (entered.requested_by, entered.reason, entered.external, entered.due_at) == ("bob", "made elsewhere", True, None)


def test_a_refused_creation_and_an_order_that_nobody_pays(world: World) -> None:
    order = world.order()
    world.sandbox.control.fault("refused", occasion="pay")
    operations.expect(world.shop.plugin, order)
    started = operations.start(world.shop.plugin, order, vendor="alipay")
    world.time.advance(minutes=61)
    world.sweep()
    assert story(order) == [
        ("order.expected", "shop", "the shop placed the order", ""),
        ("payment.created", "start", "USD 12.50 with alipay", "payment"),
        ("payment.failed", "start", started.because, "payment"),
        ("delivery.done", "delivery", "the shop was told: order-unpaid", ""),
    ]


def test_an_order_that_is_closed_before_and_after_a_payment_of_it_began(world: World) -> None:
    operations.close(world.shop.plugin, "never begun", "staff")
    operations.close(world.shop.plugin, "never begun", "staff")
    assert story("never begun") == [("order.closed", "staff", "the shop closed the order", "")]
    order = world.order()
    payment = world.start(order)
    world.shop.close_order(order)
    world.shopper_pays(payment)
    world.notice(payment)
    sentence = f"Payment {payment.reference}: it was paid, but it is cancelled."
    assert story(order) == [
        *begun(payment),
        ("order.closed", "shop", "the shop closed the order", ""),
        PAID,
        ("attention.raised", "delivery", sentence, "payment"),
        ("delivery.done", "delivery", "the shop was told: payment-paid (not-payable)", "payment"),
    ]


@pytest.mark.parametrize(
    ("change", "reason", "because", "outcome"),
    [
        ({"total": Decimal("20.00")}, "underpaid", "USD 12.50 was paid, and the order costs USD 20.00 by now", "underpaid"),
        ({"total": Decimal("10.00")}, "overpaid", "USD 12.50 was paid, and the order costs USD 10.00 by now", "applied"),
        ({"status": "cancelled"}, "paid-not-payable", "it was paid, but it is cancelled", "not-payable"),
        (None, "paid-not-payable", "it was paid, but the shop does not know the order any more", "not-payable"),
    ],
)
def test_an_order_that_changed_while_it_was_paid(
    world: World, change: dict[str, Any] | None, reason: str, because: str, outcome: str
) -> None:
    order = world.order()
    payment = world.start(order)
    ShopOrder.objects.update(**change) if change else ShopOrder.objects.all().delete()
    world.shopper_pays(payment)
    world.notice(payment)
    assert story(order)[3:5] == [
        ("attention.raised", "delivery", f"Payment {payment.reference}: {because}.", "payment"),
        ("delivery.done", "delivery", f"the shop was told: payment-paid ({outcome})", "payment"),
    ]
    attention = Attention.objects.get()
    assert (attention.reason, attention.account, attention.payment, attention.order) == (reason, "default", payment, payment.order)
    assert Delivery.objects.get(kind="payment-paid").outcome == outcome


def test_i4_a_second_payment(world: World) -> None:
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    for payment in (first, second):
        world.shopper_pays(payment)
        world.notice(payment)
    sentence = "the order was paid by another payment already; this one can be refunded"
    assert ("attention.raised", "delivery", f"Payment {second.reference}: {sentence}.", "payment") in story(order)
    assert ("delivery.done", "delivery", "the shop was told: payment-paid (second-payment)", "payment") in story(order)
    operations.refund(second.pk, "12.50", person="ann")
    assert ("attention.resolved", "person:ann", "all of it was given back: USD 12.50", "payment") in story(order)


def test_a_shop_that_is_told_again_after_it_reopened_an_order(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shop.close_order(order)
    world.shopper_pays(payment)
    world.notice(payment)
    ShopOrder.objects.update(status="open")
    attention = Attention.objects.get()
    done = operations.perform(attention.pk, "tell-again", person="ann")
    sentence = "the shop was told again, and has applied the payment"
    assert (done.resolved, done.sentence) == (True, sentence)
    assert story(order)[6:] == [
        ("order.reopened", "person:ann", "the shop takes money for it again", ""),
        ("delivery.repeated", "person:ann", "the shop is told again that it is paid", "payment"),
        ("delivery.done", "delivery", "the shop was told: attention-raised", "payment"),
        ("attention.resolved", "person:tillgate", sentence, "payment"),
        ("delivery.done", "delivery", "the shop was told: payment-paid (applied)", "payment"),
    ]
    assert Order.objects.get().closed_at is None
    assert Delivery.objects.filter(kind="payment-paid").latest("id").data == {"again": attention.pk}


def test_a_creation_whose_answer_is_lost_and_one_that_a_notice_overtakes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    order = world.order()
    world.sandbox.control.fault("lost_response", occasion="pay")
    started = operations.start(world.shop.plugin, order, vendor="alipay")
    assert story(order)[1] == ("payment.outcome-unknown", "start", started.because, "payment")
    assert TimelineEntry.objects.get(event="payment.outcome-unknown").evidence == {"error": "OutcomeUnknown"}
    overtaken, real = world.order(), hooks.pay

    def pay(*arguments: Any) -> Any:
        created = real(*arguments)
        world.notice(Payment.objects.get(order__key=overtaken))
        return created

    monkeypatch.setattr("tillgate.hooks.pay", pay)
    quick = operations.start(world.shop.plugin, overtaken, vendor="alipay")
    assert (quick.outcome, quick.payment.status) == ("redirect", "pending")
    number = quick.payment.transaction_no
    assert story(overtaken) == [
        ("payment.created", "start", "USD 12.50 with alipay", "payment"),
        ("payment.pending", "notice", "the gateway waits for the shopper", "payment"),
        ("payment.answered-late", "start", f"transaction {number}", "payment"),
    ]
    fresh = world.fresh(quick.payment)
    assert (fresh.transaction_no, bool(number), fresh.cashier_url) == (number, True, quick.payment.cashier_url)
    assert fresh.cashier_url.startswith(world.sandbox.base_url)
    assert TimelineEntry.objects.get(event="payment.answered-late").evidence["transactionNo"] == number


# What an entry keeps, and what observers hear.


class Listener:
    """An observer that keeps what it hears."""

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


def test_observers_hear_what_is_in_the_timeline_and_what_it_is_about(world: World, listener: Listener) -> None:
    payment = world.paid_payment()
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = operations.refund(payment.pk, "2.50", person="ann")
    heard = {event.name: event for event in listener.heard}
    entry = TimelineEntry.objects.get(event="attention.raised")
    assert heard["attention.raised"].at == entry.at
    assert heard["attention.raised"].reference == payment.reference
    assert heard["attention.raised"].fields == {
        "cause": "refund",
        "sentence": entry.sentence,
        "order": str(payment.order),
        "reason": "refund-unknown",
        "vendor": "alipay",
        "amount": "12.50",
        "status": "paid",
        "refund": refund.pk,
        "refund_amount": "2.50",
        "refund_status": "unknown",
    }
    assert entry.evidence == {"reason": "refund-unknown"}
    assert heard["payment.paid"].fields == {
        "cause": "notice",
        "sentence": "the gateway says that it is paid",
        "order": str(payment.order),
        "vendor": "alipay",
        "amount": "12.50",
        "status": "paid",
    }
    operations.expect(world.shop.plugin, world.order())
    assert (listener.heard[-1].name, listener.heard[-1].reference) == ("order.expected", None)


def test_observers_hear_of_an_accounts_matter_that_is_in_no_timeline(world: World, listener: Listener, configure: Any) -> None:
    payment = world.start(world.order())
    configure({"TOKEN": "another token"})
    world.notice(payment)
    [event] = [event for event in listener.heard if event.name == "attention.raised"]
    attention = Attention.objects.get()
    assert event.fields == {"reason": "wrong-credentials", "account": "default", "cause": "notice", "sentence": attention.sentence}
    assert (event.at, event.reference) == (attention.raised_at, None)
    assert attention.sentence.startswith("Account default: ")
    assert (attention.evidence, attention.order, attention.payment) == ({"reference": payment.reference}, None, payment)


def test_observers_hear_that_a_refund_met_an_accounts_matter(world: World, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    payment = world.paid_payment()

    def refuse(*_: object) -> None:
        raise ConfigurationError("token", "***", "is empty")

    monkeypatch.setattr("tillgate.hooks.refund", refuse)
    operations.refund(payment.pk, "2.50")
    [event] = [event for event in listener.heard if event.name == "attention.raised"]
    assert (event.fields["reason"], event.fields["account"], event.fields["cause"]) == ("account-gone", "default", "refund")


def test_observers_hear_that_a_refunds_notice_met_an_accounts_matter(
    world: World, listener: Listener, configure: Callable[..., None]
) -> None:
    payment = world.paid_payment()
    refund = operations.refund(payment.pk, "2.50")
    configure({"MERCHANT_NO": "999999"})
    assert world.client.post(f"/payments/refund-notice/{refund.notice_key}/", {"status": "success"}).status_code == 503
    [event] = [event for event in listener.heard if event.name == "attention.raised"]
    assert (event.fields["reason"], event.fields["account"], event.fields["cause"]) == ("account-gone", "default", "notice")


def test_evidence_is_kept_as_json_knows_it_and_within_bounds(world: World) -> None:
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
    assert entry.cause == "c" * 160
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


def test_what_is_rolled_back_is_told_to_nobody(world: World, listener: Listener) -> None:
    payment = world.start(world.order())
    before = len(listener.heard)
    with transaction.atomic():
        record("test.event", payment.order, "test", "A sentence.")
        transaction.set_rollback(True)
    assert len(listener.heard) == before
    assert not Refund.objects.exists()


@pytest.mark.parametrize("depth", [19, 20, 600])
def test_i2_what_lies_too_deep_in_an_answer_is_left_out_and_keeps_nothing_from_being_recorded(world: World, depth: int) -> None:
    payment = world.start(world.order())
    deep: Any = "the end"
    for _ in range(depth):
        deep = [deep]
    with transaction.atomic():
        record("payment.paid", payment.order, "sweep", "x", payment=payment, evidence={"x": deep})
    kept = TimelineEntry.objects.latest("id").evidence["x"]
    while isinstance(kept, list):
        [kept] = kept
    assert kept == ("the end" if depth < 20 else "...")
