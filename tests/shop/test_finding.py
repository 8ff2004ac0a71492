"""Orders found by the facts that staff know of their payments."""

from __future__ import annotations

import pytest
from django.utils import translation

from tests.django.conftest import World
from tillgate.django.models import Payment, PaymentNumber, Refund
from tillgate.django.refunds import queueing
from tillgate.shop import find_orders


def found(world: World, text: str) -> list[str]:
    return find_orders(world.shop.plugin, text)


def test_order_is_found_by_each_number(world: World) -> None:
    payment, other = world.paid_payment("12.50"), world.paid_payment("20.00")
    queueing.refund(payment.pk, "2.50")
    Refund.objects.update(refund_no="re_77")
    PaymentNumber.objects.create(payment=payment, number="ch_1")
    Payment.objects.filter(pk=payment.pk).update(last4="4242")
    payment.refresh_from_db()
    for text in (
        payment.order.key,
        f"#{payment.order.key}",
        f"  {payment.reference.lower()} ",
        str(payment.transaction_no),
        "ch_1",
        "re_77",
        "4242",
        "12.50",
        "USD 12.50",
        "12.50 usd",
    ):
        assert found(world, text) == [payment.order.key], text
    with translation.override("de"):
        assert found(world, "12,50") == [payment.order.key]
    assert find_orders("another", "12.50") == []
    assert found(world, "20.00") == [other.order.key]


@pytest.mark.parametrize(
    "text",
    ["", " ", "#", "x", "%", "_", "'; drop table tillgate_order; --", "<b>", "x" * 10_000, "a\0b"],
)
def test_odd_text_finds_nothing(world: World, text: str) -> None:
    world.paid_payment("12.50")
    assert found(world, text) == []
