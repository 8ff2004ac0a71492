"""The shop's own ways through its statuses: by its pipeline, by the staff's hand, and by code that saves what it has read long ago."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from oscar.apps.payment.exceptions import PaymentError
from oscar.core.loading import get_class, get_model

from tests.goods import make_voucher
from tests.shopper import Shopper
from tests.test_dashboard import MAY, messages_of, staff, text_of, url_of
from tillgate.django import operations
from tillgate.django.models import Attention, Payment
from tillgate.django.models import Order as ExpectedOrder
from tillgate.testing.world import World

Order = get_model("order", "Order")
StockRecord = get_model("partner", "StockRecord")
Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shop that holds orders back, and takes a step back where it was too quick."""
    statuses = {
        "Pending payment": ("Paid", "Cancelled", "On hold"),
        "On hold": ("Pending payment", "Cancelled"),
        "Paid": ("Shipped", "Cancelled", "Pending payment"),
        "Shipped": (),
        "Cancelled": ("Pending payment",),
    }
    monkeypatch.setattr(Order, "pipeline", statuses)


def moves(status: str) -> None:
    get_class("order.processing", "EventHandler")().handle_order_status_change(Order.objects.get(), status)


def allocated() -> list[int]:
    return list(StockRecord.objects.order_by("pk").values_list("num_allocated", flat=True))


def buys_with_voucher(shopper: Shopper, thing: Any, quantity: int = 1) -> Any:
    voucher = make_voucher("TEN")
    shopper.adds(thing, quantity)
    shopper.uses_voucher("TEN")
    shopper.says_where()
    shopper.chooses()
    shopper.get(shopper.places()["Location"])
    return voucher


def is_available(voucher: Any) -> bool:
    voucher.refresh_from_db()
    return bool(voucher.is_available_to_user(AnonymousUser())[0])


@pytest.fixture
def payment(world: World, shopper: Shopper, product: Make) -> Payment:
    shopper.get(shopper.buys(product("12.50"))["Location"])
    return Payment.objects.select_related("order").get()


# Held back ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [0, 2])
def test_an_order_that_was_held_back_and_cancelled_then_releases_stock_and_voucher(
    world: World, shopper: Shopper, product: Make, days: int
) -> None:
    voucher = buys_with_voucher(shopper, product("10.00"), 2)
    moves("On hold")
    for _ in range(days):
        world.a_day_passes()
    assert (allocated(), is_available(voucher)) == ([2], False)
    moves("Cancelled")
    assert ExpectedOrder.objects.get().closed_at is not None
    world.a_day_passes()
    assert (allocated(), is_available(voucher), Order.objects.get().status) == ([0], True, "Cancelled")


@pytest.mark.parametrize("days", [0, 2])
def test_an_order_that_was_held_back_cannot_be_paid_until_it_waits_again_and_then_can(
    world: World, shopper: Shopper, payment: Payment, days: int
) -> None:
    home, pay = shopper.get("/checkout/thank-you/")["Location"], world.shop.pay_path(payment.order.key)
    moves("On hold")
    assert "the order has the status “On hold”" in shopper.post(pay, {"vendor": "paypal"}).content.decode()
    for _ in range(days):
        world.a_day_passes()
    moves("Pending payment")
    assert "Pay now" in shopper.get(home).content.decode()
    again = world.start(payment.order.key, "paypal")
    world.shopper_pays(again)
    world.notice(again)
    assert Order.objects.get().status == "Paid"


@pytest.mark.parametrize(("meanwhile", "begun"), [("On hold", True), ("On hold", False), ("Paid", True)])
def test_an_order_that_was_held_back_or_marked_paid_is_given_up_in_time_once_it_waits_again(
    world: World, shopper: Shopper, product: Make, meanwhile: str, begun: bool
) -> None:
    placed = shopper.buys(product("12.50"))
    if begun:
        shopper.get(placed["Location"])
    moves(meanwhile)
    world.a_day_passes()
    moves("Pending payment")
    world.sweep()
    assert Order.objects.get().status == "Pending payment"
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


