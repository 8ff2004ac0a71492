"""A shop that forked `checkout` for its cash on delivery. `test_forked.py` runs this in a process
of its own: settings make the fork.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.core.checks import run_checks
from django.test import Client
from oscar.core.loading import get_class, get_model
from oscar.test.factories import CountryFactory

from tests.forked.checkout import views
from tests.shopper import ADDRESS, Shopper
from tillgate.django.models import Order as ExpectedOrder
from tillgate.django.models import Payment
from tillgate.testing.world import World
from tillgate_oscar.checkout.views import PaymentDetailsMixin

Order = get_model("order", "Order")
JSON = "application/json"


def test_the_mixins_are_on_top_of_the_forks_classes() -> None:
    assert get_class("checkout.views", "PaymentDetailsView").__mro__[1:3] == (
        PaymentDetailsMixin,
        *PaymentDetailsMixin.__mro__[1:2],
    )
    assert issubclass(get_class("checkout.views", "PaymentMethodView"), views.PaymentMethodView)


def test_cash_on_delivery_runs_as_before(
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
) -> None:
    shopper.adds(product("12.50"))
    shopper.says_where()
    page = shopper.get("/checkout/payment-method/").content.decode()
    others = page.split('<a href="/checkout/payment-method/?others')[1].split('"')[0]
    assert (
        "Cash on delivery"
        in shopper.get(f"/checkout/payment-method/?others{others}").content.decode()
    )
    assert (
        shopper.post("/checkout/payment-method/", {"method": "cash"})["Location"]
        == "/checkout/payment-details/"
    )
    assert shopper.get("/checkout/payment-details/").status_code == 200
    preview = shopper.previews()
    assert "tillgate_total" not in preview.content.decode()
    assert shopper.places(preview)["Location"] == "/checkout/thank-you/"
    assert shopper.get("/checkout/thank-you/").status_code == 200
    order = Order.objects.get()
    assert (
        order.status,
        order.sources.get().source_type.name,
        order.sources.get().amount_allocated,
    ) == ("Paid", "Cash", Decimal("12.50"))
    assert order.payment_events.get().event_type.name == "Promised"
    assert len(mail.outbox) == 1
    assert not ExpectedOrder.objects.exists()


def test_whoever_chose_a_method_first_and_then_cash_pays_cash(
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
) -> None:
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses("alipay")
    shopper.post("/checkout/payment-method/", {"method": "cash"})
    assert shopper.places()["Location"] == "/checkout/thank-you/"
    assert not ExpectedOrder.objects.exists()


def test_an_order_of_django_oscar_api_is_paid_through_tillgate_and_else_released(
    world: World,
    product: Callable[..., Any],
) -> None:
    CountryFactory(iso_3166_1_a2="US", printable_name="United States", is_shipping_country=True)
    orders = []
    for email in ("ada@shopper.example", "bob@shopper.example"):
        app = Client()
        added = app.post(
            "/api/basket/add-product/",
            {"url": f"http://testserver/api/products/{product('12.50').pk}/", "quantity": 1},
            JSON,
        )
        address = {
            name: ADDRESS[name]
            for name in ("first_name", "last_name", "line1", "line4", "postcode")
        }
        where = {**address, "country": "http://testserver/api/countries/US/"}
        asked = {
            "basket": added.json()["url"],
            "guest_email": email,
            "shipping_method_code": "free-shipping",
            "shipping_address": where,
        }
        placed = app.post("/api/checkout/", asked, JSON)
        assert placed.status_code == 200, placed.content
        orders.append(Order.objects.get(number=placed.json()["number"]))
        assert (
            orders[-1].number
            in Shopper(Client()).get(placed.json()["payment_url"]).content.decode()
        )
    paid, left = orders
    assert {order.status for order in orders} == {"Pending payment"}
    world.shopper_pays(world.start(paid.number))
    world.a_day_passes()
    assert (world.shop.times_paid(paid.number), world.shop.is_released(left.number)) == (1, True)


def test_a_payment_details_page_of_the_shops_own_knows_who_pays_with_tillgate(
    shopper: Shopper,
    product: Callable[..., Any],
    tmp_path: Any,
    settings: Any,
) -> None:
    page = tmp_path / "oscar" / "checkout" / "payment_details.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        "{% if tillgate_chosen %}with {{ tillgate_chosen }}{% else %}You pay the courier in "
        "cash.{% endif %}",
    )
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]
    shopper.adds(product())
    shopper.says_where()
    for choice, said in (
        ({"tillgate-method": "paypal"}, "with PayPal"),
        ({"method": "cash"}, "You pay the courier in cash."),
    ):
        shopper.post("/checkout/payment-method/", choice)
        assert said in shopper.get("/checkout/payment-details/").content.decode()


def test_whoever_chose_nothing_hears_what_the_shop_says(
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
) -> None:
    shopper.adds(product())
    shopper.says_where()
    assert "Please choose how to pay" in shopper.places().content.decode()
    assert not Order.objects.exists()


def test_a_method_is_paid_through_tillgate_and_takes_no_cash(
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
) -> None:
    shopper.get(shopper.buys(product())["Location"])
    order = Order.objects.get()
    assert (order.status, order.sources.count()) == ("Pending payment", 0)
    world.shopper_pays(Payment.objects.get())
    world.notification(Payment.objects.get())
    order.refresh_from_db()
    assert (order.status, order.sources.get().source_type.name) == ("Paid", "Online payment")


def test_an_order_in_another_currency_is_the_shops_own_affair(
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
) -> None:
    tea = product()
    tea.stockrecords.update(price_currency="EUR")
    shopper.adds(tea)
    shopper.says_where()
    assert "Cash on delivery" in shopper.get("/checkout/payment-method/").content.decode()
    assert any("only orders in USD" in said for said in shopper.messages()), (
        "the shopper reads why no wallet is offered"
    )


def test_a_shop_whose_own_payment_handling_may_take_a_part_is_told(settings: Any) -> None:
    def ids() -> set[str]:
        return {str(message.id) for message in run_checks(tags=["tillgate_oscar"])}

    assert ids() == {"tillgate_oscar.W005"}
    settings.TILLGATE_OSCAR = {"OTHER_WAYS_TO_PAY": True}
    assert ids() == set()


@pytest.mark.parametrize("shown", [True, False])
def test_a_fork_may_show_the_methods_on_its_own_page(
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    shown: bool,
) -> None:
    monkeypatch.setattr(views.PaymentMethodView, "shows_methods", shown, raising=False)
    shopper.adds(product())
    shopper.says_where()
    assert (
        "Cash on delivery" in shopper.get("/checkout/payment-method/").content.decode()
    ) is shown
    assert shopper.chooses("paypal")["Location"] == "/checkout/payment-details/"
    assert "PayPal" in shopper.previews().content.decode()
