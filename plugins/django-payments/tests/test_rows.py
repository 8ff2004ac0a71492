"""The changes of the shop's row: once, forward only, under its lock, with the library's signal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from django.db import models, transaction
from payments.signals import status_changed

from tests.shop.models import Entry, Order, Payment
from tests.test_provider import attempt_of, bill, way_of
from tillgate.django.models import Payment as Attempt
from tillgate.django.orders.values import order_value, payment_value
from tillgate.django.refunds import queueing
from tillgate.hooks import PaidOutcome
from tillgate.testing.world import World, together
from tillgate_django_payments import PROVIDER, rows
from tillgate_django_payments.variants import variant_for


def started(world: World, payment: Any) -> Attempt:
    """Let a shopper go as far as the payment page."""
    world.client.get(way_of(payment))
    return attempt_of(payment)


def bought(world: World, **about: Any) -> Any:
    """Return a payment that is confirmed."""
    payment = bill(**about)
    attempt = started(world, payment)
    world.shopper_pays(attempt)
    world.notification(attempt)
    payment.refresh_from_db()
    assert payment.status == "confirmed"
    return payment


@contextmanager
def listening(receiver: Any) -> Iterator[None]:
    status_changed.connect(receiver, sender=Payment)
    try:
        yield
    finally:
        status_changed.disconnect(receiver, sender=Payment)


def test_paid_row_is_confirmed_before_signal(
    world: World,
) -> None:
    """The signal finds the money and the transaction number in the row."""
    heard: list[tuple[Any, ...]] = []

    def hear(instance: Payment, **_: Any) -> None:
        row = Payment.objects.get(pk=instance.pk)
        heard.extend(
            (one.status, one.captured_amount, one.transaction_id) for one in (row, instance)
        )

    with listening(hear):
        payment = bought(world)
        world.notification(attempt_of(payment))
        world.a_day_passes()
    number = attempt_of(payment).transaction_no
    assert number
    assert heard == [("confirmed", Decimal("12.50"), number)] * 2
    assert payment.modified > payment.created


def test_raising_receiver_undoes_everything(world: World) -> None:
    """The confirmation is tried again until the receiver succeeds."""
    failures: list[int] = []

    def fail(instance: Payment, **_: Any) -> None:
        if len(failures) < 2:
            failures.append(instance.pk)
            raise RuntimeError("out of tickets")

    payment = bill()
    attempt = started(world, payment)
    world.shopper_pays(attempt)
    with listening(fail):
        world.notification(attempt)
        payment.refresh_from_db()
        assert (payment.status, payment.captured_amount, Entry.objects.count()) == ("waiting", 0, 0)
        world.a_day_passes()
    payment.refresh_from_db()
    assert (payment.status, len(failures)) == ("confirmed", 2)
    assert Entry.objects.filter(status="confirmed").count() == 1


@pytest.mark.parametrize(
    "status",
    ["preauth", "confirmed", "rejected", "refunded", "error", "cancelled"],
)
def test_only_waiting_rows_change_status(world: World, status: str) -> None:
    payment = bill()
    attempt = started(world, payment)
    Payment.objects.update(status=status, message="the shop's own", captured_amount=Decimal("1.00"))
    with transaction.atomic():
        assert rows.paid(payment_value(attempt)) is PaidOutcome.NOT_PAYABLE
        rows.unpaid(order_value(attempt.order))
    payment.refresh_from_db()
    assert (payment.status, payment.message, payment.captured_amount) == (
        status,
        "the shop's own",
        Decimal("1.00"),
    )
    assert not Entry.objects.exists()


def test_hook_refuses_underpayment_and_other_currency(world: World) -> None:
    payment = bill()
    value = payment_value(started(world, payment))
    with transaction.atomic():
        Payment.objects.update(total=Decimal("12.51"))
        assert rows.paid(value) is PaidOutcome.UNDERPAID
        Payment.objects.update(total=Decimal("12.50"), currency="EUR")
        assert rows.paid(value) is PaidOutcome.NOT_PAYABLE
    payment.refresh_from_db()
    assert payment.status == "waiting"


def test_money_of_missing_row_needs_review(world: World) -> None:
    payment = bill()
    attempt = started(world, payment)
    Payment.objects.all().delete()
    world.shopper_pays(attempt)
    world.notification(attempt)
    assert world.reviews() == ["paid-not-payable"]
    assert world.come_back(attempt).status_code == 200, (
        "Tillgate's own page, since the shop has none"
    )
    with transaction.atomic():
        assert rows.paid(payment_value(attempt)) is PaidOutcome.NOT_PAYABLE
        rows.unpaid(order_value(attempt.order))


def test_paying_cancelled_row_is_not_thanked(
    world: World,
) -> None:
    """The shopper sees Tillgate's own page instead."""
    payment = bill()
    attempt = started(world, payment)
    payment.cancel()
    world.shopper_pays(attempt)
    world.notification(attempt)
    assert world.reviews() == ["paid-not-payable"]
    page = world.come_back(attempt)
    assert page.status_code == 200
    assert "Your payment has arrived, and the shop reviews it" in page.content.decode()
    queueing.refund(attempt.pk, "12.50")
    assert (
        f'href="{payment.get_failure_url()}">Back to the shop'
        in world.come_back(attempt).content.decode()
    )


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_paid_shopper_never_sees_failure_page(
    world: World,
    status: str,
) -> None:
    """This holds as soon as the gateway calls the payment paid."""
    payment = bill()
    attempt = started(world, payment)
    world.sandbox.control.fault("wrong_amount", occasion="query", times=100)
    world.shopper_pays(attempt)
    world.notification(attempt)
    Attempt.objects.update(status=status)
    page = world.come_back(attempt)
    assert page.status_code == 200
    assert "Your payment is under review" in page.content.decode()
    assert payment.get_failure_url() not in page.content.decode()


