"""Values for gateways that ask for more: unit prices that add up, and the shopper's address."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tillgate import Goods, InvalidRequest, PaymentRequest
from tillgate.gateways import amount_of
from tillgate.hooks import ShippingAddress


def asked(*goods: Goods, **more: Any) -> PaymentRequest:
    return PaymentRequest(
        **{
            "reference": "A-1",
            "amount": "12.50",
            "currency": "EUR",
            "method": "card",
            "terminal": "ONLINE",
            "ipn_url": "https://shop.example/n",
            "callback_url": "https://shop.example/r",
            "goods_info": goods,
        }
        | more,
    )


def priced(name: str, quantity: int, price: Any) -> Goods:
    return Goods.named(name, quantity, price)


def test_unit_prices_that_add_up_are_kept() -> None:
    request = asked(priced("Tea", 2, "5"), priced("Cup", 1, Decimal("2.5")))
    assert [str(line.unit_price) for line in request.goods_info] == ["5.00", "2.50"]
    assert "unit_price" not in request.parameters()["goodsInfo"]


@pytest.mark.parametrize(
    "goods",
    [
        [priced("Tea", 2, "5"), priced("Cup", 1, "2.49")],
        [priced("Tea", 2, "5"), Goods.named("Cup")],
        [priced("Tea", 1, "12.499"), priced("Cup", 1, "0.001")],
    ],
)
def test_unit_prices_that_miss_the_amount_are_left_out(goods: list[Goods]) -> None:
    request = asked(*goods)
    assert [line.unit_price for line in request.goods_info] == [None] * len(goods)
    assert [line.goods_name for line in request.goods_info] == ["Tea", "Cup"]


@pytest.mark.parametrize("price", [1.5, "x", "", True])
def test_unit_price_is_exact(price: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        priced("Tea", 1, price)
    assert caught.value.field == "unit_price"


def test_shopper_address_is_checked_and_hidden() -> None:
    request = asked(shopper_ip="2001:db8::1", webhook_url="https://shop.example/w")
    assert request.shopper_ip == "2001:db8::1"
    assert "2001:db8" not in repr(request)
    with pytest.raises(InvalidRequest, match="shopper_ip"):
        asked(shopper_ip="somewhere")
    with pytest.raises(InvalidRequest, match="webhook_url"):
        asked(webhook_url="/webhook/default/")


def test_minor_units_both_ways() -> None:
    assert asked().minor_units == 1250
    assert amount_of(1250, "USD") == Decimal("12.50")
    assert amount_of(1250, "JPY") == 1250
    with pytest.raises(InvalidRequest, match="currency"):
        amount_of(1250, "XYZ")


def test_shipping_address_is_in_no_text() -> None:
    """It is personal data, and no error may repeat it."""
    address = ShippingAddress(name="Ada Moss", line1="1 Mill Lane", city="Ely", country="GB")
    request = asked(shipping=address)
    assert request.shipping == address
    assert "Ada" not in f"{request!r} {address!r}"
    with pytest.raises(InvalidRequest, match="shipping"):
        asked(shipping="1 Mill Lane")