def test_an_order_that_the_staff_marked_paid_and_cancels_a_day_later_releases_its_stock(world: World, payment: Payment) -> None:
    moves("Paid")
    world.a_day_passes()
    assert allocated() == [1]
    moves("Cancelled")
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


def test_an_order_that_was_given_up_and_opened_again_by_hand_says_that_it_cannot_be_paid(
    world: World, shopper: Shopper, payment: Payment
) -> None:
    world.a_day_passes()
    home = shopper.get("/checkout/thank-you/")["Location"]
    moves("Pending payment")
    page = shopper.get(home).content.decode()
    assert ("This order cannot be paid any more." in page, "Pay now" in page) == (True, False)
    assert "the order is closed" in shopper.post(world.shop.pay_path(payment.order.key), {"vendor": "paypal"}).content.decode()


def test_following_a_status_that_fails_does_not_reach_the_staff(world: World, payment: Payment, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(operations, "close", fail)
    moves("Cancelled")
    assert Order.objects.get().status == "Cancelled"


# Opened again for money that came late --------------------------------------------------------------------------------------------------


def is_told_again() -> None:
    moves("Pending payment")
    done = operations.perform(Attention.objects.get(resolved_at=None).pk, "tell-again", person="ann")
    assert done.resolved, done


def test_an_order_that_was_given_up_and_is_paid_after_all_takes_its_stock_and_its_voucher_again(
    world: World, shopper: Shopper, product: Make
) -> None:
    tea = product("10.00", stock=2)
    voucher = buys_with_voucher(shopper, tea, 2)
    before = (allocated(), vars(voucher.offers.get()), Order.objects.get().discounts.get().frequency)
    payment = Payment.objects.get()
    world.a_day_passes()
    assert (allocated(), is_available(voucher)) == ([0], True)
    world.pays_late(payment)
    world.notice(payment)
    is_told_again()
    order = Order.objects.get()
    assert (order.status, is_available(voucher), voucher.num_orders, voucher.total_discount) == ("Paid", False, 1, 2)
    offer = voucher.offers.get()
    assert (allocated(), order.discounts.get().frequency) == (before[0], before[2])
    counted = (offer.num_applications, offer.num_orders, offer.total_discount)
    assert counted == tuple(before[1][name] for name in ("num_applications", "num_orders", "total_discount"))
    assert not order.notes.exists()
    get_class("order.processing", "EventHandler")().consume_stock_allocations(order)
    assert (StockRecord.objects.get().num_in_stock, allocated()) == (0, [0])
    Shopper().post(f"/basket/add/{tea.pk}/", {"quantity": 1})
    assert get_model("basket", "Line").objects.filter(basket__status="Open").count() == 0, "it is sold"


def test_an_order_that_is_paid_after_all_says_what_was_sold_or_deleted_meanwhile(world: World, shopper: Shopper, product: Make) -> None:
    tea, pot, cup = product("10.00", "Tea", stock=2), product("20.00", "Pot"), product("1.00", "Cup", stock=1)
    shopper.adds(tea, 2)
    shopper.adds(pot)
    shopper.get(shopper.buys(cup)["Location"])
    payment = Payment.objects.get()
    world.a_day_passes()
    Shopper().buys(tea)
    other = Order.objects.latest("pk")
    pot.delete()
    world.pays_late(payment)
    world.notice(payment)
    ExpectedOrder.objects.filter(key=other.number).delete()
    other.delete()
    is_told_again()
    order = Order.objects.get()
    note = order.notes.get().message
    assert note == "This order was paid after its stock had been released, and there is not enough left of: Pot, Tea."
    assert sorted(order.lines.values_list("title", "num_allocated", "allocation_cancelled")) == [
        ("Cup", 1, False),
        ("Pot", 0, True),
        ("Tea", 2, False),
    ]
    assert (tea.stockrecords.get().net_stock_level, cup.stockrecords.get().net_stock_level) == (-1, 0)


# What was read long ago -----------------------------------------------------------------------------------------------------------------


def fields_of_admin(page: Any) -> dict[str, str]:
    """Return what a browser would post from the form of Django's admin as it is."""
    fields: dict[str, str] = {}
    formsets = [inline.formset for inline in page.context["inline_admin_formsets"]]
    forms = [page.context["adminform"].form, *(form for one in formsets for form in (one.management_form, *one.forms))]
    for form in forms:
        for field in form:
            value = field.value()
            if hasattr(field.field, "fields"):
                parts = field.field.widget.decompress(value)
                fields |= {f"{field.html_name}_{number}": "" if part is None else str(part) for number, part in enumerate(parts)}
            elif value is not False:
                fields[field.html_name] = "" if value is None else "on" if value is True else str(value)
    return fields


def test_an_order_that_is_paid_while_its_page_in_the_admin_is_open_stays_paid_when_that_is_saved(world: World, payment: Payment) -> None:
    browser, url = Client(), f"/admin/order/order/{Order.objects.get().pk}/change/"
    boss = User.objects.create_superuser("boss", "boss@shop.example", "x")
    browser.force_login(boss, backend="django.contrib.auth.backends.ModelBackend")
    fields = fields_of_admin(browser.get(url))
    world.shopper_pays(payment)
    world.notice(payment)
    assert browser.post(url, {**fields, "guest_email": "corrected@shopper.example"}).status_code == 302
    order = Order.objects.get()
    assert (order.status, order.guest_email) == ("Paid", "corrected@shopper.example")


def test_a_row_that_is_saved_as_it_was_read_may_wait_again_once_the_money_was_given_back(world: World, payment: Payment) -> None:
    read = Order.objects.get()
    world.shopper_pays(payment)
    world.notice(payment)
    operations.refund(payment.pk, "2.50")
    read.save()
    assert (read.status, Order.objects.get().status) == ("Paid", "Paid")
    operations.refund(payment.pk, "10.00")
    read.status = "Pending payment"
    read.save()
    assert Order.objects.get().status == "Pending payment"


def test_saving_an_order_asks_the_database_once_more_only_while_the_order_waits(world: World, payment: Payment) -> None:
    def statements(**options: Any) -> int:
        with CaptureQueriesContext(connection) as asked:
            order.save(**options)
        return len(asked)

    order = Order.objects.get()
    few = statements(update_fields=["guest_email"])
    assert statements() == few + 1
    order.status = "Shipped"
    assert statements() == few


@pytest.mark.parametrize("page", ["the order's page", "the list"])
def test_an_order_whose_money_is_here_is_not_cancelled_as_unpaid(world: World, payment: Payment, page: str) -> None:
    world.shopper_pays(payment)
    world.notice(payment)
    Order.objects.update(status="Pending payment")  # by a statement of the shop's own
    ann, order = staff("ann", *MAY), Order.objects.get()
    if page == "the list":
        fields = {"action": "change_order_statuses", "selected_order": [order.pk], "new_status": "Cancelled"}
        answer = ann.post("/dashboard/orders/", fields, follow=True)
    else:
        answer = ann.post(url_of(order), {"order_action": "change_order_status", "new_status": "Cancelled"}, follow=True)
    assert f"payment {payment.reference} has paid order {order.number}: give the money back first" in messages_of(answer)[0]
    assert "Pending payment" in text_of(answer)
    assert ExpectedOrder.objects.get().closed_at is None
    operations.refund(payment.pk, payment.amount)
    moves("Cancelled")
    assert Order.objects.get().status == "Cancelled"


def test_an_order_whose_money_is_here_is_not_made_to_wait_again(world: World, payment: Payment) -> None:
    world.shopper_pays(payment)
    world.notice(payment)
    with pytest.raises(PaymentError, match="give the money back first"):
        moves("Pending payment")
    order = Order.objects.get()
    assert (order.status, order.status_changes.count()) == ("Paid", 1)
