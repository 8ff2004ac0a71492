"""Refunds: bounded, sent once, held when nobody knows."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import transaction

from tests.django.conftest import World
from tillgate import InvalidRequest
from tillgate.django import operations
from tillgate.django.models import Payment, Refund
from tillgate.django.operations import RefundNotPossible
from tillgate.django.operations.locking import InsideTransaction
from tillgate.django.operations.refunds import enter_external_refund, refundable, settle_by_person
from tillgate.testing.crashes import Crash


def refund_notice(world: World, refund: Refund, body: str = "status=success") -> None:
    answer = world.client.post(f"/payments/refund-notice/{refund.notice_key}/", body, content_type="application/x-www-form-urlencoded")
    assert (answer.status_code, answer.content) == (200, b"success")


def given_back(world: World, payment: Payment) -> Decimal:
    found = world.sandbox.service.find(payment.reference)
    return Decimal(found.refunded_cents) / 100


def test_a_part_and_then_the_rest_are_given_back_and_the_shop_hears_of_each(world: World) -> None:
    payment = world.paid_payment("12.50")
    assert operations.refund(payment.pk, "2.50", person="ann", reason="damaged").status == "succeeded"
    assert operations.refund(payment.pk, Decimal("10.00")).status == "succeeded"
    assert world.shop.refunded(payment.order.key) == Decimal("12.50")
    assert refundable(payment) == 0
    assert given_back(world, payment) == Decimal("12.50")


def test_i5_more_than_was_paid_is_refused_before_anything_is_sent(world: World) -> None:
    payment = world.paid_payment("12.50")
    operations.refund(payment.pk, "2.50")
    with pytest.raises(InvalidRequest, match=r"more than the USD 10.00 that can still be given back"):
        operations.refund(payment.pk, "10.01")
    assert given_back(world, payment) == Decimal("2.50")


@pytest.mark.parametrize("amount", ["0", "-1", "1.005", "1e1", "NaN", 1.5])
def test_an_amount_that_is_no_money_is_refused(world: World, amount: str) -> None:
    payment = world.paid_payment()
    with pytest.raises(InvalidRequest):
        operations.refund(payment.pk, amount)
    assert not Refund.objects.exists()


def test_only_a_paid_payment_can_be_refunded(world: World) -> None:
    payment = world.start(world.order())
    with pytest.raises(RefundNotPossible, match="is pending"):
        operations.refund(payment.pk, "1.00")


@pytest.mark.parametrize(
    "fault", ["lost_response", "lost_request", "server_error", "server_error_done", "broken_json", "system_error", "unknown_code"]
)
def test_i6_a_refund_of_unknown_outcome_is_held_blocks_its_amount_and_is_never_sent_again(world: World, fault: str) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault(fault, occasion="refund")
    refund = operations.refund(payment.pk, "12.50")
    assert refund.status == "unknown"
    assert world.attentions() == ["refund-unknown"]
    before = given_back(world, payment)
    world.time.advance(days=2)
    world.sweep()
    assert operations.send_refund(refund.pk).status == "unknown"
    assert given_back(world, payment) == before
    with pytest.raises(InvalidRequest, match=r"USD 0.00"):
        operations.refund(payment.pk, "0.01")


def test_i7_a_notice_on_its_own_address_settles_a_refund_of_unknown_outcome(world: World) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = operations.refund(payment.pk, "12.50")
    refund_notice(world, refund)
    refund.refresh_from_db()
    assert refund.status == "succeeded"
    assert world.attentions() == []
    assert world.shop.refunded(payment.order.key) == Decimal("12.50")


def test_i7_a_forged_notice_settles_no_refund(world: World) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = operations.refund(payment.pk, "12.50")
    refund_notice(world, refund, "status=success&verifySign=00000000000000000000000000000000")
    refund.refresh_from_db()
    assert refund.status == "unknown"


@pytest.mark.parametrize(("done", "status", "left"), [(True, "succeeded", "0.00"), (False, "refused", "12.50")])
def test_a_person_settles_what_nobody_knows(world: World, done: bool, status: str, left: str) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_request", occasion="refund")
    refund = operations.refund(payment.pk, "12.50")
    assert settle_by_person(refund.pk, done=done, person="ann").status == status
    assert refundable(payment) == Decimal(left)
    assert world.attentions() == []


@pytest.mark.parametrize("who", ["person", "notice"])
def test_a_process_that_dies_once_an_unknown_refund_is_settled_leaves_nobody_told_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    refund = operations.refund(payment.pk, "12.50")

    def die(_: int) -> None:
        raise Crash

    monkeypatch.setattr(operations.refunds, "deliver", die)
    with pytest.raises(Crash):
        settle_by_person(refund.pk, done=True, person="ann") if who == "person" else refund_notice(world, refund)
    refund.refresh_from_db()
    assert refund.status == "succeeded"
    assert world.attentions() == []


def test_a_refused_refund_frees_its_amount(world: World) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("refused", occasion="refund")
    assert operations.refund(payment.pk, "12.50").status == "refused"
    assert refundable(payment) == Decimal("12.50")
    assert world.shop.refunded(payment.order.key) == 0


def test_a_refund_that_never_left_is_queued_again_and_sent_by_the_sweep(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from tillgate import NotSent

    payment = world.paid_payment("12.50")
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise NotSent("refund", payment.reference, "connection refused")

        patch.setattr("tillgate.hooks.refund", refuse)
        assert operations.refund(payment.pk, "12.50").status == "queued"
    world.time.advance(minutes=2)
    assert world.sweep().refunds_sent == 1
    assert given_back(world, payment) == Decimal("12.50")


def test_a_refund_cut_off_by_a_crash_is_unknown_after_a_while(world: World) -> None:
    payment = world.paid_payment("12.50")
    refund = operations.queue_refund(payment.pk, "12.50")
    Refund.objects.filter(pk=refund.pk).update(status="queued")
    from tillgate.django.operations.refunds import _claim

    Refund.objects.filter(pk=refund.pk).update(status="queued")
    assert _claim(refund.pk)
    assert world.sweep().refunds_lost == 0
    world.time.advance(minutes=16)
    assert world.sweep().refunds_lost == 1
    assert world.attentions() == ["refund-unknown"]


def test_i12_a_refund_inside_the_hosts_transaction_is_queued_and_sent_on_commit(world: World) -> None:
    payment = world.paid_payment("12.50")
    with transaction.atomic():
        refund = operations.queue_refund(payment.pk, "2.50")
        assert given_back(world, payment) == 0
    refund.refresh_from_db()
    assert (refund.status, given_back(world, payment)) == ("succeeded", Decimal("2.50"))
    with pytest.raises(InsideTransaction), transaction.atomic():
        operations.refund(payment.pk, "2.50")


def test_a_refund_that_somebody_has_not_seen_keeps_another_from_being_queued(world: World) -> None:
    payment = world.paid_payment("12.50")
    operations.queue_refund(payment.pk, "2.50", seen=0)
    with pytest.raises(operations.RefundNotPossible, match="in the meantime"):
        operations.queue_refund(payment.pk, "2.50", seen=0)
    assert given_back(world, payment) == Decimal("2.50")


def test_a_refund_whose_host_rolls_back_was_never_queued(world: World) -> None:
    payment = world.paid_payment("12.50")

    def host() -> None:
        with transaction.atomic():
            operations.queue_refund(payment.pk, "2.50")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        host()
    assert not Refund.objects.exists()
    assert given_back(world, payment) == 0


def test_a_refund_made_elsewhere_is_raised_blocks_further_ones_and_a_person_enters_it(world: World) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.reverse(payment.reference)
    world.time.advance(days=2)
    world.sweep()
    assert world.attentions() == ["changed-after-paid"]
    with pytest.raises(RefundNotPossible, match="enter that amount first"):
        operations.refund(payment.pk, "1.00")
    enter_external_refund(payment.pk, "2.50", person="ann")
    assert world.attentions() == []
    assert refundable(payment) == Decimal("10.00")
    assert world.shop.refunded(payment.order.key) == Decimal("2.50")


def test_an_order_whose_only_money_did_not_pay_it_and_went_back_is_told_unpaid_in_the_end(world: World) -> None:
    order = world.order("12.50")
    payment = world.start(order)
    world.shop.edit_total(order, Decimal("20.00"))
    world.shopper_pays(payment)
    world.notice(payment)
    assert world.attentions() == ["underpaid"]
    operations.refund(payment.pk, "12.00")
    world.a_day_passes()
    assert world.shop.is_payable(order)  # a part of the money is still held
    operations.refund(payment.pk, "0.50")
    world.sweep()
    assert world.shop.is_payable(order)  # the shopper may still try again
    world.a_day_passes()
    assert world.shop.is_released(order)


def test_money_that_went_back_releases_no_order_that_another_payment_has_paid(world: World) -> None:
    order = world.order()
    first, second = world.start(order), world.start(order, "paypal")
    for payment in (first, second):
        world.shopper_pays(payment)
        world.notice(payment)
    for payment in (second, first):
        operations.refund(payment.pk, payment.amount)
        world.a_day_passes()
        assert world.shop.is_paid(order), "what becomes of an order that was paid and given back is the shop's own affair"