def test_old_copy_does_not_prevent_thanks(
    world: World,
) -> None:
    """A paid shopper is thanked although the shop saved an old copy of the row."""
    old = bill()
    attempt = started(world, old)
    world.shopper_pays(attempt)
    world.notification(attempt)
    old.save()
    assert world.come_back(attempt)["Location"] == old.get_success_url()


def test_refunded_shopper_is_not_thanked(
    world: World,
) -> None:
    """The money was refunded before the shop heard of the payment."""
    payment = bill()
    attempt = started(world, payment)
    world.shopper_pays(attempt)
    with world.failing_handler("tillgate_payment_paid", times=1):
        assert world.come_back(attempt)["Location"] == payment.get_success_url(), (
            "it is paid, though the shop has not been told"
        )
        queueing.refund(attempt.pk, "2.50")
        assert world.come_back(attempt)["Location"] == payment.get_success_url()
        queueing.refund(attempt.pk, "10.00")
    world.time.advance(minutes=5)
    world.run_worker()
    assert (
        f'href="{payment.get_failure_url()}">Back to the shop'
        in world.come_back(attempt).content.decode()
    )
    world.a_day_passes()
    assert Payment.objects.get().status == "rejected"


def test_a_row_that_is_input_waits_too(world: World) -> None:
    payment = bill(status="input")
    attempt = started(world, payment)
    world.shopper_pays(attempt)
    world.notification(attempt)
    payment.refresh_from_db()
    assert payment.status == "confirmed"


def test_reset_row_is_not_paid_twice(world: World) -> None:
    """The shop saved an old copy, so the row is waiting again."""
    old = bill()
    way = way_of(old)
    attempt = started(world, old)
    world.shopper_pays(attempt)
    world.notification(attempt)
    old.save()  # a copy from before the money
    assert Payment.objects.get().status == "waiting"
    assert not world.onward(world.client.get(way)), "the gateway's page was offered again"
    assert Attempt.objects.count() == 1
    assert queueing.refund(attempt.pk, "2.50").status == "succeeded"
    assert Payment.objects.get().captured_amount == Decimal("10.00")


# Several payments for one order -------------------------------------------------------------------


def test_paid_order_starts_no_second_row(
    world: World,
) -> None:
    """The shop's model decides this."""
    first = bought(world)
    second = bill(order=first.order)
    with pytest.raises(Exception, match="its order is paid"):
        second.get_form()


def test_simultaneous_rows_confirm_only_one(
    world: World,
) -> None:
    """Both rows belong to one order and are paid at the same moment."""
    order = Order.objects.create()
    payments = [bill(order=order), bill(order=order)]
    attempts = [started(world, payment) for payment in payments]
    for attempt in attempts:
        world.shopper_pays(attempt)
    together(*[lambda attempt=attempt: world.notification(attempt) for attempt in attempts])
    assert sorted(Payment.objects.values_list("status", flat=True)) == ["confirmed", "waiting"]
    assert world.reviews() == ["paid-not-payable"]
    assert Entry.objects.filter(status="confirmed").count() == 1


