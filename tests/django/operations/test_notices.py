"""What a notice leaves behind once its payment is paid."""

from __future__ import annotations

import pytest

from tillgate.django.models import Notice, Payment
from tillgate.testing.world import World


def counters(payment: Payment) -> tuple[int, int, int]:
    payment.refresh_from_db()
    return payment.notices, payment.repeated_notices, payment.forged_notices


def test_the_same_notice_about_a_paid_payment_is_counted_and_not_kept_again(world: World) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    [told] = world.sent(payment)
    for repeated in range(4):
        assert world.post(told).status_code == 200
        assert counters(payment) == (1, repeated, 0)
    assert payment.status == "paid"
    assert Notice.objects.get().evidence["reference"] == payment.reference


def test_another_notice_about_a_paid_payment_is_kept_beside_the_first(world: World) -> None:
    payment = world.paid_payment()
    before = counters(payment)[0]
    for said in ("status=fail", "status=success", "status=fail"):
        assert world.notice(payment, said).status_code == 200
    assert counters(payment) == (before + 3, 0, 0)
    assert [notice.evidence.get("status") for notice in Notice.objects.order_by("-pk")[:3]] == ["fail", "success", "fail"]


def test_the_same_notice_about_an_open_payment_is_kept_each_time(world: World) -> None:
    payment = world.start(world.order())
    for count in (1, 2, 3):
        world.notice(payment, "status=pending")
        assert counters(payment) == (count, 0, 0)
    assert Notice.objects.count() == 3


def test_i7_a_forged_notice_is_counted_as_forged_however_often_it_is_repeated(world: World) -> None:
    payment = world.paid_payment()
    before = counters(payment)[0]
    for count in (1, 2, 3):
        world.notice(payment, "status=success&verifySign=00000000000000000000000000000000")
        assert counters(payment) == (before + count, 0, count)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_repeated_return_of_a_paid_payment_is_counted_and_not_kept_again(world: World, method: str) -> None:
    payment = world.paid_payment()
    address = f"/payments/return/{payment.return_key}/?status=success"
    before = counters(payment)[0]
    for repeated in range(3):
        assert world.client.generic(method, address).status_code == 302
        assert counters(payment) == (before + 1, repeated, 0)
