"""The shopper of an unpaid order cancels it, or goes back to the basket with it."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone
from oscar.core.loading import get_model
from oscar.test.factories import OptionFactory

from tests.goods import make_voucher
from tests.shopper import Shopper
from tests.test_payments import counters
from tillgate.django.models import Payment
from tillgate.hooks import Customer, ShippingAddress
from tillgate.testing.world import World
from tillgate_oscar import orders

Order = get_model("order", "Order")
Make = Callable[..., Any]


CHANGE_LINK = '/change/"'
"""The end of every link to the page that changes or cancels an order."""


def change_url(order: Any) -> str:
    described = orders.describe(order.number)
    assert described is not None
    assert described.change_url is not None
    return described.change_url


@pytest.fixture
def order(world: World, shopper: Shopper, product: Make) -> Any:
    """An order of two teas with a voucher, whose payment is open."""
    make_voucher("TEN")
    shopper.adds(product("10.00"), 2)
    shopper.uses_voucher("TEN")
    shopper.says_where()
    shopper.chooses()
    shopper.get(shopper.places()["Location"])
    assert Payment.objects.get().is_open
    return Order.objects.get()


def test_staff_read_customer_and_open_order(order: Any) -> None:
    described = orders.describe(order.number)
    assert described is not None
    assert described.customer == Customer(name="Ada Moss", email=order.guest_email)
    assert described.staff_url == f"/dashboard/orders/{order.number}/"


def test_gateways_get_the_shipping_address(order: Any) -> None:
    described = orders.describe(order.number)
    address = order.shipping_address
    assert described is not None
    assert described.shipping == ShippingAddress(
        name=address.name,
        line1=address.line1,
        city=address.line4,
        region=address.state,
        postal_code=address.postcode,
        country=address.country_id,
    )


def test_staff_search_orders_by_shopper(order: Any) -> None:
    order.billing_address = order.shipping_address = None
    order.save()
    get_user_model()._default_manager.create_user("eve", first_name="Eve", password="x")
    for text, found in (
        (order.number, [order.number]),
        (order.guest_email.upper(), [order.number]),
        ("mo%", []),
        ("' OR 1=1 --", []),
        ("Eve", []),
    ):
        assert orders.search(text, 10) == found, text


def test_staff_search_orders_by_name(order: Any) -> None:
    for text, found in (("ada", 1), ("Moss Ada", 1), ("Ada Stone", 0), ("oss", 0)):
        assert len(orders.search(text, 10)) == found, text


def test_stranger_with_return_address_cannot_change_order(
    world: World,
    order: Any,
    shopper: Shopper,
) -> None:
    address, stranger = f"/payments/return/{Payment.objects.get().return_key}/", Shopper(Client())
    assert CHANGE_LINK in shopper.get(address).content.decode()
    page = stranger.get(address).content.decode()
    assert CHANGE_LINK not in page
    choose = re.findall(r'href="(/payments/pay/[^"]+)"', page)[0]
    for _ in range(2):  # the stranger may pay, and comes back from a payment too
        pay_page = stranger.get(choose).content.decode()
        assert CHANGE_LINK not in pay_page
        choose = html.unescape(re.findall(r'action="(/payments/pay/[^"]+)"', pay_page)[0])
    stranger.post(choose, {"method": "paypal"})
    for payment in Payment.objects.all():
        assert (
            CHANGE_LINK
            not in stranger.get(f"/payments/return/{payment.return_key}/").content.decode()
        )
    assert CHANGE_LINK in Shopper(Client()).get(world.way_to_pay(order.number)).content.decode(), (
        "the shop's mail"
    )


def test_old_address_of_change_page_changes_nothing(
    order: Any,
    shopper: Shopper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, later = change_url(order), time.time() + 3601
    with monkeypatch.context() as patch:
        patch.setattr("django.core.signing.time.time", lambda: later)
        for answer in (shopper.get(address), shopper.post(address, {"then": "cancel"})):
            assert answer["Location"] == orders.status_url(order.number)
    assert Order.objects.get().status == "Pending payment"


def test_change_page_names_open_payment_pages(order: Any, shopper: Shopper) -> None:
    payment = Payment.objects.get()
    page = " ".join(html.unescape(shopper.get(change_url(order)).content.decode()).split())
    assert f"The payment page for USD {payment.amount} with Alipay stays open until " in page
    assert "Do not pay there after you have changed or cancelled the order." in page
    Payment.objects.update(page_closes_at=timezone.now())
    assert "The payment page for" not in shopper.get(change_url(order)).content.decode()


OPEN_PAGE = "The payment page for USD 18.00 with Alipay stays open until "


def text_of(answer: Any) -> str:
    assert answer.status_code == 200
    return " ".join(html.unescape(answer.content.decode()).split())


def pages_of(world: World, shopper: Shopper, order: Any) -> dict[str, str]:
    """Return the pages of an order by their kinds."""
    pages = {
        "order": orders.status_url(order.number),
        "pay": world.way_to_pay(order.number),
        "return": f"/payments/return/{Payment.objects.get().return_key}/",
        "change": change_url(order),
    }
    return {kind: text_of(shopper.get(address)) for kind, address in pages.items()}


def test_order_reduced_to_nothing_asks_for_no_payment(
    world: World,
    order: Any,
    shopper: Shopper,
) -> None:
    assert Payment.objects.get().amount == Decimal("18.00")
    Order.objects.update(total_incl_tax=0, total_excl_tax=0)
    for kind, page in pages_of(world, shopper, order).items():
        assert "There is nothing to pay for this order" in page, kind
        assert OPEN_PAGE in page, kind
        assert "Do not pay there." in page, kind
        for wrong in ("not been paid", "Pay now", "pay it", "18.00</dd>", "not received"):
            assert wrong not in page, (kind, wrong)
    assert "Keep the order" in text_of(shopper.get(change_url(order)))
    address = f"/accounts/order-status/{order.number}/{order.verification_hash()}/"
    shopper.post(shopper.get(address)["Location"], {"email": "ada@shopper.example"})
    own = text_of(shopper.get(address))
    assert "There is nothing to pay for this order." in own
    assert OPEN_PAGE in own
    assert "Pay now" not in own
    assert "waits for payment" not in text_of(shopper.get("/basket/"))


def test_cancelled_order_names_open_payment_page(
    world: World,
    order: Any,
    shopper: Shopper,
) -> None:
    address = change_url(order)
    landed = text_of(shopper.get(shopper.post(address, {"then": "cancel"})["Location"]))
    back = f"/payments/return/{Payment.objects.get().return_key}/"
    for page in (landed, text_of(shopper.get(address)), text_of(shopper.get(back))):
        assert "cancelled" in page
        assert OPEN_PAGE in page
        assert "Do not pay there." in page
        assert "after you have changed" not in page
        assert "Checking" not in page


def test_repriced_order_warns_of_old_price(world: World, order: Any, shopper: Shopper) -> None:
    Order.objects.update(total_incl_tax=Decimal("9.00"))
    for kind in ("order", "pay", "return"):
        page = pages_of(world, shopper, order)[kind]
        assert OPEN_PAGE in page, kind
        assert "Do not pay there." in page, kind


def voucher() -> Any:
    return get_model("voucher", "Voucher").objects.get()


def test_opening_change_page_changes_nothing(
    order: Any,
    shopper: Shopper,
) -> None:
    """A stranger without the address does not reach the page."""
    page = Shopper(Client()).get(change_url(order)).content.decode()
    assert "Green tea" in page
    assert Order.objects.get().status == "Pending payment"
    assert (
        Shopper(Client()).get(change_url(order).replace("/change/", "x/change/")).status_code == 404
    )
    assert Shopper(Client()).get(orders.status_url(order.number) + "change/").status_code == 404
    assert (
        Client(enforce_csrf_checks=True).post(change_url(order), {"then": "cancel"}).status_code
        == 403
    )
    assert Order.objects.get().status == "Pending payment"


def test_only_own_pages_link_change_page(
    order: Any,
    shopper: Shopper,
) -> None:
    """A stranger's page of the same order does not link to it."""
    link = CHANGE_LINK
    assert link in shopper.get(orders.status_url(order.number)).content.decode()
    page = f"/accounts/order-status/{order.number}/{order.verification_hash()}/"
    shopper.post(shopper.get(page)["Location"], {"email": "ada@shopper.example"})
    assert link in shopper.get(page).content.decode()
    assert link not in Shopper(Client()).get(orders.status_url(order.number)).content.decode()


