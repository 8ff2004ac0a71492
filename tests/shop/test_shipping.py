"""The reasons against shipping an order whose money is in doubt."""

from __future__ import annotations

from tests.django.conftest import World
from tillgate.django.models import Order, Payment
from tillgate.django.refunds import queueing
from tillgate.django.reviews.opening import open_review
from tillgate.lifecycle import ReviewReason
from tillgate.shop.shipping import against_shipping, orders_in_doubt


def doubts(world: World, *orders: Order) -> dict[str, list[str]]:
    found = against_shipping(world.shop.plugin, [order.key for order in orders])
    return {key: [str(one.kind) for one in some] for key, some in found.items()}


def disputed(payment: Payment) -> None:
    open_review(ReviewReason.DISPUTED, {}, "test", payment)


def test_paid_order_has_no_doubt(world: World) -> None:
    assert doubts(world, world.paid_payment().order) == {}


def test_unpaid_order_has_no_doubt(world: World) -> None:
    assert doubts(world, world.start(world.order()).order) == {}


def test_partial_refund_stands_against_nothing(world: World) -> None:
    payment = world.paid_payment("12.50")
    queueing.refund(payment.pk, "2.50")
    assert doubts(world, payment.order) == {}


def test_full_refund_stands_against_shipping(world: World) -> None:
    payment = world.paid_payment("12.50")
    queueing.refund(payment.pk, "12.50")
    assert doubts(world, payment.order) == {payment.order.key: ["refunded"]}


def test_unknown_refund_stands_against_shipping(world: World) -> None:
    payment = world.paid_payment("12.50")
    world.sandbox.control.fault("lost_response", occasion="refund")
    queueing.refund(payment.pk, "12.50")
    assert doubts(world, payment.order) == {payment.order.key: ["refund-under-way"]}


def test_open_dispute_stands_against_shipping(world: World) -> None:
    payment, other = world.paid_payment(), world.paid_payment()
    disputed(payment)
    found = against_shipping(world.shop.plugin, [payment.order.key, other.order.key])
    (one,) = found.pop(payment.order.key)
    assert (one.kind, one.text, found) == ("disputed", "Disputed by the shopper's bank", {})


def test_review_at_gateway_stands_against_shipping(world: World) -> None:
    payment = world.paid_payment()
    open_review(ReviewReason.MANUAL_REVIEW, {"found": "rule"}, "test", payment)
    (one,) = against_shipping(world.shop.plugin, [payment.order.key])[payment.order.key]
    assert (one.kind, one.text) == ("manual-review", "Under review at the gateway")


def test_each_doubt_is_named(world: World) -> None:
    payment = world.paid_payment("12.50")
    queueing.refund(payment.pk, "12.50")
    disputed(payment)
    assert doubts(world, payment.order) == {payment.order.key: ["refunded", "disputed"]}


def test_filter_finds_orders_with_reasons(world: World) -> None:
    whole, parts, unknown, failed, part, bank, _ = [world.paid_payment("0.80") for _ in range(7)]
    disputed(bank)
    for payment, amount in ((whole, "0.80"), (parts, "0.70"), (parts, "0.10"), (part, "0.10")):
        queueing.refund(payment.pk, amount)
    world.sandbox.control.fault("lost_response", occasion="refund")
    queueing.refund(unknown.pk, "0.80")
    world.sandbox.control.fault("refused", occasion="refund")
    queueing.refund(failed.pk, "0.80")
    found = orders_in_doubt(world.shop.plugin)
    assert found == tuple(one.order.key for one in (bank, unknown, parts, whole))
    every = [payment.order.key for payment in Payment.objects.select_related("order")]
    assert set(found) == against_shipping(world.shop.plugin, every).keys()
