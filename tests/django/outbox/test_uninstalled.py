"""A plugin that is uninstalled while its payments are open: nothing is lost, a review opens, and
installing it again makes it good.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.django.conftest import World
from tillgate import hooks
from tillgate.django.models import Payment, Review
from tillgate.lifecycle import ReviewReason


@contextmanager
def uninstalled(name: str) -> Iterator[None]:
    manager = hooks.plugin_manager()
    plugin = manager.unregister(name=name)
    try:
        yield
    finally:
        manager.register(plugin, name=name)


def test_i2_uninstalled_shop_plugin_opens_review(
    world: World,
) -> None:
    """The payment is paid, and the review opens in the same run."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    with uninstalled(world.shop.plugin):
        world.time.advance(hours=1)
        assert world.run_worker().faults == []
        assert Payment.objects.get(pk=payment.pk).status == "paid"
        review = Review.objects.get(reason=ReviewReason.DELIVERY_FAILING)
        assert (review.status, review.order_id) == ("open", payment.order_id)
        assert (
            f"plugin: {world.shop.plugin!r} owns an order but is not loaded: install it again"
            in review.message
        )
    world.time.advance(days=1)
    world.run_worker()
    assert world.shop.times_paid(payment.order.key) == 1
    assert Review.objects.get(pk=review.pk).status == "resolved"


def test_i2_uninstalled_gateway_plugin_opens_review(
    world: World,
) -> None:
    """The payment stays open."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    with uninstalled("gateway"):
        world.time.advance(hours=1)
        assert world.run_worker().faults == []
        assert world.fresh(payment).status == "pending"
        review = Review.objects.get(reason=ReviewReason.ACCOUNT_GONE)
        assert (review.status, review.account) == ("open", payment.account)
        assert (
            "served by the plugin 'gateway', which is not installed: install it" in review.message
        )
    world.a_day_passes()
    assert world.shop.times_paid(payment.order.key) == 1
    assert Review.objects.get(pk=review.pk).status == "resolved"
