"""The page that cancels an order, in a browser: it fits, is accessible, and the keyboard leads back
to the basket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from oscar.core.loading import get_model
from playwright.sync_api import Browser, expect

from tests.looking import OSCARS_BLUE, chromium, look, new_context  # noqa: F401  # a fixture
from tests.shopper import Shopper
from tillgate.django.models import Payment
from tillgate.testing.world import World
from tillgate_oscar import orders


@pytest.mark.parametrize("button", ["Back to the basket", "Order these items again"])
def test_keyboard_leads_back_to_basket(
    chromium: Browser,  # noqa: F811
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    button: str,
) -> None:
    """The way back works for an order that waits and for one that was released."""
    shopper.get(shopper.buys(product("12.50"))["Location"])
    if button == "Order these items again":
        world.a_day_passes()
    order = get_model("order", "Order").objects.get()
    address = orders.change_url(order)
    assert address is not None
    context = new_context(chromium, live_server.url)
    page = context.new_page()
    page.goto(address)
    look(page, f"change-{order.status}", "#tillgate-change", OSCARS_BLUE)
    page.get_by_role("button", name=button).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Its items are in your basket again")).to_be_visible()
    expect(page.get_by_role("link", name="Green tea").first).to_be_visible()
    look(page, "basket-again")
    order.refresh_from_db()
    assert order.status == "Cancelled"
    context.close()


def test_basket_leads_to_waiting_order(
    chromium: Browser,  # noqa: F811
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
) -> None:
    """A shopper can reach the payment of the order by keyboard."""
    shopper.get(shopper.buys(product("12.50"))["Location"])
    order = get_model("order", "Order").objects.get()
    context = new_context(chromium, live_server.url, shopper.client)
    page = context.new_page()
    page.goto("/basket/")
    expect(page.locator("#tillgate-waiting")).to_contain_text(order.number)
    look(page, "basket-waiting", "#tillgate-waiting", OSCARS_BLUE)
    pay = page.locator("#tillgate-waiting").get_by_role("link", name="Pay now")
    address = pay.get_attribute("href")
    assert address
    answer = shopper.get(address)
    assert order.number in answer.content.decode()
    page.locator("#tillgate-waiting").get_by_role("link", name="Change or cancel the order").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#tillgate-change")).to_be_visible()
    context.close()


@pytest.mark.parametrize("kind", ["free", "cancelled"])
def test_order_without_payment_warns_of_open_payment_page(
    chromium: Browser,  # noqa: F811
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    kind: str,
) -> None:
    shopper.get(shopper.buys(product("12.50"))["Location"])
    order = get_model("order", "Order").objects.get()
    change, payment = orders.change_url(order), Payment.objects.get()
    assert change is not None
    if kind == "free":
        type(order).objects.update(total_incl_tax=0, total_excl_tax=0)
    else:
        shopper.post(change, {"then": "cancel"})
    context = new_context(chromium, live_server.url)
    page = context.new_page()
    for name, address in {
        "order": orders.status_url(order.number),
        "change": change,
        "pay": world.way_to_pay(order.number),
        "return": f"/payments/return/{payment.return_key}/",
    }.items():
        page.goto(address)
        expect(page.get_by_text("Do not pay there.")).to_be_visible()
        look(page, f"{kind}-{name}", "main, .page_inner", OSCARS_BLUE)
    context.close()
