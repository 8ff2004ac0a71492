"""The shop's own ways through its statuses: by its pipeline, by the staff's hand, and by code that
saves rows read long ago.
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
    """Return the note on an order after a status change from a page that was read before it was
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
def test_held_then_cancelled_order_releases_reservations(
    world: World,
    shopper: Shopper,
    product: Make,
    days: int,
) -> None:
    """Both its stock and its voucher are released."""
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
def test_reallocated_stock_is_released_after_moves(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    then: str,
) -> None:
    """Released, marked paid by hand since the money came otherwise, moved on, and taken back after
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


def test_mistaken_paid_mark_shows_no_confirmation(
    shopper: Shopper,
    payment: Payment,
) -> None:
    """The order is held back now, and its page says that it cannot be paid."""
    home = shopper.get("/checkout/thank-you/")["Location"]
    for status in ("Paid", "Pending payment", "On hold"):
        moves(status)
    assert shopper.get("/checkout/thank-you/")["Location"] == home
    assert "cannot be paid at the moment" in shopper.get(home).content.decode()


@pytest.mark.parametrize("days", [0, 2])
def test_held_order_is_payable_after_release(
    world: World,
    shopper: Shopper,
    payment: Payment,
    days: int,
) -> None:
    """It cannot be paid until it waits for payment again."""
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
def test_waiting_again_order_expires_in_time(
    world: World,
    shopper: Shopper,
    product: Make,
    meanwhile: str,
    begun: bool,
) -> None:
    """This holds for an order that was held back or marked paid before."""
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


def test_cancelling_marked_paid_order_releases_stock(
    world: World,
    payment: Payment,
) -> None:
    """The staff may cancel it a day later."""
    moves("Paid")
    world.a_day_passes()
    assert allocated() == [1]
    moves("Cancelled")
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


def test_reopened_expired_order_stays_unpayable(
    world: World,
    shopper: Shopper,
    payment: Payment,
) -> None:
    """The page of an order that was released and reopened by hand says so."""
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
def test_failing_follow_up_keeps_status_change(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    by_handler: bool,
) -> None:
    """An error while following a status does not reach the code that changed it."""

    def fail(*_: Any) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(registering, "close_order", fail)
    (moves if by_handler else moves_without_handler)("Cancelled")
    assert Order.objects.get().status == "Cancelled"


def test_status_blocked_by_handler_is_ignored(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """We do not follow a status that the shop's own handler did not set."""

    def waits_for_the_boss(_handler: Any, order: Any, _status: str) -> None:
        order.set_status("On hold")

    monkeypatch.setattr(EventHandler, "handle_order_status_change", waits_for_the_boss)
    moves("Cancelled")
    assert (Order.objects.get().status, ExpectedOrder.objects.get().closed_at) == ("On hold", None)


