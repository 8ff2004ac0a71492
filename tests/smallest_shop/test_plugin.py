"""The smallest shop's own hooks, where no scenario of the kit comes between the look at an order
and its change.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.smallest_shop import plugin
from tests.smallest_shop.models import ShopOrder
from tillgate import hooks
from tillgate.lifecycle import PaymentStatus
from tillgate.testing.world import World


def test_order_repriced_after_description_stays_unpaid(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It opens a review."""
    payment = world.start(world.order("12.50"))
    world.shopper_pays(payment)
    call = hooks.call_owner

    def edited_in_between(name: str, hook: str, **arguments: object) -> object:
        if hook == "tillgate_payment_paid":
            ShopOrder.objects.update(total=Decimal("99.00"))
        return call(name, hook, **arguments)

    monkeypatch.setattr(hooks, "call_owner", edited_in_between)
    world.notification(payment)
    assert (ShopOrder.objects.get().status, world.reviews()) == ("open", ["underpaid"])


@pytest.mark.parametrize(
    ("total", "outcome"),
    [("12.50", "applied"), ("12.49", "applied"), ("12.51", "underpaid"), ("100.00", "underpaid")],
)
def test_order_needs_at_least_its_price(
    world: World,
    total: str,
    outcome: str,
) -> None:
    """An order is marked paid by no less than it costs."""
    order = ShopOrder.objects.create(total=Decimal(total))
    payment = hooks.Payment(
        id="1",
        order=hooks.Order(plugin=world.shop.plugin, key=str(order.pk)),
        reference="t-1",
        method="alipay",
        amount=Decimal("12.50"),
        currency="USD",
        status=PaymentStatus.PAID,
        transaction_no="1",
    )
    assert plugin.tillgate_payment_paid(payment) == outcome
    order.refresh_from_db()
    assert order.times_paid == (outcome == "applied")
