"""The shop's own ways through its statuses: by its pipeline, by the staff's hand, and by code that
saves what it has read long ago.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core import mail
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.module_loading import import_string
from oscar.apps.payment.exceptions import PaymentError
from oscar.core.loading import get_class, get_model

from tests.goods import make_offer, make_voucher
from tests.shopper import Shopper
from tests.test_dashboard import MAY, messages_of, staff, text_of, url_of
from tillgate.django import actions
from tillgate.django.models import Order as ExpectedOrder
from tillgate.django.models import Payment, Review
from tillgate.django.orders import registering
from tillgate.django.refunds import queueing
from tillgate.testing.world import World, together
from tillgate_oscar import payments

Order = get_model("order", "Order")
StockRecord = get_model("partner", "StockRecord")
EventHandler = import_string("oscar.apps.order.processing.EventHandler")
Make = Callable[..., Any]


class OrderOfAPage(Order):  # type: ignore[misc, valid-type]  # found when the test runs
    """A proxy, such as an admin page of the shop's own may have."""

    class Meta:
        app_label = "test_shop"
        proxy = True


@pytest.fixture(autouse=True)
def pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shop that holds orders back, and takes a step back where it was too quick."""
    statuses = {
        "Pending payment": ("Paid", "Cancelled", "On hold"),
        "On hold": ("Pending payment", "Paid", "Cancelled"),
        "Paid": ("Shipped", "Cancelled", "Pending payment"),
        "Shipped": (),
        "Cancelled": ("Pending payment", "Paid"),
    }
    monkeypatch.setattr(Order, "pipeline", statuses)


def moves(status: str) -> None:
    get_class("order.processing", "EventHandler")().handle_order_status_change(
        Order.objects.get(),
        status,
    )


def moves_without_handler(status: str) -> None:
    Order.objects.get().set_status(status)


def is_paid(world: World, payment: Payment) -> None:
    world.shopper_pays(payment)
    world.notification(payment)
    assert Order.objects.get().status == "Paid"


def also_when_cancelled(
    monkeypatch: pytest.MonkeyPatch,
    action: Callable[[Any, Any], object],
) -> None:
    """Let the shop's own handler do something more when an order is cancelled."""
    oscars = EventHandler.handle_order_status_change

    def change(handler: Any, order: Any, status: str) -> None:
        oscars(handler, order, status)
        if status == "Cancelled":
            action(handler, order)

    monkeypatch.setattr(EventHandler, "handle_order_status_change", change)


def unseen(status: str, payment: Payment) -> str:
    """Return the note on an order whose status was changed by who had read it before it was
    paid.
    """
    said = (
        f"This order was changed to “{status}” as unpaid by staff that had not seen that "
        f"payment {payment.reference} has paid it:"
    )
    return f"{said} it stays paid."


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


# Held back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [0, 2])
def test_an_order_that_was_held_back_and_cancelled_then_releases_stock_and_voucher(
    world: World,
    shopper: Shopper,
    product: Make,
    days: int,
) -> None:
    voucher = buys_with_voucher(shopper, product("10.00"), 2)
    moves("On hold")
    for _ in range(days):
        world.a_day_passes()
    assert (allocated(), is_available(voucher)) == ([2], False)
    moves("Cancelled")
    assert ExpectedOrder.objects.get().closed_at is not None
    world.a_day_passes()
    assert (allocated(), is_available(voucher), Order.objects.get().status) == (
        [0],
        True,
        "Cancelled",
    )


@pytest.mark.parametrize("then", ["Cancelled", "Pending payment"])
def test_stock_that_an_order_took_again_is_released_also_once_it_had_moved_on(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    then: str,
) -> None:
    """Given up, marked paid by hand since the money came otherwise, moved on, and taken back after
    all.
    """
    monkeypatch.setattr(Order, "pipeline", {**Order.pipeline, "Shipped": (then,)})
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])
    moves("Paid")
    assert allocated() == [1]
    moves("Shipped")
    moves(then)
    for _ in range(2):
        world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