def test_held_order_does_not_read_confirmed(
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
def test_advanced_paid_order_thanks_shopper(
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


def test_late_paid_order_reallocates_its_stock(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """An order that was released and then paid also takes its voucher again."""
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
def test_late_paid_order_names_exceeded_discounts(
    world: World,
    shopper: Shopper,
    product: Make,
    kind: str,
) -> None:
    """Others used up the discount before the order was paid."""
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


def test_late_paid_order_names_missing_products(
    world: World,
    shopper: Shopper,
    product: Make,
) -> None:
    """It names the goods that were sold or deleted in the meantime."""
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
def test_marked_paid_order_reallocates_stock_once(
    world: World,
    shopper: Shopper,
    product: Make,
    move: Callable[[str], None],
) -> None:
    """An order that was released and marked paid by hand also takes its voucher again."""
    voucher = buys_with_voucher(shopper, product("10.00"), 2)
    world.a_day_passes()
    move("Pending payment")
    assert (allocated(), is_available(voucher)) == ([0], True)
    move("Paid")
    for status in ("Pending payment", "Paid"):
        assert (allocated(), is_available(voucher), voucher.num_orders) == ([2], False, 1)
        move(status)
    assert (allocated(), is_available(voucher), voucher.num_orders) == ([2], False, 1)


def test_cancelled_mark_in_transaction_reallocates_nothing(
    world: World,
    payment: Payment,
) -> None:
    """The order is marked paid and cancelled in one transaction."""
    world.a_day_passes()
    moves("Pending payment")
    with transaction.atomic():
        order = Order.objects.get()
        for status in ("Paid", "Cancelled"):
            order.set_status(status)
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


@pytest.mark.parametrize("meanwhile", ["nothing", "held back for days", "given up"])
def test_lines_removed_by_staff_stay_removed(
    world: World,
    shopper: Shopper,
    product: Make,
    meanwhile: str,
) -> None:
    """Paying the order does not bring them back."""
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


def test_late_paid_order_names_handler_releases(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It names the stock that the shop's own handler had released."""
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
def test_unmarked_paid_order_releases_stock_again(
    world: World,
    payment: Payment,
    end: str,
) -> None:
    """The order had been released and marked paid by hand."""
    world.a_day_passes()
    for status in ("Pending payment", "Paid"):
        moves(status)
    assert allocated() == [1]
    moves(end)
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])


def test_handler_may_refund_cancelled_paid_order(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    also_when_cancelled(monkeypatch, lambda *_: queueing.refund(payment.pk, payment.amount))
    is_paid(world, payment)
    moves("Cancelled")
    assert Order.objects.get().status == "Cancelled"
    assert world.fresh(payment).refunded_amount == payment.amount


def test_restored_status_survives_saving_again(
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


# Old reads ----------------------------------------------------------------------------------------


def fields_of_admin(page: Any) -> dict[str, str]:
    """Return the fields that a browser would post from the form of Django's admin."""
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


def test_open_admin_page_keeps_order_paid(
    world: World,
    payment: Payment,
) -> None:
    """The order is paid while its page is open, and saving that page keeps it paid."""
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
def test_concurrent_change_keeps_order_paid(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
    around: Callable[[], Any],
    action: Callable[[Any], None],
) -> None:
    """The order is saved or cancelled while the payment is being written."""
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
def test_stale_row_keeps_order_paid(
    world: World,
    payment: Payment,
    rows: str,
) -> None:
    """This holds for every way of reading and saving the order."""
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
def test_stale_cancel_keeps_paid_and_notes(
    world: World,
    payment: Payment,
    around: Callable[[], Any],
) -> None:
    """Code that read the order before it was paid cannot cancel it as unpaid."""
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
def test_stale_held_order_is_left_paid(
    world: World,
    payment: Payment,
    new_status: str,
) -> None:
    """It is not cancelled or made to wait for payment."""
    moves("On hold")
    read = Order.objects.get()
    moves("Pending payment")
    is_paid(world, payment)
    with pytest.raises(PaymentError, match=r"is “Paid” by now"):
        get_class("order.processing", "EventHandler")().handle_order_status_change(read, new_status)
    assert (Order.objects.get().status, ExpectedOrder.objects.get().closed_at) == ("Paid", None)


def test_stale_row_may_wait_after_refund(
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


def test_saving_order_adds_few_queries(world: World, payment: Payment) -> None:
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
def test_order_with_money_is_not_cancelled(
    world: World,
    payment: Payment,
    page: str,
) -> None:
    """An order with arrived money cannot be cancelled as unpaid."""
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


def test_order_with_money_never_waits_again(
    world: World,
    payment: Payment,
) -> None:
    world.shopper_pays(payment)
    world.notification(payment)
    with pytest.raises(PaymentError, match="give the money back first"):
        moves("Pending payment")
    order = Order.objects.get()
    assert (order.status, order.status_changes.count()) == ("Paid", 1)


def test_fully_refunded_order_can_only_cancel(
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
    """Return the browser of a superuser, and the page of the order in Django's admin."""
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
def test_stale_hold_keeps_paid_and_notes(
    around: Any,
    world: World,
    payment: Payment,
) -> None:
    """Code that read the order before it was paid cannot hold it back."""
    read = Order.objects.get()
    is_paid(world, payment)
    with around():
        read.set_status("On hold")
    assert (read.status, Order.objects.get().status) == ("Paid", "Paid")
    assert notes() == [unseen("On hold", payment)]


def test_stale_page_holds_order_and_notes(
    world: World,
    payment: Payment,
) -> None:
    """The page was opened while the paid order was held back."""
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


def test_i4_stale_page_cancel_opens_review(
    world: World,
    payment: Payment,
) -> None:
    """The page was opened while the paid order was cancelled."""
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
    assert (Order.objects.get().status, world.reviews()) == ("Cancelled", ["cancelled-held"])


def test_i2_stale_page_keeps_order_marked_paid(
    world: World,
    payment: Payment,
) -> None:
    """A page opened before staff marked the order paid does not give it up."""
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


def test_typed_paid_status_reallocates_and_confirms(
    world: World,
    payment: Payment,
) -> None:
    """The order had been released before staff typed the status."""
    world.a_day_passes()
    assert (Order.objects.get().status, allocated()) == ("Cancelled", [0])
    mail.outbox.clear()
    types("Paid")
    world.a_day_passes()
    assert (allocated(), len(mail.outbox)) == ([1], 1)


def test_typed_waiting_order_expires_in_time(
    world: World,
    payment: Payment,
) -> None:
    """The status was typed to hold the order back and then to let it wait again."""
    types("On hold")
    world.a_day_passes()
    types("Pending payment")
    for _ in range(3):
        world.a_day_passes()
    assert (Order.objects.get().status, allocated(), notes()) == ("Cancelled", [0], [])


def test_typed_shipped_order_thanks_shopper(
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


def test_oscar_status_history_has_no_duplicates(world: World, payment: Payment) -> None:
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
def test_order_advanced_by_handler_stays_there(
    after_paid: tuple[str, ...],
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An order of downloads is done once it is paid."""
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


def test_paid_order_without_history_can_cancel(
    world: World,
    payment: Payment,
) -> None:
    """It had moved on from paid without an entry in its history."""
    is_paid(world, payment)
    Order.objects.update(status="Shipped")
    Order.pipeline["Shipped"] = ("Cancelled",)
    moves("Cancelled")
    assert Order.objects.get().status == "Cancelled"


def test_regular_status_change_adds_no_note(
    world: World,
    payment: Payment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Saving a paid order with a status that only paid orders have needs no note."""
    monkeypatch.setitem(Order.pipeline, "Pending payment", ("Paid", "Shipped", "Cancelled"))
    is_paid(world, payment)
    types("Shipped")
    assert notes() == []
    assert Order.objects.get().status_changes.latest("pk").new_status == "Shipped"


def test_code_written_history_is_not_duplicated(world: World, payment: Payment) -> None:
    with transaction.atomic():
        order = Order.objects.get()
        order.status = "On hold"
        order.save()
        order.status_changes.create(old_status="Pending payment", new_status="On hold")
    assert Order.objects.get().status_changes.count() == 1
