"""Payments: started, reconciled, closed; each test names what is promised."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import transaction

from tests.django.conftest import World
from tests.smallest_shop.models import ShopOrder
from tillgate import ConfigurationError, InvalidRequest
from tillgate.django import clock, operations
from tillgate.django.models import Delivery, Order, Payment, TimelineEntry
from tillgate.django.operations import NotPayable, StartOutcome
from tillgate.django.operations.locking import InsideTransaction


def test_i1_a_paid_order_is_one_that_the_gateways_own_query_said_is_paid(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    assert payment.cashier_url.startswith(world.sandbox.base_url)
    world.notice(payment, f"status=success&amount=12.50&reference={payment.reference}")
    assert not world.shop.is_paid(order)
    world.shopper_pays(payment)
    world.notice(payment)
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
def test_i1_a_paid_answer_that_disagrees_is_held_for_a_person(world: World, fault: str, reason: str) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    world.sandbox.control.fault(fault, occasion="query")
    world.notice(payment)
    assert world.attentions() == [reason]
    assert not world.shop.is_paid(order)
    world.notice(payment)  # the next answer is right
    assert world.shop.is_paid(order)


def test_i2_a_payment_whose_notice_and_return_are_lost_is_found_by_the_sweep(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    world.time.advance(seconds=6)
    assert world.sweep().changed == 1
    assert world.shop.is_paid(order)


def test_i2_a_lost_creation_is_watched_and_its_money_found(world: World) -> None:
    order = world.order()
    world.sandbox.control.fault("lost_response", occasion="pay")
    started = operations.start(world.shop.plugin, order, vendor="alipay")
    assert (started.outcome, started.payment.status) == (StartOutcome.UNKNOWN, "created")
    world.shopper_pays(started.payment)
    world.time.advance(seconds=6)
    world.sweep()
    assert world.shop.is_paid(order)


def test_i2_late_money_is_found_by_a_tail_look(world: World, configure: Callable[..., None]) -> None:
    configure(ORDER_UNPAID_AFTER_MINUTES=600)
    order = world.order()
    payment = world.start(order)
    world.time.advance(hours=3)
    world.sweep()
    assert world.fresh(payment).status == "closed"
    world.pays_late(payment)
    world.time.advance(hours=2)
    world.sweep()
    assert world.shop.is_paid(order)


def test_i2_late_money_for_an_order_given_up_is_raised(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.time.advance(hours=3)
    world.sweep()
    world.time.advance(hours=2)
    world.sweep()
    assert world.shop.is_released(order)
    world.pays_late(payment)
    world.time.advance(days=1)
    world.sweep()
    assert world.fresh(payment).status == "paid"
    assert world.attentions() == ["paid-not-payable"]


def test_i3_however_many_notices_arrive_the_shop_is_told_once(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    for _ in range(5):
        assert world.notice(payment).content == b"success"
        world.come_back(payment)
    assert world.shop.times_paid(order) == 1
    assert Delivery.objects.count() == 1


def test_i4_a_second_paid_payment_is_recorded_and_raised_and_not_delivered(world: World) -> None:
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    world.shopper_pays(first)
    world.shopper_pays(second)
    world.notice(first)
    world.notice(second)
    assert world.shop.times_paid(order) == 1
    assert world.fresh(second).status == "paid"
    assert world.attentions() == ["second-payment"]
    assert Order.objects.get().paid_by == first


def test_i4_no_second_payment_starts_while_the_shop_cannot_be_told_of_the_first(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid", times=99):
        world.notice(payment)
        assert (world.fresh(payment).status, world.shop.is_paid(order)) == ("paid", False)
        again = operations.start(world.shop.plugin, order, vendor="paypal")
    assert (again.outcome, again.payment.pk) == ("paid", payment.pk)
    assert len(world.sandbox.service.transactions()) == 1


def test_i4_money_for_a_closed_order_is_recorded_and_raised(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shop.close_order(order)
    world.shopper_pays(payment)
    world.notice(payment)
    assert world.fresh(payment).status == "paid"
    assert world.attentions() == ["paid-not-payable"]
    assert world.shop.times_paid(order) == 0


def test_i4_an_order_that_grew_is_raised_and_one_that_shrank_is_paid_and_raised(world: World) -> None:
    grown, shrunk = world.order(), world.order()
    for order, total in ((grown, "20.00"), (shrunk, "10.00")):
        payment = world.start(order)
        world.shop.edit_total(order, Decimal(total))
        world.shopper_pays(payment)
        world.notice(payment)
    assert world.attentions() == ["underpaid", "overpaid"]
    assert not world.shop.is_paid(grown)
    assert world.shop.is_paid(shrunk)


def test_i7_a_flood_of_notices_causes_one_query_per_throttle_interval(world: World, configure: Callable[..., None]) -> None:
    configure(NOTICE_THROTTLE_SECONDS=5)
    payment = world.start(world.order())
    before = world.queries()
    for _ in range(50):
        world.notice(payment)
    assert world.queries() == before + 1
    due = world.fresh(payment).next_look_at
    assert due is not None
    assert due <= clock.now() + timedelta(seconds=5)


def test_i8_a_new_attempt_gets_a_new_reference(world: World) -> None:
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
    world.sweep()
    assert world.fresh(payment).status == "paid"
    assert world.attentions() == ["changed-after-paid"]


def test_i10_every_change_leaves_an_entry_and_an_unchanged_look_none(world: World) -> None:
    payment = world.start(world.order())
    before = TimelineEntry.objects.count()
    world.notice(payment)
    world.come_back(payment)
    assert TimelineEntry.objects.count() == before
    world.shopper_pays(payment)
    world.notice(payment)
    assert list(TimelineEntry.objects.values_list("event", flat=True)) == [
        "payment.created",
        "payment.pending",
        "payment.paid",
        "delivery.done",
    ]


def test_i12_nothing_is_sent_inside_a_transaction_of_the_host(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    for act in (lambda: world.start(order), lambda: operations.reconcile(payment, "test"), operations.sweep):
        with pytest.raises(InsideTransaction, match="inside a transaction"), transaction.atomic():
            act()


def test_a_double_click_makes_one_payment(world: World) -> None:
    order = world.order()
    assert world.start(order).pk == world.start(order).pk


def test_another_vendor_is_another_payment(world: World) -> None:
    order = world.order()
    assert world.start(order).pk != world.start(order, "paypal").pk


def test_a_start_finds_that_an_earlier_payment_is_paid_though_its_notice_was_lost(world: World) -> None:
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    again = operations.start(world.shop.plugin, order, vendor="paypal")
    assert (again.outcome, again.payment.pk) == (StartOutcome.PAID, payment.pk)
    assert world.shop.is_paid(order)


def test_a_refused_creation_fails_and_the_shopper_may_try_again(world: World) -> None:
    order = world.order()
    world.sandbox.control.fault("refused", occasion="pay")
    started = operations.start(world.shop.plugin, order, vendor="alipay")
    assert (started.outcome, started.payment.status) == (StartOutcome.REFUSED, "failed")
    assert operations.start(world.shop.plugin, order, vendor="alipay").outcome is StartOutcome.REDIRECT


@pytest.mark.parametrize("state", ["paid", "cancelled"])
def test_an_order_that_is_not_payable_is_refused_and_nothing_is_sent(world: World, state: str) -> None:
    order = world.order()
    ShopOrder.objects.update(status=state)
    with pytest.raises(NotPayable, match=state):
        world.start(order)
    assert not Payment.objects.exists()
    assert not world.sandbox.service.transactions()


def test_a_vendor_that_the_owner_does_not_offer_is_refused(world: World, configure: Callable[..., None]) -> None:
    configure(VENDORS=["paypal"])
    with pytest.raises(InvalidRequest, match="not offered"):
        world.start(world.order())


def test_a_wrong_merchant_number_closes_no_order_and_raises_one_attention(world: World, configure: Callable[..., None]) -> None:
    payments = [world.start(world.order()) for _ in range(3)]
    configure({"TOKEN": "another token"})
    for _ in range(12):
        world.time.advance(minutes=15)
        world.sweep()
    assert {world.fresh(payment).status for payment in payments} == {"pending"}
    assert world.attentions() == ["wrong-credentials"]


def test_payments_of_a_changed_account_are_held_with_one_attention(world: World, configure: Callable[..., None]) -> None:
    payment = world.start(world.order())
    configure({"MERCHANT_NO": "999"})
    world.notice(payment)
    world.notice(payment)
    assert world.attentions() == ["account-gone"]
    assert world.fresh(payment).status == "pending"


def test_an_unknown_account_is_an_error_before_anything_is_written(world: World) -> None:
    with pytest.raises(ConfigurationError, match="'elsewhere'"):
        operations.start(world.shop.plugin, world.order(), vendor="alipay", account="elsewhere")
    assert not Payment.objects.exists()


def test_an_unrecognised_status_past_expiry_is_raised(world: World) -> None:
    payment = world.start(world.order())
    world.sandbox.control.set_options({"word_pending": "settling", "word_expired": "settling"})
    try:
        world.time.advance(hours=3)
        world.sweep()
    finally:
        world.sandbox.control.set_options({"word_pending": "pending", "word_expired": "closed"})
    assert world.attentions() == ["unrecognised-status"]
    assert world.fresh(payment).status == "pending"


def test_the_shop_is_told_that_an_order_is_unpaid_only_when_no_payment_is_open(world: World) -> None:
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    world.sandbox.control.decline(first.reference)
    world.notice(first)
    assert world.fresh(first).status == "failed"
    world.time.advance(minutes=61)
    world.sweep()
    assert world.shop.is_payable(order)
    world.sandbox.control.decline(second.reference)
    world.notice(second)
    assert world.shop.is_payable(order)  # the shopper may still try again
    world.time.advance(minutes=61)
    world.sweep()
    assert world.shop.is_released(order)
