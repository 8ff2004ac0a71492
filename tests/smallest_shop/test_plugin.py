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


def test_an_order_that_becomes_dearer_after_it_was_described_is_not_marked_paid_and_a_person_is_told(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
def test_an_order_is_marked_paid_by_no_less_than_it_costs(
    world: World,
    total: str,
    outcome: str,
) -> None:
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