def test_an_order_that_was_marked_paid_by_mistake_and_is_held_back_now_is_not_confirmed_to_its_shopper(
    shopper: Shopper,
    payment: Payment,
) -> None:
    home = shopper.get("/checkout/thank-you/")["Location"]
    for status in ("Paid", "Pending payment", "On hold"):
        moves(status)
    assert shopper.get("/checkout/thank-you/")["Location"] == home
    assert "cannot be paid at the moment" in shopper.get(home).content.decode()


@pytest.mark.parametrize("days", [0, 2])
def test_an_order_that_was_held_back_cannot_be_paid_until_it_waits_again_and_then_can(
    world: World,
    shopper: Shopper,
    payment: Payment,
    days: int,
) -> None:
    home, pay = shopper.get("/checkout/thank-you/")["Location"], world.way_to_pay(payment.order.key)
    moves("On hold")
    assert (
        "the order has the status “On hold”"
        in shopper.post(pay, {"method": "paypal"}).content.decode()
    )
    for _ in range(days):
        world.a_day_passes()
    moves("Pending payment")
    assert "Pay now" in shopper.get(home).content.decode()
    again = world.start(payment.order.key, "paypal")
    world.shopper_pays(again)
    world.notification(again)
    assert Order.objects.get().status == "Paid"


@pytest.mark.parametrize(
    ("meanwhile", "begun"),
    [("On hold", True), ("On hold", False), ("Paid", True)],
)
def test_an_order_that_was_held_back_or_marked_paid_is_given_up_in_time_once_it_waits_again(
    world: World,
    shopper: Shopper,
    product: Make,
    meanwhile: str,
    begun: bool,
) -> None:
    placed = shopper.buys(product("12.50"))
    if begun:
        shopper.get(placed["Location"])
    moves(meanwhile)
    world.a_day_passes()
    moves("Pending payment")
    world.run_worker()
    assert Order.objects.get().status == "Pending payment"
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


def test_an_order_that_the_staff_marked_paid_and_cancels_a_day_later_releases_its_stock(
    world: World,
    payment: Payment,
) -> None:
    moves("Paid")
    world.a_day_passes()
    assert allocated() == [1]
    moves("Cancelled")
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


