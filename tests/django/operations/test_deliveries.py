"""Deliveries: exactly once, in order, and retried when the shop's handler fails."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.utils import translation

from tests.django.conftest import World
from tests.smallest_shop import plugin as shop_plugin
from tillgate import hooks
from tillgate.django import operations
from tillgate.django.models import Attention, Delivery
from tillgate.django.operations.deliveries import deliver, deliver_remote, enqueue_remote, retry
from tillgate.hooks import PaidOutcome, Payment, RemoteDelivery


@pytest.fixture
def failing_shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A shop whose handler writes and then raises, as long as the list holds something."""
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


def test_i3_a_handler_that_raises_leaves_nothing_behind_and_is_tried_again(world: World, failing_shop: list[str]) -> None:
    payment = world.paid_payment()
    assert payment.status == "paid"
    assert world.shop.times_paid(payment.order.key) == 0
    failing_shop.clear()
    world.time.advance(minutes=1)
    world.sweep()
    assert world.shop.times_paid(payment.order.key) == 1


def test_a_shop_without_the_hook_that_marks_orders_paid_is_told_so(world: World) -> None:
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
    fault = Delivery.objects.get(payment=payment).fault
    assert fault == "ConfigurationError: plugin: 'smallest-shop' does not implement tillgate_payment_paid, which marks an order paid"


def test_a_handler_that_keeps_failing_is_shown_to_a_person_while_the_payment_stays_paid(world: World, failing_shop: list[str]) -> None:
    payment = world.paid_payment()
    for _ in range(5):
        world.time.advance(hours=1)
        world.sweep()
    assert world.attentions() == ["delivery-failing"]
    assert world.fresh(payment).status == "paid"
    assert "database is away" in Attention.objects.get().sentence
    failing_shop.clear()
    delivery = Delivery.objects.get(kind="payment-paid")
    retry(delivery.pk)
    assert deliver(delivery.order_id) == 1
    assert world.shop.times_paid(payment.order.key) == 1


def test_deliveries_of_an_order_wait_for_the_one_before(world: World, failing_shop: list[str]) -> None:
    payment = world.paid_payment()
    from tillgate.django import operations

    operations.refund(payment.pk, "2.50")
    assert world.shop.refunded(payment.order.key) == 0
    failing_shop.clear()
    world.time.advance(minutes=1)
    world.sweep()
    kinds = list(Delivery.objects.order_by("done_at", "id").values_list("kind", flat=True))
    assert kinds == ["payment-paid", "refund-changed"]
    assert str(world.shop.refunded(payment.order.key)) == "2.50"


class Mailer:
    """A plugin that carries deliveries over the network, and fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.carried: list[tuple[str, str]] = []

    @hooks.hookimpl
    def tillgate_deliver(self, delivery: RemoteDelivery) -> None:
        self.carried.append((delivery.event_id, delivery.name))
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the mail server is away")

    @hooks.hookimpl
    def tillgate_describe_order(self, order_key: str) -> hooks.OrderDescription | None:
        return shop_plugin.tillgate_describe_order(order_key)

    @hooks.hookimpl
    def tillgate_payment_paid(self, payment: Payment) -> PaidOutcome:
        enqueue_remote("mailing-shop", payment.order.key, "confirmation", data={"to": "ann@example.com"}, payment_id=payment.id)
        enqueue_remote("mailing-shop", payment.order.key, "invoice", payment_id=payment.id)
        return PaidOutcome.APPLIED


@pytest.fixture
def mailer(world: World) -> Iterator[Mailer]:
    mailing = Mailer(failures=1)
    hooks.plugin_manager().register(mailing, name="mailing-shop")
    world.shop.plugin = "mailing-shop"
    yield mailing
    hooks.plugin_manager().unregister(mailing)


def test_i3_a_remote_delivery_is_carried_in_order_under_the_same_event_id_until_it_succeeds(world: World, mailer: Mailer) -> None:
    payment = world.paid_payment()
    assert mailer.carried == []
    world.sweep()
    world.time.advance(minutes=1)
    world.sweep()
    names = [name for _, name in mailer.carried]
    assert names == ["confirmation", "confirmation", "invoice"]
    assert mailer.carried[0][0] == mailer.carried[1][0]
    assert not Delivery.objects.filter(done_at__isnull=True).exists()
    assert deliver_remote(payment.order_id) == 0


def test_a_remote_delivery_that_keeps_failing_is_named_to_a_person(world: World, mailer: Mailer) -> None:
    mailer.failures = 3
    payment = world.paid_payment()
    for _ in range(3):
        world.time.advance(hours=1)
        world.sweep()
    assert world.attentions() == ["delivery-failing"]
    said = f"The shop could not send confirmation of order mailing-shop:{payment.order.key} in 3 attempts: ConnectionError"
    assert Attention.objects.get().sentence.startswith(said)


def test_a_remote_delivery_of_a_dead_worker_is_taken_over_after_its_lease(world: World, mailer: Mailer) -> None:
    from tillgate.django.operations.deliveries import _claim_remote

    mailer.failures = 0
    payment = world.paid_payment()
    assert _claim_remote(payment.order_id)
    assert deliver_remote(payment.order_id) == 0
    world.time.advance(minutes=3)
    assert deliver_remote(payment.order_id) == 2


def test_the_shop_is_told_in_its_own_language_whoever_brought_the_news(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str | None] = []
    real = hooks.call_owner

    def listening(plugin: str, hook: str, **arguments: Any) -> Any:
        heard.append(translation.get_language())
        return real(plugin, hook, **arguments)

    payment = world.start(world.order())
    world.shopper_pays(payment)
    monkeypatch.setattr(hooks, "call_owner", listening)
    with translation.override("de"):
        operations.reconcile(payment, "return")
    assert set(heard) == {"en-us"}