def test_cancelled_order_releases_stock_and_voucher(
    world: World,
    order: Any,
    shopper: Shopper,
) -> None:
    """This happens at once, and nothing is released twice."""
    assert (counters(voucher())["stock"], counters(voucher())["uses"]) == ([2], 1)
    answer = shopper.post(change_url(order), {"then": "cancel"})
    assert "This order was cancelled." in shopper.get(answer["Location"]).content.decode()
    assert Order.objects.get().status == "Cancelled"
    assert (counters(voucher())["stock"], counters(voucher())["uses"]) == ([0], 0)
    assert shopper.get("/basket/").context["basket"].is_empty
    world.a_day_passes()
    assert (world.shop.times_released(order.number), counters(voucher())["stock"]) == (1, [0])


def test_restored_basket_can_be_bought(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """Its lines, quantities, options and voucher are back."""
    make_voucher("TEN")
    tea, engraving = (
        product("10.00"),
        OptionFactory(name="Engraving", code="engraving", required=False),
    )
    tea.product_class.options.add(engraving)
    assert (
        shopper.post(f"/basket/add/{tea.pk}/", {"quantity": 2, "engraving": "for Bo"}).status_code
        == 302
    )
    shopper.uses_voucher("TEN")
    shopper.says_where()
    shopper.chooses()
    shopper.get(shopper.places()["Location"])
    order = Order.objects.get()
    address = change_url(order)
    assert shopper.post(address, {"then": "basket"})["Location"] == "/basket/"
    basket = shopper.get("/basket/").context["basket"]
    (line,) = basket.all_lines()
    assert (line.product, line.quantity, [one.value for one in line.attributes.all()]) == (
        tea,
        2,
        ["for Bo"],
    )
    assert basket.contains_voucher("TEN")
    assert counters(voucher())["stock"] == [0]
    assert shopper.post(address, {"then": "basket"})["Location"] == orders.status_url(
        order.number,
    ), "a second press"
    assert shopper.get("/basket/").context["basket"].num_items == 2
    shopper.says_where()
    shopper.chooses("paypal")
    shopper.get(shopper.places()["Location"])
    again = Order.objects.latest("pk")
    assert (again.status, again.total_incl_tax) == ("Pending payment", Decimal("18.00"))


def test_late_mail_link_restores_basket(
    world: World,
    order: Any,
    shopper: Shopper,
) -> None:
    """The shopper opens the link after the order was released."""
    world.a_day_passes()
    assert Order.objects.get().status == "Cancelled"
    late = Shopper(Client())  # the mail opens in another browser
    pay_page = late.get(world.way_to_pay(order.number)).content.decode()
    assert "This order was not paid in time and was cancelled." in pay_page
    assert CHANGE_LINK in pay_page
    asked = late.get(change_url(order)).content.decode()
    assert "This order was cancelled." in asked
    assert "Cancel the order" not in asked
    for _ in range(2):  # a second press adds nothing
        assert late.post(change_url(order), {"then": "again"})["Location"] == "/basket/"
    basket = late.get("/basket/").context["basket"]
    assert basket.num_items == 2
    assert basket.contains_voucher("TEN")


def test_i4_paid_items_are_not_offered_again(
    world: World,
    order: Any,
    shopper: Shopper,
) -> None:
    address, payment = change_url(order), Payment.objects.get()
    shopper.post(address, {"then": "again"})
    assert Order.objects.get().status == "Pending payment", "it is not cancelled"
    shopper.post(address, {"then": "cancel"})
    world.shopper_pays(payment)
    world.notification(payment)
    # it is there
    assert orders.describe(order.number).change_url is None  # type: ignore[union-attr]
    assert shopper.post(address, {"then": "again"})["Location"] == orders.status_url(order.number)
    assert shopper.get("/basket/").context["basket"].is_empty


def test_discontinued_item_is_named(order: Any, shopper: Shopper) -> None:
    get_model("catalogue", "Product").objects.all().delete()
    shopper.post(change_url(order), {"then": "basket"})
    assert any("Green tea" in said for said in shopper.messages())
    assert Order.objects.get().status == "Cancelled"


def test_i2_late_money_opens_review(
    world: World,
    order: Any,
    shopper: Shopper,
) -> None:
    """The open payment of a cancelled order is still watched."""
    shopper.post(change_url(order), {"then": "basket"})
    payment = Payment.objects.get()
    world.shopper_pays(payment)
    world.run_worker()
    world.notification(payment)
    assert world.fresh(payment).status == "paid"
    assert (Order.objects.get().status, len(world.reviews())) == ("Cancelled", 1)


def test_i4_order_with_money_cannot_be_cancelled(
    world: World,
    order: Any,
    shopper: Shopper,
) -> None:
    """The money has come or is on its way."""
    address, payment = change_url(order), Payment.objects.get()
    Payment.objects.update(is_processing=True)
    for then in ("cancel", "basket"):
        assert shopper.post(address, {"then": then})["Location"] == orders.status_url(order.number)
    assert Order.objects.get().status == "Pending payment"
    Payment.objects.update(is_processing=False)
    world.shopper_pays(payment)
    world.notification(payment)
    shopper.post(address, {"then": "basket"})
    assert Order.objects.get().status == "Paid"
    # it is there
    assert orders.describe(order.number).change_url is None  # type: ignore[union-attr]
    assert shopper.get("/basket/").context["basket"].is_empty


def test_account_order_page_links_change_page(
    world: World,
    product: Make,
) -> None:
    user = get_user_model().objects.create_user("bo", "bo@shopper.example", "secret")
    shopper = Shopper(world.client)
    shopper.client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    shopper.adds(product("10.00"))
    shopper.says_where()
    shopper.chooses()
    shopper.places()
    order = Order.objects.get()
    assert CHANGE_LINK in shopper.get(f"/accounts/orders/{order.number}/").content.decode()
    shopper.post(change_url(order), {"then": "basket"})
    assert shopper.get("/basket/").context["basket"].num_items == 1


def test_basket_leads_owner_to_unpaid_order(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """This works for guests and customers, but not for strangers."""
    user = get_user_model().objects.create_user("bo", "bo@shopper.example", "secret")
    customer, elsewhere = Shopper(Client()), Shopper(Client())
    for browser in (customer, elsewhere):
        browser.client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    for browser, seen_by in ((shopper, shopper), (customer, elsewhere)):
        browser.buys(product("10.00"))
        order = Order.objects.latest("pk")
        page = seen_by.get("/basket/").content.decode()
        notice = page.split('id="tillgate-waiting"')[1].split("</div>")[0]
        assert order.number in notice
        assert "/payments/pay/" in notice
        assert CHANGE_LINK in notice
    assert 'id="tillgate-waiting"' not in Shopper(Client()).get("/basket/").content.decode()
    elsewhere.post(change_url(order), {"then": "cancel"})
    assert 'id="tillgate-waiting"' not in elsewhere.get("/basket/").content.decode()