def test_an_order_that_was_given_up_and_opened_again_by_hand_says_that_it_cannot_be_paid(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    world.a_day_passes()
    home = shopper.get("/checkout/thank-you/")["Location"]
    moves("Pending payment")
    page = shopper.get(home).content.decode()
    assert ("This order cannot be paid any more." in page, "Pay now" in page) == (True, False)
    assert (
        "the order is closed"
        in shopper.post(world.way_to_pay(payment.order.key), {"method": "paypal"}).content.decode()
    )


@pytest.mark.parametrize("by_handler", [True, False])
def test_following_a_status_that_fails_does_not_reach_whoever_changes_it(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    by_handler: bool,
) -> None:
    def fail(*_: Any) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(registering, "close_order", fail)
    (moves if by_handler else moves_without_handler)("Cancelled")
    assert Order.objects.get().status == "Cancelled"


def test_a_status_that_the_shops_own_handler_does_not_set_is_not_followed(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def waits_for_the_boss(_handler: Any, order: Any, _status: str) -> None:
        order.set_status("On hold")

    monkeypatch.setattr(EventHandler, "handle_order_status_change", waits_for_the_boss)
    moves("Cancelled")
    assert (Order.objects.get().status, ExpectedOrder.objects.get().closed_at) == ("On hold", None)


def test_the_shopper_of_an_order_that_is_held_back_is_not_told_that_it_is_confirmed(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    home = shopper.get("/checkout/thank-you/")["Location"]
    moves("On hold")
    assert shopper.get("/checkout/thank-you/")["Location"] == home
    for browser in (shopper, Shopper()):
        page = browser.get(home).content.decode()
        assert (
            "This order cannot be paid at the moment." in page,
            "Pay now" in page,
            "Thank you" in page,
        ) == (True, False, False)


@pytest.mark.parametrize("paid", ["here", "by hand", "by hand in Django's admin"])
def test_the_shopper_of_an_order_that_was_paid_and_moved_on_is_thanked(
    world: World,
    shopper: Shopper,
    payment: Payment,
    paid: str,
) -> None:
    home = shopper.get("/checkout/thank-you/")["Location"]
    if paid == "here":
        is_paid(world, payment)
    elif paid == "by hand":
        moves("Paid")
    else:
        Order.objects.update(status="Paid")
    moves("Shipped")
    assert shopper.get(home)["Location"] == "/checkout/thank-you/"
    assert shopper.get("/checkout/thank-you/").status_code == 200


# Opened again for money that came late ------------------------------------------------------------


def is_told_again() -> None:
    moves("Pending payment")
    done = actions.take_action(Review.objects.get(resolved_at=None).pk, "redeliver", staff="ann")
    assert done.resolved, done


def test_an_order_that_was_given_up_and_is_paid_after_all_takes_its_stock_and_its_voucher_again(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    tea = product("10.00", stock=2)
    voucher = buys_with_voucher(shopper, tea, 2)
    before = (
        allocated(),
        vars(voucher.offers.get()),
        Order.objects.get().discounts.get().frequency,
    )
    payment = Payment.objects.get()
    world.a_day_passes()
    assert (allocated(), is_available(voucher)) == ([0], True)
    world.pays_late(payment)
    world.notification(payment)
    is_told_again()
    order = Order.objects.get()
    assert (order.status, is_available(voucher), voucher.num_orders, voucher.total_discount) == (
        "Paid",
        False,
        1,
        2,
    )
    offer = voucher.offers.get()
    assert (allocated(), order.discounts.get().frequency) == (before[0], before[2])
    counted = (offer.num_applications, offer.num_orders, offer.total_discount)
    assert counted == tuple(
        before[1][name] for name in ("num_applications", "num_orders", "total_discount")
    )
    assert not order.notes.exists()
    get_class("order.processing", "EventHandler")().consume_stock_allocations(order)
    assert (StockRecord.objects.get().num_in_stock, allocated()) == (0, [0])
    Shopper().post(f"/basket/add/{tea.pk}/", {"quantity": 1})
    assert get_model("basket", "Line").objects.filter(basket__status="Open").count() == 0, (
        "it is sold"
    )


@pytest.mark.parametrize("kind", ["voucher", "offer"])
def test_an_order_that_is_paid_after_others_used_its_discount_up_names_what_counts_beyond_its_limit(
    world: World,
    shopper: Shopper,
    product: Make,
    kind: str,
) -> None:
    tea = product("10.00")
    discount = (
        make_voucher("TEN")
        if kind == "voucher"
        else make_offer("Spring", max_global_applications=1)
    )

    def buys(browser: Shopper) -> Any:
        browser.adds(tea)
        browser.uses_voucher("TEN")
        return browser.get(browser.buys()["Location"])

    buys(shopper)
    payment = Payment.objects.get()
    world.a_day_passes()
    buys(Shopper())
    assert list(Order.objects.values_list("total_incl_tax", flat=True)) == [9, 9]
    world.pays_late(payment)
    world.notification(payment)
    get_class("order.processing", "EventHandler")().handle_order_status_change(
        Order.objects.get(number=payment.order.key),
        "Pending payment",
    )
    actions.take_action(Review.objects.get(resolved_at=None).pk, "redeliver", staff="ann")
    discount.refresh_from_db()
    assert (Order.objects.get(number=payment.order.key).status, discount.num_orders) == ("Paid", 2)
    [note] = Order.objects.get(number=payment.order.key).notes.values_list("message", flat=True)
    assert note.endswith(
        "Used beyond the limit: TEN." if kind == "voucher" else "Used beyond the limit: Spring.",
    )


def test_an_order_that_is_paid_after_all_says_what_was_sold_or_deleted_meanwhile(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    tea, pot, cup = (
        product("10.00", "Tea", stock=2),
        product("20.00", "Pot"),
        product("1.00", "Cup", stock=1),
    )
    shopper.adds(tea, 2)
    shopper.adds(pot)
    shopper.get(shopper.buys(cup)["Location"])
    payment = Payment.objects.get()
    world.a_day_passes()
    Shopper().buys(tea)
    other = Order.objects.latest("pk")
    pot.delete()
    world.pays_late(payment)
    world.notification(payment)
    ExpectedOrder.objects.filter(key=other.number).delete()
    other.delete()
    is_told_again()
    order = Order.objects.get()
    note = order.notes.get().message
    assert (
        note
        == "This order was paid after its stock had been released, and there is not enough left "
        "of: Pot, Tea."
    )
    assert sorted(order.lines.values_list("title", "num_allocated", "allocation_cancelled")) == [
        ("Cup", 1, False),
        ("Pot", 0, True),
        ("Tea", 2, False),
    ]
    assert (tea.stockrecords.get().net_stock_level, cup.stockrecords.get().net_stock_level) == (
        -1,
        0,
    )


@pytest.mark.parametrize("move", [moves, moves_without_handler])
def test_an_order_that_was_given_up_and_is_marked_paid_by_hand_takes_its_stock_and_its_voucher_again_once(
    world: World,
    shopper: Shopper,
    product: Make,
    move: Callable[[str], None],
) -> None:
    voucher = buys_with_voucher(shopper, product("10.00"), 2)
    world.a_day_passes()
    move("Pending payment")
    assert (allocated(), is_available(voucher)) == ([0], True)
    move("Paid")
    for status in ("Pending payment", "Paid"):
        assert (allocated(), is_available(voucher), voucher.num_orders) == ([2], False, 1)
        move(status)
    assert (allocated(), is_available(voucher), voucher.num_orders) == ([2], False, 1)


def test_an_order_that_was_given_up_and_is_marked_paid_and_cancelled_in_one_transaction_takes_nothing_again(
    world: World,
    payment: Payment,
) -> None:
    world.a_day_passes()
    moves("Pending payment")
    with transaction.atomic():
        order = Order.objects.get()
        for status in ("Paid", "Cancelled"):
            order.set_status(status)
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


@pytest.mark.parametrize("meanwhile", ["nothing", "held back for days", "given up"])
def test_what_the_staff_took_off_an_order_stays_off_it_when_it_is_paid(
    world: World,
    shopper: Shopper,
    product: Make,
    meanwhile: str,
) -> None:
    tea, pot = product("10.00", "Tea"), product("20.00", "Pot")
    shopper.adds(tea, 3)
    shopper.get(shopper.buys(pot)["Location"])
    order, payment = Order.objects.get(), Payment.objects.get()
    handler = get_class("order.processing", "EventHandler")()
    handler.cancel_stock_allocations(order, list(order.lines.filter(title="Pot")))
    # it was shipped in parts
    handler.consume_stock_allocations(order, list(order.lines.filter(title="Tea")), [1])
    assert allocated() == [2, 0]
    if meanwhile == "given up":
        world.a_day_passes()
        assert allocated() == [0, 0]
        world.pays_late(payment)
        world.notification(payment)
        is_told_again()
    else:
        if meanwhile == "held back for days":
            moves("On hold")
            world.a_day_passes()
            moves("Pending payment")
            payment = world.start(order.number, "paypal")
        world.shopper_pays(payment)
        world.notification(payment)
    order = Order.objects.get()
    lines = sorted(order.lines.values_list("title", "num_allocated", "allocation_cancelled"))
    assert (order.status, allocated()) == ("Paid", [2, 0])
    assert lines == [("Pot", 0, True), ("Tea", 2, False)]
    notes = [note.message for note in order.notes.all()]
    said = (
        "This order was paid after it had been released. No stock is held for what was "
        "released by hand: Pot."
    )
    assert notes == ([said] if meanwhile == "given up" else [])


def test_what_the_shops_own_handler_released_itself_is_named_when_the_order_is_paid_after_all(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    also_when_cancelled(monkeypatch, lambda handler, order: handler.cancel_stock_allocations(order))
    moves("Cancelled")
    world.a_day_passes()
    world.pays_late(payment)
    world.notification(payment)
    is_told_again()
    order = Order.objects.get()
    assert (order.status, allocated()) == ("Paid", [0])
    assert "No stock is held for what was released by hand: " in order.notes.get().message


@pytest.mark.parametrize("end", ["Cancelled", "Pending payment"])
def test_what_was_given_up_and_marked_paid_by_hand_releases_its_stock_once_it_is_not_paid_any_more(
    world: World,
    payment: Payment,
    end: str,
) -> None:
    world.a_day_passes()
    for status in ("Pending payment", "Paid"):
        moves(status)
    assert allocated() == [1]
    moves(end)
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


def test_the_shops_own_handler_may_give_money_back_when_a_paid_order_is_cancelled(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    also_when_cancelled(monkeypatch, lambda *_: queueing.refund(payment.pk, payment.amount))
    is_paid(world, payment)
    moves("Cancelled")
    assert Order.objects.get().status == "Cancelled"
    assert world.fresh(payment).refunded_amount == payment.amount


def test_an_order_that_was_put_back_stays_where_it_was_and_when_it_is_saved_again(
    world: World,
    payment: Payment,
) -> None:
    read = Order.objects.get()
    is_paid(world, payment)
    moves("Shipped")
    read.set_status("Cancelled")
    assert Order.objects.get().status == "Shipped"
    read.guest_email = "corrected@shopper.example"
    read.save()
    assert Order.objects.get().status == "Shipped"


# What was read long ago ---------------------------------------------------------------------------


def fields_of_admin(page: Any) -> dict[str, str]:
    """Return what a browser would post from the form of Django's admin as it is."""
    fields: dict[str, str] = {}
    formsets = [inline.formset for inline in page.context["inline_admin_formsets"]]
    forms = [
        page.context["adminform"].form,
        *(form for one in formsets for form in (one.management_form, *one.forms)),
    ]
    for form in forms:
        for field in form:
            value = field.value()
            if hasattr(field.field, "fields"):
                parts = field.field.widget.decompress(value)
                fields |= {
                    f"{field.html_name}_{number}": "" if part is None else str(part)
                    for number, part in enumerate(parts)
                }
            elif value is not False:
                fields[field.html_name] = (
                    "" if value is None else "on" if value is True else str(value)
                )
    return fields


def test_an_order_that_is_paid_while_its_page_in_the_admin_is_open_stays_paid_when_that_is_saved(
    world: World,
    payment: Payment,
) -> None:
    browser, url = Client(), f"/admin/order/order/{Order.objects.get().pk}/change/"
    boss = User.objects.create_superuser("boss", "boss@shop.example", "x")
    browser.force_login(boss, backend="django.contrib.auth.backends.ModelBackend")
    fields = fields_of_admin(browser.get(url))
    world.shopper_pays(payment)
    world.notification(payment)
    assert (
        browser.post(url, {**fields, "guest_email": "corrected@shopper.example"}).status_code == 302
    )
    order = Order.objects.get()
    assert (order.status, order.guest_email) == ("Paid", "corrected@shopper.example")


@pytest.mark.parametrize(
    "action",
    [Order.save, lambda order: order.set_status("Cancelled")],
    ids=["saved", "cancelled"],
)
@pytest.mark.parametrize("around", [nullcontext, transaction.atomic])
def test_a_row_that_is_saved_or_cancelled_while_the_payment_is_being_written_keeps_the_order_paid(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    around: Callable[[], Any],
    action: Callable[[Any], None],
) -> None:
    read, record, begun = Order.objects.get(), payments._record, threading.Event()

    def takes_its_time(*arguments: Any) -> None:
        record(*arguments)
        begun.set()
        time.sleep(1)

    def actions() -> bool:
        assert begun.wait(10)
        with around():
            action(read)
        return True

    monkeypatch.setattr(payments, "_record", takes_its_time)
    world.shopper_pays(payment)
    _answer, done = together(lambda: world.notification(payment), actions)
    assert (done, Order.objects.get().status) == (True, "Paid")
    assert ExpectedOrder.objects.get().closed_at is None


@pytest.mark.parametrize("rows", ["some fields", "a proxy", "the status alone"])
def test_a_row_that_was_read_before_the_order_was_paid_keeps_it_paid_however_it_was_read_and_is_saved(
    world: World,
    payment: Payment,
    rows: str,
) -> None:
    if rows == "a proxy":
        read = OrderOfAPage.objects.get()
    else:
        read = (
            Order.objects.defer("shipping_method").get()
            if rows == "some fields"
            else Order.objects.get()
        )
    is_paid(world, payment)
    read.save(update_fields=["status"] if rows == "the status alone" else None)
    assert Order.objects.get().status == "Paid"
    Order.objects.defer("status").get().save()
    assert Order.objects.get().status == "Paid"


@pytest.mark.parametrize("around", [nullcontext, transaction.atomic])
def test_an_order_that_code_cancels_as_unpaid_which_had_read_it_before_it_was_paid_stays_paid_and_a_note_says_so(
    world: World,
    payment: Payment,
    around: Callable[[], Any],
) -> None:
    read = Order.objects.get()
    is_paid(world, payment)
    with around():
        read.set_status("Cancelled")
    order = Order.objects.get()
    said = unseen("Cancelled", payment)
    assert (order.status, order.notes.get().message) == ("Paid", said)
    assert ExpectedOrder.objects.get().closed_at is None
    world.a_day_passes()
    assert allocated() == [1]


@pytest.mark.parametrize("new_status", ["Cancelled", "Pending payment"])
def test_an_order_that_was_read_while_it_was_held_back_and_is_paid_by_now_is_neither_cancelled_nor_made_to_wait(
    world: World,
    payment: Payment,
    new_status: str,
) -> None:
    moves("On hold")
    read = Order.objects.get()
    moves("Pending payment")
    is_paid(world, payment)
    with pytest.raises(PaymentError, match=r"is “Paid” by now"):
        get_class("order.processing", "EventHandler")().handle_order_status_change(read, new_status)
    assert (Order.objects.get().status, ExpectedOrder.objects.get().closed_at) == ("Paid", None)


def test_a_row_that_is_saved_as_it_was_read_may_wait_again_once_the_money_was_given_back(
    world: World,
    payment: Payment,
) -> None:
    read = Order.objects.get()
    world.shopper_pays(payment)
    world.notification(payment)
    queueing.refund(payment.pk, "2.50")
    read.save()
    assert (read.status, Order.objects.get().status) == ("Paid", "Paid")
    queueing.refund(payment.pk, "10.00")
    read.status = "Pending payment"
    read.save()
    assert Order.objects.get().status == "Pending payment"


def test_saving_an_order_asks_the_database_little_more(world: World, payment: Payment) -> None:
    def statements(**options: Any) -> int:
        with CaptureQueriesContext(connection) as asked:
            order.save(**options)
        return len(asked)

    order = Order.objects.get()
    few = statements(update_fields=["guest_email"])
    assert statements() <= few + 3
    order.status = "Shipped"
    assert statements() <= few + 1


@pytest.mark.parametrize("page", ["the order's page", "the list"])
def test_an_order_whose_money_is_here_is_not_cancelled_as_unpaid(
    world: World,
    payment: Payment,
    page: str,
) -> None:
    world.shopper_pays(payment)
    world.notification(payment)
    Order.objects.update(status="Pending payment")  # by a statement of the shop's own
    ann, order = staff("ann", *MAY), Order.objects.get()
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
    assert (
        f"payment {payment.reference} has paid order {order.number}: give the money back first"
        in messages_of(answer)[0]
    )
    assert "Pending payment" in text_of(answer)
    assert ExpectedOrder.objects.get().closed_at is None
    queueing.refund(payment.pk, payment.amount)
    moves("Cancelled")
    assert Order.objects.get().status == "Cancelled"


def test_an_order_whose_money_is_here_is_not_made_to_wait_again(
    world: World,
    payment: Payment,
) -> None:
    world.shopper_pays(payment)
    world.notification(payment)
    with pytest.raises(PaymentError, match="give the money back first"):
        moves("Pending payment")
    order = Order.objects.get()
    assert (order.status, order.status_changes.count()) == ("Paid", 1)


def test_an_order_that_was_paid_and_given_back_entirely_can_only_be_cancelled(
    world: World,
    payment: Payment,
) -> None:
    is_paid(world, payment)
    queueing.refund(payment.pk, payment.amount)
    with pytest.raises(
        PaymentError,
        match=f"payment {payment.reference} had paid order .* cannot be paid anew, only cancelled",
    ):
        moves("Pending payment")
    moves("Cancelled")
    assert Order.objects.get().status == "Cancelled"


def types(status: str, **more: str) -> None:
    """Type a status into the order's page in Django's admin, and save it."""
    browser, url = admin_page()
    assert (
        browser.post(
            url,
            {**fields_of_admin(browser.get(url)), "status": status, **more},
        ).status_code
        == 302
    )


def admin_page() -> tuple[Client, str]:
    """Return the browser of somebody who may do anything, and the page of the order in Django's
    admin.
    """
    browser, boss = (
        Client(),
        User.objects.filter(username="boss").first()
        or User.objects.create_superuser("boss", "boss@shop.example", "x"),
    )
    browser.force_login(boss, backend="django.contrib.auth.backends.ModelBackend")
    return browser, f"/admin/order/order/{Order.objects.get().pk}/change/"


def notes() -> list[str]:
    return [note.message for note in Order.objects.get().notes.all()]


@pytest.mark.parametrize("around", [nullcontext, transaction.atomic])
def test_an_order_that_code_holds_back_which_had_read_it_before_it_was_paid_stays_paid_and_a_note_says_so(
    around: Any,
    world: World,
    payment: Payment,
) -> None:
    read = Order.objects.get()
    is_paid(world, payment)
    with around():
        read.set_status("On hold")
    assert (read.status, Order.objects.get().status) == ("Paid", "Paid")
    assert notes() == [unseen("On hold", payment)]


def test_a_page_that_was_opened_while_a_paid_order_was_held_back_takes_it_there_and_a_note_says_so(
    world: World,
    payment: Payment,
) -> None:
    moves("On hold")
    browser, url = admin_page()
    fields = fields_of_admin(browser.get(url))
    moves("Pending payment")
    is_paid(world, payment)
    browser.post(url, {**fields, "guest_email": "corrected@shopper.example"})
    assert Order.objects.get().status == "On hold"
    assert notes()[0].startswith(
        "The status of this order was changed from “Paid” to “On hold”, though it is paid",
    )
    with pytest.raises(PaymentError, match="give the money back first"):
        moves("Cancelled")


def test_i4_a_page_that_was_opened_while_a_paid_order_was_cancelled_cancels_it_and_a_person_is_told(
    world: World,
    payment: Payment,
) -> None:
    moves("On hold")
    world.shopper_pays(payment)
    world.notification(payment)
    moves("Cancelled")
    browser, url = admin_page()
    fields = fields_of_admin(browser.get(url))
    is_told_again()
    assert (Order.objects.get().status, world.reviews()) == ("Paid", [])
    browser.post(url, {**fields, "guest_email": "corrected@shopper.example"})
    world.a_day_passes()
    assert (Order.objects.get().status, world.reviews()) == ("Cancelled", ["paid-not-payable"])


def test_i2_an_order_that_was_marked_paid_by_hand_is_not_given_up_by_a_page_that_was_opened_before(
    world: World,
    payment: Payment,
) -> None:
    browser, url = admin_page()
    fields = fields_of_admin(browser.get(url))
    moves("Paid")
    browser.post(url, {**fields, "guest_email": "corrected@shopper.example"})
    for _ in range(3):
        world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Pending payment", [1])
    assert sorted(note[:50] for note in notes()) == [
        "The status of this order was changed from “Paid” t",
        "This order waits to be paid, though it was marked ",
    ]


def test_an_order_that_was_given_up_and_is_typed_paid_takes_its_stock_again_and_is_confirmed(
    world: World,
    payment: Payment,
) -> None:
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])
    mail.outbox.clear()
    types("Paid")
    world.a_day_passes()
    assert (allocated(), len(mail.outbox)) == ([1], 1)


def test_an_order_that_is_typed_to_be_held_back_and_to_wait_again_is_given_up_in_time(
    world: World,
    payment: Payment,
) -> None:
    types("On hold")
    world.a_day_passes()
    types("Pending payment")
    for _ in range(3):
        world.a_day_passes()
    assert (Order.objects.get().status, allocated(), notes()) == ("Cancelled", [0], [])


def test_the_shopper_of_an_order_that_was_typed_paid_and_shipped_is_thanked(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    home = shopper.get("/checkout/thank-you/")["Location"]
    types("Paid")
    types("Shipped")
    assert shopper.get(home).status_code == 302
    assert [
        (one.old_status, one.new_status)
        for one in Order.objects.get().status_changes.order_by("pk")
    ] == [
        ("Pending payment", "Paid"),
        ("Paid", "Shipped"),
    ]


def test_what_oscar_tells_of_itself_is_in_the_history_once(world: World, payment: Payment) -> None:
    with transaction.atomic():
        moves("On hold")
        moves("Pending payment")
    moves_without_handler("On hold")
    assert [one.new_status for one in Order.objects.get().status_changes.order_by("pk")] == [
        "On hold",
        "Pending payment",
        "On hold",
    ]


@pytest.mark.parametrize("after_paid", [("Shipped",), ()])
def test_an_order_that_the_shops_own_handler_takes_further_at_once_stays_there(
    after_paid: tuple[str, ...],
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is downloaded is done once it is paid."""
    steps = {
        "Pending payment": ("Paid", "Shipped", "Cancelled"),
        "Paid": (*after_paid, "Cancelled"),
        "Shipped": ("Cancelled",),
    }
    monkeypatch.setattr(Order, "pipeline", steps)
    monkeypatch.setattr(
        EventHandler,
        "handle_order_status_change",
        lambda _self, order, _new_status: order.set_status("Shipped"),
    )
    world.shopper_pays(payment)
    world.notification(payment)
    assert (Order.objects.get().status, notes()) == ("Shipped", [])


def test_a_paid_order_that_moved_on_without_history_can_be_cancelled(
    world: World,
    payment: Payment,
) -> None:
    is_paid(world, payment)
    Order.objects.update(status="Shipped")
    Order.pipeline["Shipped"] = ("Cancelled",)
    moves("Cancelled")
    assert Order.objects.get().status == "Cancelled"


def test_what_only_a_paid_order_can_be_is_not_noted_when_it_is_saved(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(Order.pipeline, "Pending payment", ("Paid", "Shipped", "Cancelled"))
    is_paid(world, payment)
    types("Shipped")
    assert notes() == []
    assert Order.objects.get().status_changes.latest("pk").new_status == "Shipped"


def test_code_that_writes_the_history_itself_has_it_once(world: World, payment: Payment) -> None:
    with transaction.atomic():
        order = Order.objects.get()
        order.status = "On hold"
        order.save()
        order.status_changes.create(old_status="Pending payment", new_status="On hold")
    assert Order.objects.get().status_changes.count() == 1
