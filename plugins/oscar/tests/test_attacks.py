"""Attacks: tampering, edits, deletions and races end in a message, and money, stock and records
still add up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core import mail
from django.db import connections
from django.test import Client
from django.urls import path
from oscar.apps.checkout import views as oscars_checkout
from oscar.apps.checkout.signals import post_checkout
from oscar.apps.checkout.surcharges import FlatCharge
from oscar.apps.dashboard.orders import views as oscars_dashboard
from oscar.apps.order.exceptions import InvalidPaymentEvent
from oscar.apps.order.utils import OrderNumberGenerator
from oscar.apps.payment.exceptions import PaymentError
from oscar.apps.shipping.methods import FixedPrice
from oscar.core.loading import get_class, get_model

from tests import urls
from tests.goods import make_voucher
from tests.shop.apps import TAXED
from tests.shopper import Shopper, fields_of
from tests.test_checkout import goods, home_on, sent
from tests.test_dashboard import MAY, messages_of, presses, presses_for_lines, staff, url_of
from tests.test_refunds import Bought
from tillgate.django.models import Order as ExpectedOrder
from tillgate.django.models import Payment, Refund
from tillgate.django.refunds import queueing
from tillgate.testing.world import World, together
from tillgate_oscar import orders
from tillgate_oscar.checkout import choice
from tillgate_oscar.refunds import refund_event_type

Basket = get_model("basket", "Basket")
Order = get_model("order", "Order")
StockRecord = get_model("partner", "StockRecord")
Make = Callable[..., Any]

BACKEND = "django.contrib.auth.backends.ModelBackend"


@pytest.fixture
def payment(world: World, shopper: Shopper, product: Make) -> Payment:
    """A payment with an open payment page."""
    shopper.get(shopper.buys(product("12.50"))["Location"])
    return Payment.objects.select_related("order").get()


@pytest.fixture
def bought(world: World, product: Make) -> Bought:
    return Bought(world, product)


def handler() -> Any:
    return get_class("order.processing", "EventHandler")()


def is_at_start(answer: Any) -> bool:
    return bool(answer.get("Location", "").startswith("/payments/start/"))


def customer(name: str = "bo") -> Any:
    return get_user_model().objects.create_user(name, f"{name}@shopper.example", "secret")


def browser_of(user: Any) -> Shopper:
    shopper = Shopper()
    shopper.client.force_login(user, backend=BACKEND)
    return shopper


def declined(world: World, payment: Payment) -> str:
    """Let the payment be declined; return where the shopper lands."""
    world.sandbox.control.decline(payment.reference)
    return home_on(world.come_back(payment))


# Between the pages of the checkout ----------------------------------------------------------------


def test_disabled_methods_show_a_message(
    world: World,
    shopper: Shopper,
    product: Make,
    configure: Callable[..., None],
) -> None:
    """The shop may disable all methods after the order was placed."""
    placed = shopper.buys(product())
    configure(PAYMENT_METHODS=[])
    page = shopper.get(placed["Location"])
    assert (
        page.status_code,
        "The shop offers no payment method at the moment" in page.content.decode(),
    ) == (200, True)
    configure()
    assert world.onward(shopper.get(placed["Location"])).startswith(world.sandbox.base_url), (
        "the order can be paid once there is a way"
    )


@pytest.mark.parametrize("total", ["0.00", "-1.00"])
def test_order_edited_to_nothing_before_paying(
    world: World,
    shopper: Shopper,
    product: Make,
    total: str,
) -> None:
    placed = shopper.buys(product())
    Order.objects.update(total_incl_tax=Decimal(total), total_excl_tax=Decimal(total))
    page = shopper.get(placed["Location"])
    assert page.status_code == 200
    assert "There is nothing to pay for this order" in page.content.decode()
    assert not Payment.objects.exists()


def test_order_made_free_needs_no_payment(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """A voucher that makes the order free completes it without a payment."""
    voucher = make_voucher("ALL")
    get_model("offer", "Benefit").objects.filter(offers__vouchers=voucher).update(value=100)
    shopper.adds(product("10.00"))
    shopper.says_where()
    shopper.chooses()
    preview = shopper.previews()
    shopper.uses_voucher("ALL")
    assert shopper.places(preview)["Location"] == "/checkout/thank-you/"
    assert Order.objects.get().total_incl_tax == 0
    assert not ExpectedOrder.objects.exists()


def test_free_order_with_new_price_refused(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """A free order that costs something by the time it is placed is not placed."""
    tea = product("0.00")
    shopper.adds(tea)
    shopper.says_where()
    preview = shopper.previews()
    tea.stockrecords.update(price=Decimal("5.00"))
    assert shopper.places(preview)["Location"] == "/checkout/payment-method/"
    assert not Order.objects.exists()


def test_basket_turned_downloadable_is_still_placed(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """The shopper is led through the shipping method first."""
    shopper.adds(product())
    shopper.says_where(shipping="courier")
    shopper.chooses()
    preview = shopper.previews()
    get_model("basket", "Line").objects.all().delete()
    song = product("3.00", "Song", product_class="Download")
    get_model("catalogue", "ProductClass").objects.filter(name="Download").update(
        requires_shipping=False,
    )
    shopper.adds(song)
    for answer in (shopper.previews(), shopper.places(preview)):
        assert answer["Location"] == "/checkout/shipping-method/"
    assert shopper.get("/checkout/shipping-method/")["Location"] == "/checkout/payment-method/"
    assert is_at_start(shopper.places())
    assert Order.objects.get().total_incl_tax == Decimal("3.00")


def test_failing_shop_receiver_blocks_no_payment(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """A shop's receiver that fails after the order was placed does not stop the payment."""

    def fail(**_: Any) -> None:
        # breaks the transaction that it is in
        Order.objects.create(number=Order.objects.get().number)

    post_checkout.connect(fail)
    try:
        placed = shopper.buys(product())
    finally:
        post_checkout.disconnect(fail)
    assert is_at_start(placed)
    assert Basket.objects.get().status == "Submitted", "or it could be ordered again"
    assert world.onward(shopper.get(placed["Location"])).startswith(world.sandbox.base_url)


