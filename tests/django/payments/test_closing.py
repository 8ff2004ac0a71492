"""A payment page that must not take money any more is closed at its gateway, once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.smallest_shop.models import ShopOrder
from tests.toy_gateway import SECRET, TOY, URL, Toy, ToyPlugin
from tillgate import Account, NotSent, hooks, shop
from tillgate.django.models import Payment
from tillgate.testing.world import World


class Closing(ToyPlugin):
    """The toy, which counts its requests to close, and may fail."""

    fails = False

    def __init__(self, toy: Toy) -> None:
        super().__init__(toy)
        self.asked: list[str] = []

    @hooks.hookimpl
    def tillgate_close(self, account: Account, reference: str) -> bool:
        self.asked.append(reference)
        if self.fails:
            raise NotSent("query", reference, "no connection was made")
        return super().tillgate_close(account, reference)


@pytest.fixture
def plugin(world: World) -> Iterator[Closing]:
    """The shop's account is at a toy that closes payments."""
    plugin = Closing(Toy())
    hooks.plugin_manager().register(plugin, name="toy")
    world.configure(
        {
            "BASE_URL": URL,
            "MERCHANT_NO": "T-1",
            "TOKEN": SECRET,
            "SANDBOX": False,
            "DIALECT": TOY,
        },
    )
    yield plugin
    hooks.plugin_manager().unregister(plugin)


def fresh(payment: Payment) -> Payment:
    payment.refresh_from_db()
    return payment


def test_cancelled_order_closes_its_page(world: World, plugin: Closing) -> None:
    payment = world.start(world.order(), "beads")
    shop.close_order(payment.order.plugin, payment.order.key)
    assert plugin.asked == []
    world.run_worker()
    world.run_worker()
    assert plugin.asked == [payment.reference]
    assert plugin.toy.payments[payment.reference].state == "expired"
    assert fresh(payment).status == "closed"
    assert payment.page_closed_at is not None
    assert payment.close_wanted_at is None
    assert "payment.page-closed" in payment.timeline.values_list("event", flat=True)


def test_other_method_closes_the_old_page(world: World, plugin: Closing) -> None:
    order = world.order()
    old, new = world.start(order, "beads"), world.start(order, "shells")
    world.run_worker()
    assert plugin.asked == [old.reference]
    assert (fresh(old).status, fresh(new).status) == ("closed", "pending")


def test_page_to_be_closed_is_not_handed_out(world: World, plugin: Closing) -> None:
    order = world.order()
    first = world.start(order, "beads")
    world.start(order, "shells")
    assert world.start(order, "beads").pk != first.pk


def test_paid_order_closes_the_other_pages(world: World, plugin: Closing) -> None:
    order = world.order()
    old, new = world.start(order, "beads"), world.start(order, "shells")
    Payment.objects.filter(pk=old.pk).update(close_wanted_at=None)
    plugin.toy.payments[new.reference].state = "paid"
    world.come_back(new)
    assert fresh(new).order.paid_by_id == new.pk
    assert fresh(old).close_wanted_at is not None
    assert fresh(new).close_wanted_at is None


def test_page_that_was_paid_is_reconciled(world: World, plugin: Closing) -> None:
    payment = world.start(world.order(), "beads")
    shop.close_order(payment.order.plugin, payment.order.key)
    plugin.toy.payments[payment.reference].state = "paid"
    world.run_worker()
    assert fresh(payment).status == "paid"
    assert payment.page_closed_at is None
    assert plugin.toy.payments[payment.reference].refunds == {}


def test_failed_close_is_not_repeated(world: World, plugin: Closing) -> None:
    payment = world.start(world.order(), "beads")
    plugin.fails = True
    shop.close_order(payment.order.plugin, payment.order.key)
    world.run_worker()
    Payment.objects.update(next_poll_at=payment.created_at)
    world.run_worker()
    assert plugin.asked == [payment.reference]
    assert (fresh(payment).status, payment.page_closed_at) == ("pending", None)
    assert "payment.page-not-closed" in payment.timeline.values_list("event", flat=True)


def test_built_in_wire_closes_nothing(world: World) -> None:
    payment = world.start(world.order())
    shop.close_order(payment.order.plugin, payment.order.key)
    assert fresh(payment).close_wanted_at is None


def test_shopper_reads_that_the_old_page_is_closed(world: World, plugin: Closing) -> None:
    """Until then the page warns of it."""
    payment = world.start(world.order("12.50"), "beads")
    ShopOrder.objects.update(status="cancelled")
    shop.close_order(payment.order.plugin, payment.order.key)
    address = world.way_to_pay(payment.order.key)
    page = world.client.get(address).content.decode()
    assert "The payment page for USD 12.50 with beads stays open" in page
    world.run_worker()
    page = world.client.get(address).content.decode()
    assert "The payment page for USD 12.50 with beads is closed." in page
    assert "Do not pay there" not in page
