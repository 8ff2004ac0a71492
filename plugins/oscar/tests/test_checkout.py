"""The checkout, by Oscar's own pages: from the basket to a paid order, and the shopper's other
ways.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core import mail
from django.db import connections
from django.test import Client
from django.utils import translation
from django.utils.formats import date_format
from django.utils.timezone import localtime
from oscar.apps.checkout import views
from oscar.apps.checkout.signals import post_checkout, pre_payment
from oscar.core.loading import get_class, get_model

from tests.goods import make_voucher
from tests.shop.apps import TAXED
from tests.shopper import Shopper, fields_of
from tillgate import shop
from tillgate.django.models import Order as ExpectedOrder
from tillgate.django.models import Payment
from tillgate.django.refunds import queueing
from tillgate.hooks import Event
from tillgate.testing.world import World, together
from tillgate_oscar import orders
from tillgate_oscar.occasions import follow
from tillgate_oscar.payments import cancel

Order = get_model("order", "Order")
Make = Callable[..., Any]


@pytest.fixture(params=[False, True], ids=["", "atomic"])
def atomic_requests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shop with and without ATOMIC_REQUESTS."""
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", request.param)


def sent(world: World) -> dict[str, Any]:
    """Return the last payment that the gateway was asked to create."""
    entries = [
        entry
        for entry in world.sandbox.service.journal.all()
        if entry.operation == "pay" and entry.direction == "in"
    ]
    return dict(json.loads(entries[-1].detail))


def goods(world: World) -> str:
    return str(sent(world)["goodsInfo"])