def test_silent_shop_model_confirms_both_rows(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model does not say that a paid order takes no more payments."""
    monkeypatch.delattr(Payment, "not_payable_detail")
    order = Order.objects.create()
    for payment in (bill(order=order), bill(order=order)):
        attempt = started(world, payment)
        world.shopper_pays(attempt)
        world.notification(attempt)
    assert list(Payment.objects.values_list("status", flat=True)) == ["confirmed", "confirmed"]


# Another provider ---------------------------------------------------------------------------------


def test_money_confirms_row_moved_elsewhere(
    world: World,
) -> None:
    """The row had turned to another provider and becomes ours again."""
    payment = bill(variant="alipay")
    attempt = started(world, payment)
    Payment.objects.update(variant="invoice")
    world.shopper_pays(attempt)
    world.notification(attempt)
    payment.refresh_from_db()
    assert (payment.status, payment.variant) == ("confirmed", "alipay")
    payment.refund()
    assert world.refunded_amount(attempt) == Decimal("12.50")


def test_row_waiting_elsewhere_is_not_rejected(world: World) -> None:
    """It already waits for another provider."""
    payment = bill(variant="alipay")
    started(world, payment)
    Payment.objects.update(variant="invoice")
    world.a_day_passes()
    payment.refresh_from_db()
    assert (payment.status, payment.message) == ("waiting", "")


def test_row_of_removed_variant_is_handled(
    world: World,
) -> None:
    """It is rejected or paid although the settings no longer have its variant."""
    unpaid, payment = bill(), bill()
    started(world, unpaid)
    attempt = started(world, payment)
    Payment.objects.update(variant="removed")
    world.shopper_pays(attempt)
    world.a_day_passes()
    assert list(Payment.objects.order_by("pk").values_list("status", "variant")) == [
        ("rejected", "removed"),
        ("confirmed", "alipay"),
    ]


def test_row_of_broken_provider_is_handled(
    world: World,
    settings: Any,
) -> None:
    """It is rejected or paid although its other provider cannot be created."""
    unpaid, payment = bill(), bill()
    started(world, unpaid)
    attempt = started(world, payment)
    settings.PAYMENT_VARIANTS = settings.PAYMENT_VARIANTS | {
        "terms": ("payments.dummy.DummyProvider", {"days": 30}),
    }
    Payment.objects.update(variant="terms")
    world.shopper_pays(attempt)
    world.a_day_passes()
    assert list(Payment.objects.order_by("pk").values_list("status", "variant")) == [
        ("rejected", "terms"),
        ("confirmed", "alipay"),
    ]


def test_row_keeps_its_tillgate_variant(world: World) -> None:
    for variant in ("online", "paypal"):
        payment = bill(variant=variant)
        attempt = world.start(str(payment.pk), "alipay")
        world.shopper_pays(attempt)
        world.notification(attempt)
        payment.refresh_from_db()
        assert (payment.status, payment.variant) == ("confirmed", variant)


def test_paid_row_gets_best_matching_variant(
    settings: Any,
) -> None:
    """The method's own variant comes first, then one for all methods, then any."""
    assert variant_for("alipay_hk") == "alipay-hk"
    ours: tuple[str, dict[str, str]] = (PROVIDER, {})
    settings.PAYMENT_VARIANTS = {
        "broken": ("no.such.Provider", {}),
        "paypal": (PROVIDER, {"method": "paypal"}),
        "shop-online": ours,
    }
    assert variant_for("alipay") == "shop-online"
    settings.PAYMENT_VARIANTS = {"paypal": (PROVIDER, {"method": "paypal"})}
    assert variant_for("alipay") == "paypal"
    settings.PAYMENT_VARIANTS = {"broken": ("no.such.Provider", {})}
    assert variant_for("alipay") is None
    settings.PAYMENT_VARIANTS, settings.PAYMENT_VARIANT_FACTORY = (
        {"online": ours},
        "shop.variants.make",
    )
    assert variant_for("alipay") is None, "the project's own factory need not know that name"


def test_row_hidden_by_manager_gets_money(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shop's default manager leaves the row out."""

    class Shown(models.Manager[Payment]):
        def get_queryset(self) -> models.QuerySet[Payment]:
            return super().get_queryset().exclude(billing_city="archived").select_related("order")

    payment = bill()
    attempt = started(world, payment)
    world.shopper_pays(attempt)
    Payment.objects.update(billing_city="archived")
    shown = Shown()
    shown.model = Payment
    monkeypatch.setitem(vars(Payment._meta), "default_manager", shown)
    assert Payment._default_manager.count() == 0
    world.notification(attempt)
    payment.refresh_from_db()
    assert payment.status == "confirmed"


def test_double_payment_skips_success_page(
    world: World,
) -> None:
    """The shopper reads about the second payment instead."""
    payment = bill(variant="online")
    first, second = world.start(str(payment.pk)), world.start(str(payment.pk), "paypal")
    world.shopper_pays(first)
    world.notification(first)
    world.shopper_pays(second)
    assert world.come_back(second).status_code == 200
    assert world.reviews() == ["second-payment"]
    assert world.come_back(first)["Location"] == payment.get_success_url()
