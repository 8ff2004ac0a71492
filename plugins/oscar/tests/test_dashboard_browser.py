"""The order's page of the dashboard in a browser: it is pressed, it fits, and what we add to it is
accessible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from oscar.core.loading import get_model
from playwright.sync_api import Browser, Page, expect

from tests.looking import chromium, look, new_context  # noqa: F401  # a fixture
from tests.test_refunds import Bought
from tillgate.testing.world import World

OURS = ".tillgate"


@pytest.fixture
def dashboard(
    chromium: Browser,  # noqa: F811
    live_server: Any,
) -> Iterator[Callable[..., Page]]:
    """Return what opens a page of the dashboard as somebody who may do everything."""
    boss = User.objects.create_superuser("anna", "anna@shop.example", "correct horse")
    session = Client()
    session.force_login(boss, backend="django.contrib.auth.backends.ModelBackend")
    contexts = []

    def visit(path: str, **options: Any) -> Page:
        context = new_context(chromium, live_server.url, session, **options)
        contexts.append(context)
        page = context.new_page()
        page.goto(path)
        return page

    yield visit
    for context in contexts:
        context.close()


def test_double_press_makes_one_partial_refund(
    dashboard: Callable[..., Page],
    world: World,
    product: Callable[..., Any],
) -> None:
    bought = Bought(world, product)
    page = dashboard(f"/dashboard/orders/{bought.order.number}/#payment")
    page.get_by_label("Amount in USD").fill("2.50")
    page.get_by_label("Reason").fill("a cup was broken")
    press = page.get_by_role("button", name="Refund")
    press.click()
    assert not bought.events(), "nothing goes out until somebody says that it is meant"
    page.get_by_label("Yes, refund it.").check()
    press.dblclick()
    expect(page.get_by_text("USD 2.50 was refunded.")).to_be_visible()
    expect(page.get_by_text("Refunded USD 2.50 by anna")).to_be_visible()
    expect(page.get_by_text("A refund of USD 2.50 was asked for").last).to_be_visible()
    look(page, "dashboard-refund", OURS)
    assert bought.refunded_amount() == Decimal("2.50")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("desktop", {"color_scheme": "dark"}),
        ("phone", {"viewport": {"width": 390, "height": 844}, "is_mobile": True}),
    ],
)
def test_order_page_with_refunds_looks_right(
    dashboard: Callable[..., Page],
    world: World,
    product: Callable[..., Any],
    name: str,
    options: dict[str, Any],
) -> None:
    """It shows every kind of refund."""
    bought = Bought(world, product)
    bought.ask(Decimal("4.00"), {bought.tea: 1})
    for fault in ("refused", "lost_response"):
        world.sandbox.control.fault(fault, occasion="refund")
        bought.ask(Decimal("1.00"))
    page = dashboard(f"/dashboard/orders/{bought.order.number}/#payment", **options)
    expect(page.get_by_role("link", name="Refund of unknown outcome")).to_be_visible()
    for state in ("refunded", "not refunded", "unknown outcome"):
        expect(
            page.locator(".tillgate-rows .tillgate-badge").get_by_text(state, exact=True),
        ).to_be_visible()
    expect(page.get_by_role("button", name="Refund")).to_be_visible()
    look(page, f"dashboard-order-{name}", OURS)
    page.get_by_text("Every step").first.click()
    page.get_by_text("Cause and evidence").first.click()
    page.get_by_role("link", name="Refund of unknown outcome").click()
    expect(page.get_by_role("button", name="The refund was done")).to_be_visible()


def test_order_list_shows_refunded_amounts(
    dashboard: Callable[..., Page],
    world: World,
    product: Callable[..., Any],
) -> None:
    bought = Bought(world, product)
    bought.ask(Decimal("32.00"))
    # Oscar's lists keep the width in which they were opened
    page = dashboard("/dashboard/orders/", viewport={"width": 390, "height": 844})
    badge = page.locator("td .badge")
    expect(badge).to_have_text("refunded")
    look(page, "dashboard-orders", "td .badge")
    page.goto(f"/dashboard/orders/{bought.order.number}/")
    expect(page.get_by_text("This order was refunded: do not ship it.")).to_be_visible()
    look(page, "dashboard-order-refunded", OURS)


def test_paid_order_is_cancelled_by_keyboard(
    dashboard: Callable[..., Page],
    world: World,
    product: Callable[..., Any],
) -> None:
    """The status form leads to the question; keys alone answer it."""
    bought = Bought(world, product)
    page = dashboard(f"/dashboard/orders/{bought.order.number}/")
    page.locator("#order_status_form select").select_option("Cancelled")
    page.locator("#order_status_form button").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("This order is paid: USD 32.00 is held.")).to_be_visible()
    look(page, "dashboard-cancel", OURS)
    page.get_by_label("Refund this amount").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Keep it, for the reason below")).to_be_checked()
    page.keyboard.press("Tab")
    page.keyboard.type("made to measure")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"Order {bought.order.number} was cancelled.")).to_be_visible()
    assert (bought.order.status, bought.refunded_amount()) == ("Cancelled", Decimal(0))


def test_items_are_refunded_in_two_steps(
    dashboard: Callable[..., Page],
    world: World,
    product: Callable[..., Any],
) -> None:
    bought = Bought(world, product)
    page = dashboard(f"/dashboard/orders/{bought.order.number}/#payment")
    page.get_by_role("link", name="Refund items").click()
    look(page, "dashboard-refund-items", OURS)
    page.get_by_role("spinbutton", name="Tea").fill("2")
    page.get_by_role("button", name="Check the refund").click()
    look(page, "dashboard-refund-check", OURS)
    page.get_by_role("button", name="Refund USD 8.00").dblclick()
    expect(page.get_by_text("USD 8.00 was refunded.")).to_be_visible()
    assert bought.refunded_amount() == Decimal("8.00")
    page.get_by_role("link", name="Refund items").click()
    page.get_by_role("button", name="Refund the rest: USD 24.00").click()
    expect(page.get_by_text("USD 24.00 was refunded.")).to_be_visible()
    assert bought.refunded_amount() == Decimal("32.00")


def test_order_is_found_and_its_link_made(
    dashboard: Callable[..., Page],
    world: World,
    product: Callable[..., Any],
) -> None:
    """By the amount, among others; the link can be copied."""
    number = world.order("12.50")
    world.order("5.00")
    page = dashboard(
        "/dashboard/orders/",
        reduced_motion="reduce",  # Oscar's tabs fade in
    )
    look(page, "dashboard-find", OURS)
    page.get_by_label("Find an order").fill("12.50")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/dashboard/orders/{number}/$"))
    page.locator('a[href="#payment"]').click()
    page.get_by_role("button", name="Make a link").click()
    expect(page.locator("#tillgate_link_form code")).to_contain_text("/payments/pay/")
    expect(page.locator("#payment")).to_have_css("opacity", "1")
    look(page, "dashboard-link", OURS)


def test_late_money_is_delivered_by_one_button(
    dashboard: Callable[..., Page],
    world: World,
    product: Callable[..., Any],
) -> None:
    number = world.order("12.50")
    payment = world.start(number)
    order = get_model("order", "Order").objects.get(number=number)
    order.set_status("Cancelled")
    world.shopper_pays(payment)
    world.notification(payment)
    page = dashboard(f"/dashboard/orders/{number}/")
    look(page, "dashboard-review", OURS)
    page.get_by_role("button", name="Reopen and deliver").click()
    expect(page.get_by_text("Resolved:")).to_be_visible()
    order.refresh_from_db()
    assert order.status == "Paid"