# A shopper buys -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("atomic_requests")
def test_guest_pays_and_is_thanked(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    placed = shopper.buys(product("12.50"))
    order = Order.objects.get()
    assert (order.status, order.total_incl_tax) == ("Pending payment", Decimal("12.50"))
    to_payment_page = shopper.get(placed["Location"])
    payment = Payment.objects.select_related("order").get()
    assert world.onward(to_payment_page) == payment.payment_url
    home = shopper.get(world.shopper_pays(payment) or "")
    assert shopper.get(home["Location"])["Location"] == "/checkout/thank-you/"
    assert Order.objects.get().status == "Paid"
    thanks = shopper.get("/checkout/thank-you/").content.decode()
    assert order.number in thanks
    assert "Paid with Alipay" in thanks


@pytest.mark.usefixtures("atomic_requests")
def test_notification_alone_pays_order(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """The shopper never returns."""
    shopper.get(shopper.buys(product())["Location"])
    payment = Payment.objects.get()
    world.shopper_pays(payment)
    assert world.notification(payment).content == b"success"
    assert Order.objects.get().status == "Paid"


def test_gateway_gets_orders_exact_total(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """Tax, shipping and voucher are included, to the cent."""
    tea, cups = (
        product("19.99", "Oolong <b>tea</b>", product_class=TAXED),
        product("7.35", "Cups & saucers"),
    )
    make_voucher("TEN")
    shopper.adds(tea, 3)
    shopper.uses_voucher("TEN")
    shopper.adds(cups)
    shopper.says_where(shipping="courier")
    shopper.chooses()
    preview = shopper.previews()
    shopper.get(shopper.places(preview)["Location"])
    order = Order.objects.get()
    assert order.total_incl_tax > order.total_excl_tax, "there is tax on it"
    assert order.total_discount_incl_tax > 0
    assert f"${order.total_incl_tax}" in preview.content.decode()
    assert (
        order.total_incl_tax
        == sum(line.line_price_incl_tax for line in order.lines.all()) + order.shipping_incl_tax
    )
    assert order.shipping_incl_tax == Decimal("4.99")
    assert [(line.title, line.quantity) for line in order.lines.all()] == [
        ("Oolong <b>tea</b>", 3),
        ("Cups & saucers", 1),
    ]
    asked = sent(world)
    assert Decimal(str(asked["amount"])) == order.total_incl_tax == Payment.objects.get().amount
    assert asked["description"] == f"Order {order.number}"
    assert asked["reference"].startswith(f"{order.number}-")
    assert '"goods_name":"Oolong b tea b","quantity":"3"' in goods(world)
    assert '"quantity":"1"' in goods(world)


def test_customer_finds_paid_order_in_account(
    world: World,
    product: Make,
) -> None:
    user = get_user_model().objects.create_user("bo", "bo@shopper.example", "secret")
    shopper = Shopper(world.client)
    shopper.client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    shopper.get(shopper.buys(product())["Location"])
    order = Order.objects.get(user=user)
    page = shopper.get(f"/accounts/orders/{order.number}/").content.decode()
    assert "has not been paid yet" in page
    assert "/payments/pay/" in page
    world.shopper_pays(Payment.objects.get())
    world.come_back(Payment.objects.get())
    page = shopper.get(f"/accounts/orders/{order.number}/").content.decode()
    assert "/payments/pay/" not in page
    assert "was refunded" not in page
    queueing.refund(Payment.objects.get().pk, "1.50")
    for page in (f"/accounts/orders/{order.number}/", "/checkout/thank-you/"):
        assert "USD 1.50 was refunded." in shopper.get(page).content.decode()
    elsewhere = Client()
    assert (
        "USD 1.50 was refunded." in elsewhere.get(orders.status_url(order.number)).content.decode()
    )
    elsewhere.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    arrived = elsewhere.get(orders.status_url(order.number), follow=True)
    assert arrived.redirect_chain[-1][0] == f"/accounts/orders/{order.number}/"
    assert "your payment has arrived" in arrived.content.decode()


def test_account_explains_unpaid_and_late_money(
    world: World,
    product: Make,
) -> None:
    """It says why an order is unpaid and that money came after it was cancelled."""
    user = get_user_model().objects.create_user("bo", "bo@shopper.example", "secret")
    shopper = Shopper(world.client)
    shopper.client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    shopper.get(shopper.buys(product())["Location"])
    order = Order.objects.get(user=user)

    def page() -> str:
        return str(shopper.get(f"/accounts/orders/{order.number}/").content.decode())

    world.come_back(_declined(world))
    assert "Your payment was declined. This order has not been paid yet." in page()
    shopper.post(str(orders.change_url(order)), {"then": "cancel"})
    assert "your payment has arrived" not in page()
    world.pays_late(Payment.objects.get())
    world.notification(Payment.objects.get())
    assert Order.objects.get().status == "Cancelled"
    assert "your payment has arrived" in page()
    queueing.refund(Payment.objects.get().pk, Payment.objects.get().amount)
    assert "your payment has arrived" not in page()


def test_gateway_gets_email_of_buyer(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """The address is that of the guest or of the customer."""
    shopper.buys(product(), email="ada@shopper.example")
    guests = Order.objects.get()
    customer = Shopper(Client())
    user = get_user_model().objects.create_user("bo", "bo@shopper.example", "secret")
    customer.client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    customer.buys(product())
    described = [orders.describe(order.number) for order in (guests, Order.objects.get(user=user))]
    assert [one and one.email for one in described] == ["ada@shopper.example", "bo@shopper.example"]
    Order.objects.filter(pk=guests.pk).update(guest_email="")
    unknown = orders.describe(guests.number)
    assert unknown is not None
    assert unknown.email is None


def test_free_order_completes_without_tillgate(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.adds(product("0.00"))
    shopper.says_where()
    assert shopper.get("/checkout/payment-method/")["Location"] == "/checkout/preview/"
    assert shopper.places()["Location"] == "/checkout/thank-you/"
    assert shopper.get("/checkout/thank-you/").status_code == 200
    assert not ExpectedOrder.objects.exists()
    assert len(mail.outbox) == 1


# The choice ---------------------------------------------------------------------------------------


def test_methods_appear_in_owners_order(
    world: World,
    shopper: Shopper,
    product: Make,
    configure: Callable[..., None],
) -> None:
    """Only those that the owner enabled are offered."""
    configure(PAYMENT_METHODS=["paypal", "alipay"])
    shopper.adds(product())
    shopper.says_where()
    page = shopper.get("/checkout/payment-method/").content.decode()
    assert page.index("PayPal") < page.index("Alipay")
    assert "WeChat" not in page


def test_preview_shows_and_remembers_chosen_method(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """The choice is still there when the shopper goes back."""
    shopper.adds(product())
    shopper.says_where()
    assert shopper.chooses("wechatpay")["Location"] == "/checkout/payment-details/"
    assert shopper.get("/checkout/payment-details/")["Location"] == "/checkout/preview/"
    preview = shopper.previews().content.decode()
    assert "WeChat Pay" in preview
    assert "Payment details to go here" not in preview
    assert (
        fields_of(shopper.get("/checkout/payment-method/"), "tillgate-choice")["tillgate-method"]
        == "wechatpay"
    )


def test_preview_requires_chosen_method(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.adds(product())
    shopper.says_where()
    assert shopper.previews()["Location"] == "/checkout/payment-method/"
    assert shopper.get("/checkout/payment-details/")["Location"] == "/checkout/payment-method/"
    assert "Please choose how to pay" in shopper.messages()


# Faults before ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["", "goldbars", "alipay'--", "x" * 5000, "\x00"])
def test_unoffered_method_is_refused_in_words(
    world: World,
    shopper: Shopper,
    product: Make,
    method: str,
) -> None:
    shopper.adds(product())
    shopper.says_where()
    answer = shopper.chooses(method)
    assert answer.status_code == 200
    assert 'role="alert"' in answer.content.decode()
    assert shopper.previews()["Location"] == "/checkout/payment-method/"


@pytest.mark.parametrize("kept", ["tillgate:goldbars", "tillgate:", "tillgate:paypal"])
def test_withdrawn_method_leads_back_to_methods(
    world: World,
    shopper: Shopper,
    product: Make,
    configure: Callable[..., None],
    kept: str,
) -> None:
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses("paypal")
    preview = shopper.previews()
    session = shopper.client.session
    session["checkout_data"]["payment"]["method"] = kept
    session.save()
    configure(PAYMENT_METHODS=["alipay"])
    assert shopper.places(preview)["Location"] == "/checkout/payment-method/"
    assert "This way to pay is not offered any more. Please choose another" in shopper.messages()
    assert not Order.objects.exists()


def test_changed_total_is_shown_before_placing(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    tea = product("12.50")
    shopper.adds(tea)
    shopper.says_where()
    shopper.chooses()
    preview = shopper.previews()
    tea.stockrecords.update(price=Decimal("12.51"))
    again = shopper.places(preview)
    assert again.status_code == 200
    assert "The total has changed" in again.content.decode()
    assert not Order.objects.exists()
    assert shopper.places(again)["Location"].startswith("/payments/start/")
    assert Order.objects.get().total_incl_tax == Decimal("12.51")


def test_missing_total_is_shown_again(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses()
    answer = shopper.post("/checkout/preview/", {"action": "place_order"})
    assert "The total has changed" in answer.content.decode()
    assert not Order.objects.exists()


def test_emptied_basket_places_no_order(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """The basket was emptied in another tab."""
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses()
    preview = shopper.previews()
    get_model("basket", "Line").objects.all().delete()
    assert shopper.places(preview)["Location"] == "/basket/"
    assert any("You need to add some items" in message for message in shopper.messages())
    assert not Order.objects.exists()


def test_no_methods_means_no_orders(
    world: World,
    shopper: Shopper,
    product: Make,
    configure: Callable[..., None],
) -> None:
    """An owner that disabled all methods gets no order that cannot be paid."""
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses()
    preview = shopper.previews()
    configure(PAYMENT_METHODS=[])
    assert shopper.places(preview)["Location"] == "/checkout/payment-method/"
    assert (
        "No way to pay is offered at the moment"
        in shopper.get("/checkout/payment-method/").content.decode()
    )
    assert "No way to pay is offered at the moment" in shopper.chooses().content.decode()
    assert not Order.objects.exists()


def test_refused_currency_is_told_and_logged(
    world: World,
    shopper: Shopper,
    product: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tea = product()
    tea.stockrecords.update(price_currency="EUR")
    shopper.adds(tea)
    shopper.says_where()
    assert "this one is in EUR" in shopper.get("/checkout/payment-method/").content.decode()
    (line,) = [record for record in caplog.records if record.name == "oscar.checkout"]
    assert (line.levelname, "this one is in EUR" in line.getMessage()) == ("WARNING", True)
    assert "this one is in EUR" in shopper.chooses().content.decode()
    assert shopper.previews()["Location"] == "/checkout/payment-method/"
    assert not Order.objects.exists()


@pytest.mark.parametrize("path", ["start/{}/", "order/{}/"])
@pytest.mark.parametrize("ticket", ["x", "100001", "WyIxMDAwMDEiLCJhbGlwYXkiXQ:1vMzXx:abc"])
def test_a_forged_ticket_starts_and_shows_nothing(
    world: World,
    shopper: Shopper,
    product: Make,
    path: str,
    ticket: str,
) -> None:
    shopper.buys(product())
    assert shopper.get("/payments/" + path.format(ticket)).status_code == 404
    assert not Payment.objects.exists()


def test_tickets_are_not_interchangeable(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """Starting, status and paying each have a ticket of their own."""
    start = shopper.buys(product())["Location"].split("/")[-2]
    shopper.get(f"/payments/start/{start}/")
    home = home_on(world.come_back(_declined(world)))
    status = home.split("/")[-2]
    for path, ticket in [("start", status), ("pay", status), ("pay", start), ("order", start)]:
        assert Client().get(f"/payments/{path}/{ticket}/").status_code == 404, path


def _declined(world: World) -> Payment:
    payment = Payment.objects.get()
    world.sandbox.control.decline(payment.reference)
    return payment


def home_on(page: Any) -> str:
    """Return the address of the shop's page for the order, on the page about the outcome."""
    return str(page.content.decode().split('">Back to the shop')[0].split('href="')[-1])


# Faults at the gateway ----------------------------------------------------------------------------


def test_refused_method_can_be_replaced(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    placed = shopper.buys(product())
    world.sandbox.control.fault("refused", occasion="pay")
    page = shopper.get(placed["Location"])
    assert page.status_code == 409
    assert "Please choose another" in page.content.decode()
    to_payment_page = shopper.post(_action(page), {"method": "paypal"})
    assert world.onward(to_payment_page).startswith(world.sandbox.base_url)
    assert Order.objects.get().status == "Pending payment"


def _action(page: Any) -> str:
    text = page.content.decode()
    return str(text.split('method="post" action="')[1].split('"')[0])


def test_silent_gateway_leaves_order_payable(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    placed = shopper.buys(product())
    world.configure(account={"BASE_URL": "http://127.0.0.1:9"})
    page = shopper.get(placed["Location"])
    assert page.status_code == 409
    world.configure()
    assert world.onward(shopper.post(_action(page), {"method": "alipay"})).startswith(
        world.sandbox.base_url,
    )


def test_declined_payment_leads_to_another_method(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """It leads to the page of the order, where another method can be chosen."""
    shopper.get(shopper.buys(product())["Location"])
    home = home_on(world.come_back(_declined(world)))
    page = shopper.get(home).content.decode()
    assert "Your payment was declined. This order has not been paid yet." in page
    pay = page.split('btn-lg" href="')[1].split('"')[0]
    assert world.onward(shopper.post(pay, {"method": "paypal"})).startswith(world.sandbox.base_url)
    second = Payment.objects.get(method="paypal")
    world.shopper_pays(second)
    world.come_back(second)
    assert Order.objects.get().status == "Paid"


# The shop's own ways to pay, and the test mode ----------------------------------------------------


def test_cash_order_is_placed_without_tillgate(
    shopper: Shopper,
    product: Make,
    settings: Any,
) -> None:
    """Cash on delivery stands in the same list of methods."""
    settings.TILLGATE_OSCAR, settings.OSCAR_INITIAL_ORDER_STATUS = (
        {"OTHER_METHODS": {"cash": "Cash on delivery"}},
        "Pending payment",
    )
    shopper.adds(product("12.50"))
    shopper.says_where()
    assert shopper.previews()["Location"] == "/checkout/payment-method/", "nothing is chosen"
    page = shopper.get("/checkout/payment-method/").content.decode()
    assert page.count("<fieldset") == 1
    assert page.index('value="alipay"') < page.index('value="cash"')
    assert "on the page of the payment service" not in page, "cash is not paid there"
    assert shopper.chooses("cash")["Location"] == "/checkout/payment-details/"
    assert shopper.get("/checkout/payment-details/")["Location"] == "/checkout/preview/"
    assert re.search(
        r'value="cash"[^>]* checked',
        shopper.get("/checkout/payment-method/").content.decode(),
    ), "it is remembered"
    preview = shopper.previews()
    assert "Cash on delivery" in preview.content.decode()
    assert "Test mode" not in preview.content.decode()
    assert shopper.places(preview)["Location"] == "/checkout/thank-you/"
    assert shopper.get("/checkout/thank-you/").status_code == 200
    assert [str(source.source_type) for source in Order.objects.get().sources.all()] == [
        "Cash on delivery",
    ]
    assert not ExpectedOrder.objects.exists()


def test_order_without_method_allows_cash(
    shopper: Shopper,
    product: Make,
    settings: Any,
) -> None:
    """The shop's own way to pay remains."""
    settings.TILLGATE_OSCAR = {"OTHER_METHODS": {"cash": "Cash on delivery"}}
    tea = product()
    tea.stockrecords.update(price_currency="EUR")
    shopper.adds(tea)
    shopper.says_where()
    page = shopper.get("/checkout/payment-method/").content.decode()
    assert "takes USD only" in page
    assert re.findall(r'name="tillgate-method" value="(\w+)"', page) == ["cash"]
    assert shopper.chooses("alipay").status_code == 200, (
        "a method that cannot take the order cannot be chosen"
    )
    assert shopper.chooses("cash").status_code == 302


def test_payment_step_explains_unavailable_method(
    shopper: Shopper,
    product: Make,
    settings: Any,
    configure: Callable[..., None],
) -> None:
    """It also shows the total and the shop's own way to pay."""
    settings.TILLGATE_OSCAR = {"OTHER_METHODS": {"cash": "Cash on delivery"}}
    methods = [{"code": "alipay"}, {"code": "paypal", "maximums": {"USD": "10.00"}}]
    configure(account={"METHODS": methods})
    shopper.adds(product("12.50"))
    shopper.says_where()
    page = shopper.get("/checkout/payment-method/").content.decode()
    assert "$12.50" in page.split('class="tillgate-total"')[1].split("</p>")[0]
    assert re.findall(r'name="tillgate-method" value="(\w+)"', page) == ["alipay", "cash"]
    unavailable = page.split("tillgate-unavailable")[1].split("</label>")[0]
    assert "PayPal" in unavailable
    assert "USD 10.00" in unavailable


def test_sandbox_waiting_order_says_test_mode(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """All its pages say that no money moves."""
    user = get_user_model().objects.create_user("bo", "bo@shopper.example", "secret")
    customer = Shopper(Client())
    customer.client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    shopper.buys(product())
    order = Order.objects.get()
    guests = f"/accounts/order-status/{order.number}/{order.verification_hash()}/"
    shopper.post(shopper.get(guests)["Location"], {"email": "ada@shopper.example"})
    customer.buys(product())
    pages = [
        shopper.get(str(orders.change_url(order))),
        shopper.get(guests),
        customer.get(f"/accounts/orders/{Order.objects.get(user=user).number}/"),
    ]
    assert ["Test mode" in page.content.decode() for page in pages] == [True] * 3


def test_sandbox_checkout_pages_say_test_mode(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """Every page from basket to thank-you says that no money moves."""
    shopper.adds(product())
    pages = [shopper.get("/basket/"), shopper.get("/checkout/")]
    shopper.says_where()
    pages += [shopper.get(f"/checkout/{step}/") for step in ("shipping-address", "payment-method")]
    shopper.chooses()
    pages.append(shopper.previews())
    placed = shopper.places(pages[-1])
    order = Order.objects.get()
    pages.append(shopper.get(shopper.get("/checkout/thank-you/")["Location"]))  # the order waits
    pages.append(shopper.get(placed["Location"]))
    world.shopper_pays(Payment.objects.get())
    world.come_back(Payment.objects.get())
    pages.append(shopper.get("/checkout/thank-you/"))
    assert order.number in pages[-1].content.decode()
    assert ["Test mode" in page.content.decode() for page in pages] == [True] * 8
    head, tail = pages[0].content.decode().split('id="content_inner"')
    assert "Test mode" in head
    assert "Green tea" in tail, "Oscar's script replaces this part"


def test_urdu_pages_run_right_to_left(
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.adds(product())
    shopper.says_where()
    for language, direction in (("ur", ' dir="rtl"'), ("en", "")):
        with translation.override(language):
            assert (
                f'<div class="col-12"{direction}>'
                in shopper.get("/checkout/payment-method/").content.decode()
            )
    shopper.chooses()
    shopper.get(shopper.places()["Location"])
    payment = Payment.objects.select_related("order").get()
    change_url = orders.change_url(orders.find(payment.order.key))
    assert change_url
    with translation.override("ur"):
        assert (
            '<main id="main" dir="rtl">'
            in shopper.get(f"/payments/return/{payment.return_key}/").content.decode()
        )
        assert '<div id="tillgate-change" dir="rtl">' in shopper.get(change_url).content.decode()


def test_tillgates_pages_have_the_shops_layout(
    world: World,
    shopper: Shopper,
    product: Make,
    settings: Any,
) -> None:
    shopper.buys(product())
    page = shopper.get(world.way_to_pay(Order.objects.get().number)).content.decode()
    assert settings.OSCAR_SHOP_NAME in page
    assert "oscar/css/styles.css" in page
    assert page.count("<main") == page.count("<h1") == 1


# Twice, back, and elsewhere -----------------------------------------------------------------------


def test_simultaneous_placing_makes_one_order(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """It makes one payment, too."""
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses()
    fields = fields_of(shopper.previews(), "place_order_form")

    def press() -> Any:
        browser = Client()
        browser.cookies = shopper.client.cookies
        answer = browser.post("/checkout/preview/", fields)
        return browser.get(answer["Location"]) if "/start/" in answer["Location"] else answer

    answers: list[Any] = together(press, press)
    assert Order.objects.count() == 1
    assert Payment.objects.count() == 1
    payment_page = Payment.objects.get().payment_url
    assert [world.onward(answer) for answer in answers] == [payment_page, payment_page]
    assert (
        get_model("basket", "Basket").objects.get(pk=Order.objects.get().basket_id).status
        == "Submitted"
    )
    assert Order.objects.get().lines.get().num_allocated == 1


def test_second_press_reaches_same_payment_page(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """Between the press and the order; there Oscar has frozen the basket, and shows an empty one to
    any other request.
    """
    shopper.adds(product(stock=1))
    shopper.says_where()
    shopper.chooses()
    fields = fields_of(shopper.previews(), "place_order_form")
    answers: list[Any] = []

    def press_again(**_: Any) -> None:
        pre_payment.disconnect(press_again)
        browser = Client()
        browser.cookies = shopper.client.cookies
        answers.append(browser.post("/checkout/preview/", fields))

    pre_payment.connect(press_again)
    answers.append(shopper.post("/checkout/preview/", fields))
    assert Order.objects.count() == 1
    led_to = {world.onward(shopper.get(answer["Location"])) for answer in answers}
    assert led_to == {Payment.objects.get().payment_url}


def test_basket_placed_again_keeps_its_order(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """The press that came second has read the basket while it was open, and submits it after the
    first.
    """
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses()
    fields, before = fields_of(shopper.previews(), "place_order_form"), dict(shopper.client.session)
    told: list[str] = []

    def hear(order: Any, **_: Any) -> None:
        told.append(str(order.number))

    post_checkout.connect(hear)
    first = shopper.post("/checkout/preview/", fields)
    get_model("basket", "Basket").objects.update(status="Open")
    session = shopper.client.session
    session.update(before)
    session.save()
    second = shopper.post("/checkout/preview/", fields)
    post_checkout.disconnect(hear)
    assert told == [Order.objects.get().number], "the shop hears of it once"
    assert world.onward(shopper.get(first["Location"])) == world.onward(
        shopper.get(second["Location"]),
    )
    assert Payment.objects.count() == 1
    assert (
        get_model("basket", "Basket").objects.get(pk=Order.objects.get().basket_id).status
        == "Submitted"
    )


def test_simultaneous_starts_make_one_payment(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    start = shopper.buys(product())["Location"]
    answers: list[Any] = together(lambda: Client().get(start), lambda: Client().get(start))
    assert [world.onward(answer) for answer in answers] == [Payment.objects.get().payment_url] * 2


def test_unpaid_order_page_shows_payment_deadline(
    world: World,
    shopper: Shopper,
    product: Make,
    settings: Any,
) -> None:
    """It has the items, and says until when the goods are kept: while a payment is open, until its
    page closes.
    """
    settings.TIME_ZONE = "Asia/Tokyo"
    shopper.get(shopper.buys(product())["Location"])
    address = orders.status_url(Order.objects.get().number)
    page, closes = shopper.get(address).content.decode(), Payment.objects.get().page_closes_at
    kept = date_format(localtime(closes), "N j, Y H:i T")
    assert f"Your goods are kept for you until {kept}. You can pay now, in another way" in page
    assert "<li>Green tea &times; 1</li>" in page
    assert "Order total:" in page
    home = home_on(world.come_back(_declined(world)))
    ExpectedOrder.objects.update(unpaid_check_at=datetime(2099, 7, 9, 15, 5, tzinfo=UTC))
    said = (
        "<p>Your goods are kept for you until July 10, 2099 00:05 JST. You can pay now, in "
        "another way too."
    )
    assert said in shopper.get(home).content.decode()
    stranger = Shopper().get(address).content.decode()
    for told in ("are kept", "Green tea", "Order total"):
        assert told not in stranger, "another browser reads only how the order stands"


@pytest.mark.parametrize("by_hand", [False, True])
def test_page_after_the_end_leads_to_items(
    world: World,
    shopper: Shopper,
    product: Make,
    by_hand: bool,
) -> None:
    """It names the outcome in plain words, and contradicts none of its buttons."""
    shopper.get(shopper.buys(product())["Location"])
    number = Order.objects.get().number
    link = shop.pay_path("oscar", number)
    _declined(world)
    if by_hand:
        cancel(number)
    world.a_day_passes()
    said = "This order was cancelled." if by_hand else "This order was not paid in time"
    for address in (orders.status_url(number), link):
        page = shopper.get(address).content.decode()
        assert said in page or (by_hand and "The shop says: the order was cancelled." in page)
        assert ("not paid in time" in page) is not by_hand
        assert "Nothing was charged." in page
        assert "Order these items again" in page
        for wrong in ("Please ask the shop", "If you have paid it"):
            assert wrong not in page


def test_wallet_of_other_app_starts_nothing(product: Make, world: World) -> None:
    """Alipay inside WeChat: the page leads to the shopper's own browser, where the link works."""
    agent = "Mozilla/5.0 (Linux; Android 14; wv) AppleWebKit/537.36 MicroMessenger/8.0.49"
    inside = Shopper(Client(headers={"User-Agent": agent}))
    page = inside.get(inside.buys(product(), method="alipay")["Location"]).content.decode()
    assert "open this page in your browser" in page
    assert not Payment.objects.exists()
    link = page.split('value="http://testserver', 1)[1].partition('"')[0]
    assert "Continue to payment" in Client().get(html.unescape(link)).content.decode()


def test_order_page_names_the_card_that_paid(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.get(shopper.buys(product())["Location"])
    payment = Payment.objects.get()
    world.shopper_pays(payment)
    world.come_back(payment)
    known = {"paid_with": {"method": "card", "brand": "visa", "last4": "4242"}}
    Payment.objects.update(method="checkout", details=known)
    thanks = shopper.get("/checkout/thank-you/").content.decode()
    assert "Paid with Visa ending 4242" in thanks
    order = Order.objects.get()
    guests = f"/accounts/order-status/{order.number}/{order.verification_hash()}/"
    shopper.post(shopper.get(guests)["Location"], {"email": "ada@shopper.example"})
    assert "Paid with Visa ending 4242." in shopper.get(guests).content.decode()


def test_back_button_leads_to_waiting_order(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.get(shopper.buys(product())["Location"])
    for step in ("/checkout/preview/", "/checkout/payment-method/", "/checkout/thank-you/"):
        home = shopper.get(step)["Location"]
        while not home.startswith("/payments/"):
            home = shopper.get(home)["Location"]
        page = shopper.get(home).content.decode()
        assert "Pay now" in page, step
    shopper.adds(product())
    assert shopper.get("/checkout/preview/")["Location"] != home, (
        "a new basket has a checkout of its own"
    )


def test_restarted_paid_order_charges_nothing(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    start = shopper.buys(product())["Location"]
    shopper.get(start)
    world.shopper_pays(Payment.objects.get())
    assert shopper.get(start)["Location"].startswith("/payments/return/")
    assert Order.objects.get().status == "Paid"
    assert "This order is already paid" in shopper.get(start).content.decode()
    assert Payment.objects.count() == 1


def test_other_browser_sees_only_order_status(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.get(shopper.buys(product("12.50", "Secret tea"))["Location"])
    order, wallet = Order.objects.get(), Shopper()
    home = home_on(world.come_back(_declined(world)))
    page = wallet.get(home)
    text = page.content.decode()
    assert "has not been paid yet" in text
    for private in ("/payments/pay/", "Mill Lane", "ada@shopper.example", "Secret tea"):
        assert private not in text
    assert page["Referrer-Policy"] == "no-referrer"
    world.start(order.number)
    again = Payment.objects.latest("pk")
    world.shopper_pays(again)
    landed = wallet.get(world.come_back(again)["Location"])
    assert "your payment has arrived" in landed.content.decode()


def test_arrived_money_is_not_requested_again(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """The event is not delivered yet."""
    shopper.get(shopper.buys(product())["Location"])
    payment = Payment.objects.get()
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid"):
        home = world.come_back(payment)["Location"]
    assert Order.objects.get().status == "Pending payment"
    page = shopper.get(home).content.decode()
    assert "your payment has arrived" in page
    assert "Pay now" not in page


# Unpaid orders ------------------------------------------------------------------------------------


def test_order_without_started_payment_is_cancelled(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.buys(product())
    order = Order.objects.get()
    assert order.lines.get().num_allocated == 1
    world.a_day_passes()
    order.refresh_from_db()
    assert order.status == "Cancelled"
    assert order.lines.get().num_allocated == 0


def test_order_and_registration_are_written_together(
    world: World,
    shopper: Shopper,
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If one of them fails, neither is written."""
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses()
    preview = shopper.previews()

    def fail(*_: Any) -> None:
        raise OSError("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr("tillgate.django.orders.registering.open_order", fail)
        assert (
            "A problem occurred while placing this order"
            in shopper.places(preview).content.decode()
        )
    assert not Order.objects.exists()
    assert get_model("basket", "Basket").objects.get().status == "Open"
    assert get_model("partner", "StockRecord").objects.get().num_allocated is None
    assert "/start/" in shopper.places()["Location"]


def test_class_identity_survives_oscars_loading() -> None:
    first, second = (get_class("checkout.views", "PaymentDetailsView") for _ in range(2))
    assert first is second


def test_otherwise_paid_order_is_not_resold(
    world: World,
    shopper: Shopper,
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    """Oscar opens it when the mail about the order fails, for one, after the card was charged."""

    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError

    settings.TILLGATE_OSCAR, settings.OSCAR_INITIAL_ORDER_STATUS = (
        {"OTHER_WAYS_TO_PAY": True},
        "Pending payment",
    )
    monkeypatch.setattr(views.PaymentDetailsView, "handle_payment", lambda *_, **__: None)
    shopper.adds(product("12.50"))
    shopper.says_where()
    shopper.get("/checkout/payment-method/?others=1")
    with monkeypatch.context() as patched:
        patched.setattr("django.core.mail.message.EmailMessage.send", refuse)
        assert shopper.places().status_code == 200
    number = Order.objects.get().number
    shopper.chooses("alipay")
    again = shopper.places()
    assert f"Your order {number} has been placed already" in again.content.decode()
    world.a_day_passes()
    assert Order.objects.get().status == "Pending payment"
    assert not Payment.objects.exists()


def test_underpayment_promises_no_mail(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.get(shopper.buys(product("12.50"))["Location"])
    payment = Payment.objects.get()
    Order.objects.update(total_incl_tax=20)
    told = shopper.get(world.shopper_pays(payment) or "")
    assert "Your payment has arrived, and the shop reviews it" in told.content.decode()
    page = shopper.get(home_on(told))
    assert world.reviews() == ["underpaid"]
    text = page.content.decode()
    assert "Thank you, your payment has arrived." in text
    assert "The shop knows about it and will be in touch with you." in text
    assert "You will get a mail" not in text
    assert "Refresh" not in page


def test_i4_gateway_paid_order_invites_no_payment(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """The shopper gets no reminder to pay, either."""
    shopper.get(shopper.buys(product("12.50"))["Location"])
    payment = Payment.objects.get()
    world.sandbox.control.fault("wrong_amount", occasion="query", times=100)
    world.shopper_pays(payment)
    world.notification(payment)
    home = shopper.get("/checkout/thank-you/")["Location"]
    page = shopper.get(home).content.decode()
    assert "Your payment is under review." in page
    assert "Pay now" not in page
    Payment.objects.update(status="failed")
    fields = {"order": str(payment.order)}
    at, reference = world.time.now(), payment.reference
    follow(Event(name="payment.failed", at=at, reference=reference, fields=fields))
    world.run_worker()
    assert mail.outbox == []
    world.sandbox.control.clear_faults()
    Payment.objects.update(status="pending")
    world.time.advance(minutes=10)
    world.run_worker()
    assert Order.objects.get().status == "Paid"
