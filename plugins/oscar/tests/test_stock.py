"""Items of a paid order that staff put back in stock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from oscar.core.loading import get_class

from tests.test_cancelling import stock_of
from tests.test_refunds import Bought
from tillgate import shop
from tillgate.testing.world import World
from tillgate_oscar.stock import restock, restockable


@pytest.fixture
def bought(world: World, product: Callable[..., Any]) -> Bought:
    return Bought(world, product)


def puts_back(bought: Bought, quantities: dict[Any, int]) -> dict[int, int]:
    with shop.locked_order("oscar", bought.order.number):
        return restock(bought.order, {line.pk: number for line, number in quantities.items()})


def test_item_is_put_back_at_most_once(bought: Bought) -> None:
    for _ in range(3):
        puts_back(bought, {bought.tea: 2})
    assert stock_of(bought.tea) == (9, 0)
    assert restockable(bought.order) == {bought.pot.pk: 1}


def test_shipped_items_return_to_the_stock(bought: Bought) -> None:
    handler = get_class("order.processing", "EventHandler")()
    handler.consume_stock_allocations(bought.order, [bought.tea], [2])
    assert stock_of(bought.tea) == (7, 1)
    assert puts_back(bought, {bought.tea: 1}) == {bought.tea.pk: 1}
    assert stock_of(bought.tea) == (7, 0)
    puts_back(bought, {bought.tea: 2})
    assert stock_of(bought.tea) == (9, 0)


def test_items_released_by_hand_are_not_added(bought: Bought) -> None:
    handler = get_class("order.processing", "EventHandler")()
    handler.cancel_stock_allocations(bought.order, [bought.tea], [3])
    puts_back(bought, {bought.tea: 3})
    assert stock_of(bought.tea) == (9, 0)


def test_gone_product_is_named_in_a_note(bought: Bought) -> None:
    bought.tea.stockrecord.delete()
    assert bought.tea.pk not in restockable(bought.order)
    puts_back(bought, {bought.tea: 3, bought.pot: 1})
    assert bought.notes()[-2:] == [
        "Back in stock: 1 x Pot.",
        "Not put back in stock, since it is no longer sold: Tea.",
    ]
    assert stock_of(bought.pot) == (5, 0)