def test_post_without_csrf_token_changes_nothing(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses()
    fields = fields_of(shopper.previews(), "place_order_form")
    pay = world.way_to_pay(world.order())
    before = Order.objects.count()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = shopper.client.cookies
    forged = {
        "/checkout/payment-method/": {"tillgate-method": "paypal"},
        "/checkout/preview/": fields,
        pay: {"method": "paypal"},
    }
    for address, fields in forged.items():
        assert strict.post(address, {**fields, "csrfmiddlewaretoken": ""}).status_code == 403, (
            address
        )
    assert (Order.objects.count(), Payment.objects.count()) == (before, 0)


# Races --------------------------------------------------------------------------------------------


def test_double_press_holds_stock_once(
    world: World,
    shopper: Shopper,
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two simultaneous presses hold the stock and the voucher once, even under ATOMIC_REQUESTS."""
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    voucher = make_voucher("TEN")
    shopper.adds(product("10.00"), 2)
    shopper.uses_voucher("TEN")
    shopper.says_where()
    shopper.chooses()
    fields = fields_of(shopper.previews(), "place_order_form")
    browsers = [Client(), Client()]
    for browser in browsers:
        browser.cookies = shopper.client.cookies
    placed = together(
        *[
            lambda browser=browser: browser.post("/checkout/preview/", fields)
            for browser in browsers
        ],
    )
    assert [is_at_start(answer) for answer in placed] == [True, True], placed
    assert shopper.client.session["checkout_order_id"] == Order.objects.get().pk, (
        "whichever request has written the session last"
    )
    assert Order.objects.count() == ExpectedOrder.objects.count() == 1
    assert (StockRecord.objects.get().num_allocated, voucher.applications.count()) == (2, 1)
    world.a_day_passes()
    assert (StockRecord.objects.get().num_allocated, voucher.applications.count()) == (0, 0)


def test_single_use_voucher_discounts_one_shopper(
    world: World,
    product: Make,
) -> None:
    make_voucher("TEN")
    tea, shoppers = product("10.00"), [Shopper(), Shopper()]
    for shopper in shoppers:
        shopper.adds(tea)
        shopper.uses_voucher("TEN")
        shopper.says_where()
        shopper.chooses()
    pages = [(shopper, shopper.previews()) for shopper in shoppers]
    placed = together(*[lambda page=page: page[0].places(page[1]) for page in pages])
    assert sorted(is_at_start(answer) for answer in placed) == [False, True], placed
    assert (Order.objects.get().total_incl_tax, StockRecord.objects.get().num_allocated) == (
        Decimal("9.00"),
        1,
    )


@pytest.mark.parametrize("atomic", [False, True], ids=["", "atomic"])
def test_two_windows_charge_no_unseen_total(
    world: World,
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
    atomic: bool,
) -> None:
    """A customer with two windows pays only a total that the window has shown."""
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", atomic)
    bo = customer()
    windows = [browser_of(bo), browser_of(bo)]
    windows[0].adds(product("12.50"))
    pages = []
    for window, shipping in zip(windows, ("free-shipping", "courier"), strict=True):
        window.says_where(shipping=shipping)
        window.chooses()
        pages.append((window, window.previews()))
    placed: list[Any] = together(*[lambda page=page: page[0].places(page[1]) for page in pages])
    assert sorted(is_at_start(answer) for answer in placed) == [False, True], placed
    slower = next(number for number, answer in enumerate(placed) if not is_at_start(answer))
    order = Order.objects.get()
    page = windows[slower].get(placed[slower]["Location"]).content.decode()
    assert (
        f"placed this order in another window already. Its total is USD {order.total_incl_tax}"
        in page
    )
    assert "Pay now" in page
    assert (
        fields_of(pages[1 - slower][1], "place_order_form")["tillgate_total"]
        == f"USD {order.total_incl_tax}"
    )


@pytest.mark.parametrize("atomic", [False, True], ids=["", "atomic"])
def test_cancellation_race_loses_no_payment(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    atomic: bool,
) -> None:
    """A simultaneous notification, return and cancellation leave a paid order or a review."""
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", atomic)
    ann, order = staff("ann", *MAY), Order.objects.get()
    notification, back = (
        f"/payments/{name}/{key}/"
        for name, key in (
            ("notification", payment.notification_key),
            ("return", payment.return_key),
        )
    )
    world.shopper_pays(payment)
    done: list[Any] = together(
        lambda: Client().post(notification),
        lambda: Client().get(back),
        lambda: ann.post(
            url_of(order),
            {"order_action": "change_order_status", "new_status": "Cancelled"},
        ),
    )
    # 200: the money was first, and the page asks what happens to it
    assert (done[0].status_code, done[2].status_code) in {(200, 302), (200, 200)}, done
    world.a_day_passes()
    order.refresh_from_db()
    moved = list(order.status_changes.values_list("old_status", "new_status"))
    if world.reviews():
        assert (world.reviews(), order.status, order.sources.count()) == (
            ["paid-not-payable"],
            "Cancelled",
            0,
        )
    else:
        assert order.sources.get().amount_debited == Decimal("12.50")
        assert ("Pending payment", "Paid") in moved
        assert ("Pending payment", "Cancelled") not in moved


def test_two_failed_payments_send_one_reminder(
    world: World,
    payment: Payment,
) -> None:
    payments = [payment, world.start(payment.order.key, "paypal")]
    for one in payments:
        world.sandbox.control.decline(one.reference)
    together(
        *[lambda one=one: Client().get(f"/payments/return/{one.return_key}/") for one in payments],
    )
    world.time.advance(minutes=30)
    world.run_worker()
    assert len(mail.outbox) == 1


def test_second_press_opens_same_payment_page(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """This holds in every browser session."""
    shopper.adds(product())
    shopper.says_where()
    shopper.chooses()
    preview = shopper.previews()
    first, again = (shopper.places(preview) for _ in range(2))
    assert is_at_start(again)
    assert world.onward(shopper.get(again["Location"])) == world.onward(
        shopper.get(first["Location"]),
    )
    assert Payment.objects.count() == 1
    for forged in ("", "x", fields_of(preview, "place_order_form")["tillgate_preview"][:-1]):
        assert Shopper().places(preview, tillgate_preview=forged)["Location"] == "/basket/"


# Staff during a payment ---------------------------------------------------------------------------


@contextmanager
def before_the_status_is_changed(
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[], None],
) -> Iterator[None]:
    """Let something happen after a page of the dashboard has read the order and before it changes
    its status.
    """
    real = oscars_dashboard.EventHandlerMixin.get_handler

    def late(view: Any, *arguments: Any, **options: Any) -> Any:
        happens()
        return real(view, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(oscars_dashboard.EventHandlerMixin, "get_handler", late)
        yield


@pytest.mark.parametrize("page", ["the order's page", "the list"])
def test_order_paid_during_cancellation_stays_paid(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
) -> None:
    """The clerk that cancels it reads so."""
    ann, order = staff("ann", *MAY), Order.objects.get()

    def pays() -> None:
        world.shopper_pays(payment)
        world.notification(payment)

    with before_the_status_is_changed(monkeypatch, pays):
        if page == "the list":
            fields = {
                "action": "change_order_statuses",
                "selected_order": [order.pk],
                "new_status": "Cancelled",
            }
            answer = ann.post("/dashboard/orders/", fields, follow=True)
        else:
            answer = ann.post(
                url_of(order),
                {"order_action": "change_order_status", "new_status": "Cancelled"},
                follow=True,
            )
    assert "is “Paid” by now" in messages_of(answer)[0]
    assert Order.objects.get().status == "Paid"
    assert ExpectedOrder.objects.get().closed_at is None
    assert world.reviews() == []


def test_order_deleted_during_cancellation_shows_message(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ann, order = staff("ann", *MAY), Order.objects.get()
    with before_the_status_is_changed(monkeypatch, lambda: Order.objects.all().delete()):
        fields = {
            "action": "change_order_statuses",
            "selected_order": [order.pk],
            "new_status": "Cancelled",
        }
        assert "by now" in messages_of(ann.post("/dashboard/orders/", fields, follow=True))[0]
    assert not Order.objects.exists(), "Oscar would write it again"


def test_refunded_late_money_frees_cancelled_stock(
    world: World,
    payment: Payment,
) -> None:
    """Stock of a cancelled order is free once money that came too late was refunded."""
    handler().handle_order_status_change(Order.objects.get(), "Cancelled")
    world.shopper_pays(payment)
    world.notification(payment)
    world.a_day_passes()
    assert StockRecord.objects.get().num_allocated == 1, (
        "somebody may still decide to send the goods"
    )
    queueing.refund(payment.pk, "12.50")
    world.a_day_passes()
    assert (StockRecord.objects.get().num_allocated, world.reviews()) == (0, [])


def test_partly_released_stock_is_released_fully(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """Stock that staff released or shipped in part is never released twice."""
    tea, pot, kept = product("4.00", "Tea"), product("20.00", "Pot"), product("1.00", "Kept")
    shopper.adds(tea, 3)
    shopper.adds(pot, 3)
    shopper.adds(kept)
    shopper.says_where()
    shopper.chooses()
    shopper.places()
    order = Order.objects.get()
    Shopper().buys(tea)
    line = {line.title: line for line in order.lines.all()}
    handler().cancel_stock_allocations(order, [line["Tea"]], [1])
    handler().consume_stock_allocations(order, [line["Pot"]], [1])
    handler().cancel_stock_allocations(order, [line["Kept"]], [1])
    world.a_day_passes()
    ExpectedOrder.objects.exclude(key=order.number).delete()
    stock = StockRecord.objects.order_by("product__title").values_list(
        "product__title",
        "num_allocated",
        "num_in_stock",
    )
    assert list(stock) == [("Kept", 0, 5), ("Pot", 0, 4), ("Tea", 0, 5)]


def test_order_with_deleted_products_is_cancelled(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    gone, kept = product("4.00"), product("5.00")
    shopper.adds(gone)
    shopper.buys(kept)
    Shopper().buys(gone)
    gone.delete()
    world.a_day_passes()
    assert world.reviews() == []
    assert set(Order.objects.values_list("status", flat=True)) == {"Cancelled"}
    assert kept.stockrecords.get().num_allocated == 0


def test_currency_edited_during_payment_needs_review(
    world: World,
    payment: Payment,
) -> None:
    Order.objects.update(currency="EUR")
    world.shopper_pays(payment)
    world.notification(payment)
    assert (world.reviews(), Order.objects.get().status) == (
        ["paid-not-payable"],
        "Pending payment",
    )
    page = world.client.get(world.way_to_pay(payment.order.key)).content.decode()
    assert "None of our payment methods takes EUR 12.50." in page
    assert "USD 12.50 has arrived for this order already" in page
    assert 'name="method"' not in page


def test_custom_status_does_not_mean_paid(
    world: World,
    payment: Payment,
) -> None:
    """An order in one of the shop's own statuses is not shown as paid."""
    home = declined(world, payment)
    Order.objects.update(status="On hold")
    page = Client().get(home).content.decode()
    assert "On hold" in page
    assert "has arrived" not in page


def test_no_thanks_for_closed_order(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    """A shopper that returns to a cancelled order is not thanked."""
    world.a_day_passes()
    assert Order.objects.get().status == "Cancelled"
    home = shopper.get("/checkout/thank-you/")["Location"]
    assert "not paid in time and was cancelled" in shopper.get(home).content.decode()


def test_reopened_order_is_not_offered_payment(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    """This is about an order that was cancelled and opened again by hand."""
    home = declined(world, payment)
    handler().handle_order_status_change(Order.objects.get(), "Cancelled")
    Order.objects.update(status="Pending payment")
    page = shopper.get(home)
    assert "Pay now" not in page.content.decode()
    assert "has arrived" not in page.content.decode()
    assert "Refresh" not in page
    world.a_day_passes()
    assert (Order.objects.get().status, StockRecord.objects.get().num_allocated) == ("Cancelled", 0)


def test_refunded_underpaid_order_is_payable_again(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    world.shop.edit_total(payment.order.key, Decimal("20.00"))
    world.shopper_pays(payment)
    home = home_on(world.come_back(payment))
    assert "your payment has arrived" in shopper.get(home).content.decode()
    queueing.refund(payment.pk, "2.50")
    assert "your payment has arrived" in shopper.get(home).content.decode()
    queueing.refund(payment.pk, "10.00")
    page = shopper.get(home)
    assert "Pay now" in page.content.decode()
    assert "has arrived" not in page.content.decode()
    assert "Refresh" not in page
    again = world.start(payment.order.key, "paypal")
    world.shopper_pays(again)
    world.notification(again)
    assert (Order.objects.get().status, Order.objects.get().sources.get().amount_debited) == (
        "Paid",
        Decimal("20.00"),
    )


def test_order_refunded_before_notice_is_payable(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    """If the money was refunded before the event was delivered, the order can be paid again."""
    world.shopper_pays(payment)
    with world.failing_handler("tillgate_payment_paid", times=1):
        home = world.come_back(payment)["Location"]
        queueing.refund(payment.pk, payment.amount)
    world.time.advance(minutes=5)
    world.run_worker()
    assert "Pay now" in shopper.get(home).content.decode()
    world.a_day_passes()
    assert Order.objects.get().status == "Cancelled"


def test_refunded_order_reopened_by_hand_unpayable(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    world.shopper_pays(payment)
    home = world.come_back(payment)["Location"]
    queueing.refund(payment.pk, payment.amount)
    Order.objects.update(status="Pending payment")
    page = shopper.get(home)
    assert "Pay now" not in page.content.decode()
    assert "has arrived" not in page.content.decode()
    assert "Refresh" not in page


# Deletions ----------------------------------------------------------------------------------------


def test_payer_of_deleted_order_reads_outcome(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    """The shopper reads that the money will be refunded or reviewed."""
    way = world.way_to_pay(payment.order.key)
    Order.objects.all().delete()
    world.shopper_pays(payment)
    page = shopper.get(home_on(world.come_back(payment)))
    assert page.status_code == 410
    for said in (
        "This order does not exist any more.",
        "If you have paid it, the shop knows about it",
    ):
        assert said in page.content.decode()
    assert world.reviews() == ["paid-not-payable"]
    assert shopper.get(way).status_code == 404


def test_deleted_account_still_pays_its_order(
    world: World,
    product: Make,
) -> None:
    """The customer deletes the account while paying."""
    bo = customer()
    shopper = browser_of(bo)
    shopper.get(shopper.buys(product())["Location"])
    payment = Payment.objects.get()
    bo.delete()
    world.shopper_pays(payment)
    home = world.come_back(payment)["Location"]
    assert "your payment has arrived" in Client().get(home).content.decode()
    world.a_day_passes()
    assert (Order.objects.get().status, world.reviews(), mail.outbox) == ("Paid", [], [])


def test_reused_order_number_places_no_order(
    world: World,
    shopper: Shopper,
    product: Make,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new order with the number of an earlier one would be taken for paid."""
    world.shopper_pays(payment)
    world.notification(payment)
    number = payment.order.key
    Order.objects.all().delete()
    monkeypatch.setattr(OrderNumberGenerator, "order_number", lambda *_: number)
    other, tea = Shopper(), product("99.00")
    said = other.buys(tea).content.decode()
    assert f"The number {number} was another order&#x27;s before" in said
    assert (Order.objects.count(), tea.stockrecords.get().num_allocated) == (0, None)
    monkeypatch.undo()
    assert is_at_start(other.places()), "the basket is as it was"


# Strangers ----------------------------------------------------------------------------------------


def test_orders_are_private_from_other_customers(
    world: World,
    product: Make,
) -> None:
    """Another customer sees no more than a stranger, and no address can be guessed."""
    shopper, eve = browser_of(customer("bo")), browser_of(customer("eve"))
    shopper.get(shopper.buys(product("12.50", "Secret tea"))["Location"])
    order, home = Order.objects.get(), declined(world, Payment.objects.get())
    page = eve.get(home).content.decode()
    assert "has not been paid yet" in page
    for private in ("/payments/pay/", "Mill Lane", "bo@shopper.example", "Secret tea"):
        assert private not in page
    assert eve.get(f"/accounts/orders/{order.number}/").status_code == 404
    for guess in (
        order.number,
        f"{order.number}:",
        home.split("/")[-2][:-1],
        home.split("/")[-2].swapcase(),
    ):
        assert eve.get(f"/payments/order/{guess}/").status_code == 404, guess


# To the cent --------------------------------------------------------------------------------------


@pytest.mark.parametrize("percent", [10, 33])
@pytest.mark.parametrize(("price", "quantity"), [("19.99", 3), ("0.07", 7), ("3.33", 1)])
def test_line_totals_agree_to_the_cent(
    world: World,
    shopper: Shopper,
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
    price: str,
    quantity: int,
    percent: int,
) -> None:
    """The shown, ordered, charged and refunded amounts of a line are the same."""
    monkeypatch.setattr(
        "oscar.apps.checkout.applicator.SurchargeApplicator.get_surcharges",
        lambda *_, **__: (FlatCharge(excl_tax=Decimal("0.93"), incl_tax=Decimal("1.01")),),
    )
    voucher = make_voucher("SOME", usage="Multi-use")
    get_model("offer", "Benefit").objects.filter(offers__vouchers=voucher).update(value=percent)
    shopper.adds(product(price, "Oolong", product_class=TAXED, stock=9), quantity)
    shopper.adds(product("7.35", "Cup"), 2)
    shopper.uses_voucher("SOME")
    shopper.says_where(shipping="courier")
    shopper.chooses()
    preview = shopper.previews()
    shopper.get(shopper.places(preview)["Location"])
    order, payment = Order.objects.get(), Payment.objects.get()
    lines = list(order.lines.all())
    shown = fields_of(preview, "place_order_form")["tillgate_total"]
    charged = Decimal(str(sent(world)["amount"]))
    assert shown == f"USD {charged}"
    assert charged == order.total_incl_tax == payment.amount
    assert charged == sum(
        line.line_price_incl_tax for line in lines
    ) + order.shipping_incl_tax + Decimal("1.01")
    for line in lines:
        assert f'"goods_name":"{line.title}","quantity":"{line.quantity}"' in goods(world)
    world.shopper_pays(payment)
    world.notification(payment)
    ann = staff("ann", *MAY)
    for line in lines:
        for _ in range(line.quantity - 1):
            presses_for_lines(ann, order, {line: 1}, tillgate_again="1")
    for line in lines:
        refunded_amount = sum(
            Refund.objects.filter(data__lines__has_key=str(line.pk)).values_list(
                "amount",
                flat=True,
            ),
            Decimal(0),
        )
        last = line.line_price_incl_tax - refunded_amount
        said = messages_of(presses_for_lines(ann, order, {line: 1}, tillgate_again="1"))
        assert said == [f"USD {last} was refunded."], line.title
    rest = order.shipping_incl_tax + Decimal("1.01")
    assert world.shop.refunded(order.number) == world.refunded_amount(payment) == charged - rest
    assert fields_of(ann.get(url_of(order)), "tillgate_refund_form")["amount"] == str(rest)


def test_fractional_cents_are_charged_as_shown(
    world: World,
    shopper: Shopper,
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class ByWeight(FixedPrice):  # type: ignore[misc]
        code, name = "weight", "By weight"
        charge_excl_tax = charge_incl_tax = Decimal("4.665")

    monkeypatch.setattr("oscar.apps.shipping.repository.Repository.methods", (ByWeight(),))
    shopper.adds(product("12.50"))
    shopper.says_where(shipping="weight")
    shopper.chooses()
    preview = shopper.previews()
    shown = fields_of(preview, "place_order_form")["tillgate_total"]
    shopper.get(shopper.places(preview)["Location"])
    assert shown == f"USD {Payment.objects.get().amount}"
    assert f"${Payment.objects.get().amount}" in preview.content.decode()


@pytest.mark.parametrize(
    "title",
    ["\N{TEACUP WITHOUT HANDLE}", "<>&", "a\nb", "x" * 255, "\u202eaet", "{amount}", "%s", "'; --"],
)
def test_goods_of_any_name_can_be_paid(
    world: World,
    shopper: Shopper,
    product: Make,
    title: str,
) -> None:
    placed = shopper.buys(product("1.00", title))
    assert world.onward(shopper.get(placed["Location"])).startswith(world.sandbox.base_url)


@pytest.mark.parametrize(
    ("quantity", "sent_as"),
    [
        (0, ("Green tea x 0", "1")),
        (2**31 - 1, ("Green tea x 2147483647", "1")),
        (7, ("Green tea", "7")),
    ],
)
def test_any_quantity_can_be_paid(
    world: World,
    payment: Payment,
    quantity: int,
    sent_as: tuple[str, str],
) -> None:
    # Oscar's own Django admin takes them
    get_model("order", "Line").objects.update(quantity=quantity)
    number = payment.order.key
    assert "Choose how to pay" in world.client.get(world.way_to_pay(number)).content.decode()
    world.start(number, "paypal")
    assert json.loads(goods(world)) == [dict(zip(("goods_name", "quantity"), sent_as, strict=True))]
    world.shopper_pays(payment)
    world.notification(payment)
    assert Order.objects.get().status == "Paid"


@pytest.mark.parametrize("number", ["ORD/2026 \u00fc", "x" * 128, "{amount}", "<b>1</b>"])
def test_any_order_number_can_be_paid(
    world: World,
    shopper: Shopper,
    product: Make,
    monkeypatch: pytest.MonkeyPatch,
    number: str,
) -> None:
    """The shopper also returns to the shop."""
    monkeypatch.setattr(OrderNumberGenerator, "order_number", lambda *_: number)
    shopper.get(shopper.buys(product())["Location"])
    payment = Payment.objects.get()
    world.shopper_pays(payment)
    assert shopper.get(world.come_back(payment)["Location"])["Location"] == "/checkout/thank-you/"
    assert Order.objects.get(number=number).status == "Paid"


# Money back ---------------------------------------------------------------------------------------


def test_unknown_refund_blocks_second_by_price(
    bought: Bought,
) -> None:
    """A line with an unknown refund is not refunded twice by its price."""
    ann = staff("ann", *MAY)
    bought.world.sandbox.control.fault("lost_response", occasion="refund")
    presses_for_lines(ann, bought.order, {bought.tea: 2})
    assert messages_of(presses_for_lines(ann, bought.order, {bought.tea: 1})) == [
        "USD 4.00 was refunded.",
    ]
    assert (
        "Nothing was refunded"
        in messages_of(presses_for_lines(ann, bought.order, {bought.tea: 1}))[0]
    )
    assert sorted(Refund.objects.values_list("amount", flat=True)) == [
        Decimal("4.00"),
        Decimal("8.00"),
    ]


def test_forged_refund_gives_nothing_back(bought: Bought) -> None:
    """A refund request without the CSRF token is refused."""
    ann = staff("ann", *MAY)
    fields = fields_of(ann.get(url_of(bought.order)), "tillgate_refund_form")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = ann.cookies
    assert (
        strict.post(url_of(bought.order), {**fields, "csrfmiddlewaretoken": ""}).status_code == 403
    )
    assert not Refund.objects.exists()


def test_lines_of_other_orders_not_refunded(bought: Bought, world: World) -> None:
    order, ann = bought.order, staff("ann", *MAY)
    other = Order.objects.get(number=world.order("5.00")).lines.get()
    page = ann.get(url_of(order))
    assert (
        messages_of(presses_for_lines(ann, order, {other: 1}, page))[0] == "Invalid lines requested"
    )
    assert not Refund.objects.exists()


def test_cancelled_paid_order_is_refunded_once(bought: Bought) -> None:
    """A second press or a later request refunds nothing more."""
    handler().handle_order_status_change(bought.order, "Cancelled")
    ann = staff("ann", *MAY)
    pages = [ann.get(url_of(bought.order)) for _ in range(2)]
    said = sorted(messages_of(presses(ann, bought.order, page))[0] for page in pages)
    assert said[0].startswith("Nothing was refunded") or said == ["USD 32.00 was refunded."] * 2
    assert bought.refunded_amount() == Decimal("32.00")
    with pytest.raises((PaymentError, InvalidPaymentEvent)):
        bought.ask(Decimal("0.01"))


# Other shops --------------------------------------------------------------------------------------


def test_foreign_default_currency_still_takes_dollars(
    world: World,
    shopper: Shopper,
    product: Make,
    settings: Any,
) -> None:
    """A shop in another currency takes dollars for goods with prices in dollars."""
    settings.OSCAR_DEFAULT_CURRENCY = "GBP"
    tea = product("12.50")
    tea.stockrecords.update(price_currency="USD")
    shopper.get(shopper.buys(tea)["Location"])
    payment = Payment.objects.get()
    world.shopper_pays(payment)
    world.notification(payment)
    order = Order.objects.get()
    assert (order.status, order.currency, order.sources.get().currency) == ("Paid", "USD", "USD")
    handler().handle_payment_event(order, refund_event_type(), Decimal("2.50"))
    assert world.shop.refunded(order.number) == world.refunded_amount(payment) == Decimal("2.50")


def test_restyled_fork_still_requires_a_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fork that only looks different lets no one order without a method."""

    def fork(**written: Any) -> type[Any]:
        return type(
            "PaymentMethodView",
            (oscars_checkout.PaymentMethodView,),
            {"__module__": "shop.checkout.views", **written},
        )

    details = get_class("checkout.views", "PaymentDetailsView")
    looks, actions = fork(template_name="ours.html", get_context_data=dict), fork(post=print)
    for view, takes_others in ((looks, False), (actions, True)):
        monkeypatch.setattr(
            choice,
            "get_class",
            lambda _, name, view=view: view if name == "PaymentMethodView" else details,
        )
        assert choice.has_other_ways() is takes_others


def preview_of_a_shop() -> Any:
    """Return a page that was made from the one that Oscar loads, and takes its own payment: an
    express checkout returns to such a one.
    """

    class Page(get_class("checkout.views", "PaymentDetailsView")):  # type: ignore[misc]
        preview = True

        def handle_payment(self, order_number: str, total: Any, **options: Any) -> None:
            kind, _ = get_model("payment", "SourceType").objects.get_or_create(name="Express")
            self.add_payment_source(
                get_model("payment", "Source")(
                    source_type=kind,
                    currency="USD",
                    amount_debited=total.incl_tax,
                ),
            )

        def get_initial_order_status(self, basket: Any) -> Any:
            return super().get_initial_order_status(basket) or "Paid"

    return Page


def with_page(route: str, page: Any) -> Any:
    """Return the shop's addresses and one more, before them."""
    return type("WithPage", (), {"urlpatterns": [path(route, page.as_view()), *urls.urlpatterns]})


@pytest.mark.parametrize("kept", ["alipay", "goldbars"])
def test_foreign_payment_page_charges_only_once(
    world: World,
    shopper: Shopper,
    product: Make,
    settings: Any,
    kept: str,
) -> None:
    """A page of another package that takes its own payment is not followed by ours."""
    settings.ROOT_URLCONF = with_page("express/", preview_of_a_shop())
    shopper.adds(product("12.50"))
    shopper.says_where()
    shopper.chooses()  # and turns to the express checkout then, which is on the basket's page
    session = shopper.client.session
    session["checkout_data"]["payment"]["method"] = f"tillgate:{kept}"
    session.save()
    preview = shopper.get("/express/").content.decode()
    assert ("Alipay" in preview, "tillgate" in preview) == (False, False)
    assert (
        shopper.post("/express/", {"action": "place_order"})["Location"] == "/checkout/thank-you/"
    )
    assert not ExpectedOrder.objects.exists()
    world.a_day_passes()
    order = Order.objects.get()
    assert (order.status, order.sources.get().source_type.name) == ("Paid", "Express")


def test_foreign_payment_page_asks_no_method(
    world: World,
    shopper: Shopper,
    product: Make,
    settings: Any,
) -> None:
    settings.ROOT_URLCONF = with_page("express/", preview_of_a_shop())
    shopper.adds(product("12.50"))
    shopper.says_where()
    assert (
        shopper.post("/express/", {"action": "place_order"})["Location"] == "/checkout/thank-you/"
    )


def test_shops_own_page_pays_with_method(
    world: World,
    shopper: Shopper,
    product: Make,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A shop's page in place of Oscar's own is paid here with a method."""
    page = preview_of_a_shop()
    monkeypatch.setattr(apps.get_app_config("checkout"), "payment_details_view", page)
    settings.ROOT_URLCONF = with_page("checkout/preview/", page)
    assert is_at_start(shopper.buys(product("12.50")))


def test_lost_orders_address_opens_no_other(
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
) -> None:
    """An old address does not open a later order that got the same number."""
    shopper.get(shopper.buys(product("12.50"))["Location"])
    order = orders.find(Payment.objects.get().order.key)
    addresses = [orders.status_url(order.number), str(orders.change_url(order))]
    assert [Client().get(address).status_code for address in addresses] == [200, 200]
    order.date_placed += timedelta(seconds=1)  # another order, with the number that came again
    order.save()
    assert [Client().get(address).status_code for address in addresses] == [404, 404]
    assert Client().post(addresses[1], {"then": "cancel"}).status_code == 404
