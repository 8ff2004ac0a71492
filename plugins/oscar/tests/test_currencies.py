"""Orders that Oscar sells in other currencies: from the choice of a method to the refund on the
dashboard.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from oscar.core.loading import get_model

from tests.shopper import Shopper
from tests.test_dashboard import MAY, messages_of, presses, staff, text_of, url_of
from tillgate.django.models import Payment, Refund
from tillgate.testing.world import World
from tillgate_oscar.refunds import paid_for

Make = Callable[..., Any]


def sells(make: Make, currency: str, price: str) -> Any:
    product = make(price)
    product.stockrecords.update(price_currency=currency)
    return product


@pytest.mark.parametrize(
    ("currency", "price", "shown", "typed", "part", "rest"),
    [
        ("JPY", "1250", "1.250 JPY", "1.000", "1000", "250 JPY"),
        ("KWD", "1234.50", "1.234,500 KWD", "1.000,5", "1000.5", "234,000 KWD"),
        ("EUR", "1234.50", "1.234,50 EUR", "1.000,5", "1000.5", "234,00 EUR"),
    ],
)
def test_orders_currency_is_used_throughout(
    world: World,
    shopper: Shopper,
    product: Make,
    settings: Any,
    currency: str,
    price: str,
    shown: str,
    typed: str,
    part: str,
    rest: str,
) -> None:
    """The order is paid, refunded in part and shown in its currency."""
    world.takes("JPY", "KWD", "EUR")
    shopper.get(shopper.buys(sells(product, currency, price))["Location"])
    payment = Payment.objects.get()
    world.shopper_pays(payment)
    world.notification(payment)
    order = get_model("order", "Order").objects.get()
    source = order.sources.get()
    assert (order.status, order.currency, source.currency, source.amount_debited) == (
        "Paid",
        currency,
        currency,
        Decimal(price),
    )
    assert (payment.currency, payment.amount) == (currency, Decimal(price))
    settings.LANGUAGE_CODE = "de"
    ann = staff("ann", *MAY)
    assert shown in text_of(ann.get(url_of(order)))
    page = presses(ann, order, amount=typed)
    assert Refund.objects.get().status == "succeeded", messages_of(page)
    assert world.shop.refunded(order.number) == world.refunded_amount(payment) == Decimal(part)
    assert rest in text_of(page)
    presses(ann, order)  # the form offers all that is left, as a German reader types it
    assert world.refunded_amount(payment) == Decimal(price)
    assert world.reviews() == []


def test_line_share_has_currencys_decimals(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    world.takes("JPY")
    tea = sells(product, "JPY", "1000")
    shopper.get(shopper.buys(tea)["Location"])
    world.shopper_pays(payment := Payment.objects.get())
    world.notification(payment)
    order = get_model("order", "Order").objects.get()
    line = order.lines.get()
    line.quantity = 3
    line.save()
    assert paid_for(order, [line], [1]) == Decimal(333)


def test_unpayable_total_is_told_before_ordering(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """No method takes such a total."""
    world.configure(
        {
            "DIALECT": "v3",
            "STORE_NO": "300014",
            "METHODS": [{"code": "kakaopay", "minimums": {"KRW": "50"}}],
        },
    )
    shopper.adds(sells(product, "KRW", "49"))
    shopper.says_where()
    assert "None of our payment methods takes KRW 49." in text_of(
        shopper.get("/checkout/payment-method/"),
    )
    assert not Payment.objects.exists()


def test_checkout_offers_only_fitting_methods(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """Only methods that take the total are offered."""
    world.configure({"DIALECT": "v3", "STORE_NO": "300014"})
    shopper.adds(sells(product, "PHP", "250"))
    shopper.says_where()
    page = text_of(shopper.get("/checkout/payment-method/"))
    assert 'value="gcash"' in page
    assert 'value="kakaopay"' not in page
