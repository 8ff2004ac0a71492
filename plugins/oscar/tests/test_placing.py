"""Orders from elsewhere: code, an API or staff place them, and they are registered, paid and
released like those of the checkout.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from oscar.core.loading import get_class, get_model
from oscar.test.factories import create_order

from tests.shopper import Shopper
from tillgate import shop
from tillgate.django.models import Order as ExpectedOrder
from tillgate.testing.world import World
from tillgate_oscar.placing import payment_url

Order = get_model("order", "Order")
Make = Callable[..., Any]


def gives(order: Any, name: str, amount: str, **more: Any) -> Any:
    """Let another payment source hold a part of an order."""
    kind, _ = get_model("payment", "SourceType").objects.get_or_create(name=name)
    return order.sources.create(
        source_type=kind,
        currency=more.pop("currency", order.currency),
        amount_allocated=Decimal(amount),
        **more,
    )


def test_order_creators_order_is_registered_once(
    world: World,
) -> None:
    """It is released like any other order."""
    order = create_order(status="Pending payment")
    assert ExpectedOrder.objects.get().key == str(order.number)
    order.save()
    assert ExpectedOrder.objects.get().timeline.filter(event="order.opened").count() == 1
    world.a_day_passes()
    assert world.shop.is_released(str(order.number))


def test_order_not_awaiting_payment_is_unregistered(world: World) -> None:
    create_order(status="Shipped")
    with transaction.atomic():
        create_order(status="Pending payment")
        transaction.set_rollback(True)
    assert not ExpectedOrder.objects.exists()


def test_order_with_unknown_status_is_ignored(
    world: World,
) -> None:
    """As django-oscar-api places orders whose initial status nobody has set."""
    order = create_order(status="new")
    world.a_day_passes()
    order.refresh_from_db()
    assert (order.status, ExpectedOrder.objects.exists()) == ("new", False)


def test_one_call_returns_orders_payment_page(
    world: World,
) -> None:
    """This works even if the order got its status later."""
    order = create_order(status="Shipped")
    Order.objects.filter(pk=order.pk).update(status="Pending payment")
    order.refresh_from_db()
    address = payment_url(order)
    assert address.startswith("http://127.0.0.1")
    assert order.number in Shopper(world.client).get(address).content.decode()
    assert shop.order_state("oscar", order.number) is not None


def test_amount_held_by_source_is_deducted(world: World) -> None:
    order = Order.objects.get(number=world.order("12.50"))
    gives(order, "Gift card", "5.00")
    payment = world.start(order.number)
    assert payment.amount == Decimal("7.50")
    world.shopper_pays(payment)
    world.notification(payment)
    assert (world.shop.is_paid(order.number), world.reviews()) == (True, [])
    assert sorted(order.sources.values_list("amount_allocated", flat=True)) == [
        Decimal("5.00"),
        Decimal("7.50"),
    ]


def test_amount_returned_by_source_is_requested(world: World) -> None:
    order = Order.objects.get(number=world.order("12.50"))
    gives(
        order,
        "Gift card",
        "5.00",
        amount_debited=Decimal("5.00"),
        amount_refunded=Decimal("5.00"),
    )
    assert world.start(order.number).amount == Decimal("12.50")


@pytest.mark.parametrize(("amount", "currency"), [("12.50", "USD"), ("5.00", "EUR")])
def test_order_covered_by_sources_is_unpayable(
    world: World,
    amount: str,
    currency: str,
) -> None:
    """The same is true if a source holds another currency."""
    order = Order.objects.get(number=world.order("12.50"))
    gives(order, "Gift card", amount, currency=currency)
    started = shop.start_payment("oscar", order.number, "alipay")
    assert (started.payment, bool(started.message)) == (None, True)


def test_order_covered_by_sources_is_kept(world: World) -> None:
    """It is not cancelled as unpaid."""
    order = Order.objects.get(number=world.order("12.50"))
    gives(order, "Gift card", "12.50")
    world.a_day_passes()
    assert world.shop.is_payable(order.number)
    assert "cover it" in order.notes.get().message


def test_order_exceeding_its_sources_is_underpaid(world: World) -> None:
    order = Order.objects.get(number=world.order("12.50"))
    source = gives(order, "Gift card", "5.00")
    payment = world.start(order.number)
    source.delete()
    world.shopper_pays(payment)
    world.notification(payment)
    assert world.shop.is_payable(order.number)
    assert len(world.reviews()) == 1


def test_number_of_deleted_order_is_refused(world: World) -> None:
    order = create_order(status="Pending payment", number="77")
    Order.objects.filter(pk=order.pk).delete()
    with pytest.raises(get_class("order.exceptions", "UnableToPlaceOrder")):
        create_order(status="Pending payment", number="77")
