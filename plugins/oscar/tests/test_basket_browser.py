"""The page that cancels an order, in a browser: it fits, is accessible, and the keyboard leads back
to the basket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

# ships no types
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from oscar.core.loading import get_model
from playwright.sync_api import Browser, expect

from tests.shopper import Shopper
from tests.test_dashboard_browser import ARTEFACTS
from tillgate.django.models import Payment
from tillgate.testing.browsers import running_chromium
from tillgate.testing.world import World
from tillgate_oscar import orders


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for these tests, closed before any other runs."""
    with running_chromium() as browser:
        yield browser


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("button", ["Back to the basket", "Order these items again"])
def test_keyboard_leads_back_to_basket(
    chromium: Browser,
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    button: str,
    width: int,
) -> None:
    """The way back works for an order that waits and for one that was released."""
    shopper.get(shopper.buys(product("12.50"))["Location"])
    if button == "Order these items again":
        world.a_day_passes()
    order = get_model("order", "Order").objects.get()
    address = orders.change_url(order)
    assert address is not None
    context = chromium.new_context(
        base_url=live_server.url,
        viewport={"width": width, "height": 844},
    )
    # Oscar asks a CDN for jQuery first
    context.route(lambda url: not url.startswith(live_server.url), lambda route: route.abort())
    page = context.new_page()
    page.goto(address)
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"oscar-change-{order.status}-{width}.png", full_page=True)
    faults = {one["id"] for one in Axe().run(page, "#tillgate-change").response["violations"]}
    assert faults <= {"color-contrast"}, "beside the blue of Oscar's own links and buttons"
    assert (
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        <= 0
    )
    page.get_by_role("button", name=button).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Its items are in your basket again")).to_be_visible()
    expect(page.get_by_role("link", name="Green tea").first).to_be_visible()
    page.screenshot(path=ARTEFACTS / f"oscar-basket-again-{width}.png", full_page=True)
    order.refresh_from_db()
    assert order.status == "Cancelled"
    context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_basket_leads_to_waiting_order(
    chromium: Browser,
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    width: int,
) -> None:
    """A shopper can reach the payment of the order by keyboard."""
    shopper.get(shopper.buys(product("12.50"))["Location"])
    order = get_model("order", "Order").objects.get()
    context = chromium.new_context(
        base_url=live_server.url,
        viewport={"width": width, "height": 844},
    )
    context.route(lambda url: not url.startswith(live_server.url), lambda route: route.abort())
    context.add_cookies(
        [
            {"name": name, "value": one.value, "url": live_server.url}
            for name, one in shopper.client.cookies.items()
        ],
    )
    page = context.new_page()
    page.goto("/basket/")
    expect(page.locator("#tillgate-waiting")).to_contain_text(order.number)
    page.screenshot(path=ARTEFACTS / f"oscar-basket-waiting-{width}.png", full_page=True)
    faults = {one["id"] for one in Axe().run(page, "#tillgate-waiting").response["violations"]}
    assert faults <= {"color-contrast"}, "beside the blue of Oscar's own links and buttons"
    assert (
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        <= 0
    )
    pay = page.locator("#tillgate-waiting").get_by_role("link", name="Pay now")
    address = pay.get_attribute("href")
    assert address
    answer = shopper.get(address)
    assert order.number in answer.content.decode()
    page.locator("#tillgate-waiting").get_by_role("link", name="Change or cancel the order").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#tillgate-change")).to_be_visible()
    context.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["free", "cancelled"])
def test_order_without_payment_warns_of_open_payment_page(
    chromium: Browser,
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    kind: str,
    width: int,
) -> None:
    shopper.get(shopper.buys(product("12.50"))["Location"])
    order = get_model("order", "Order").objects.get()
    change, payment = orders.change_url(order), Payment.objects.get()
    assert change is not None
    if kind == "free":
        type(order).objects.update(total_incl_tax=0, total_excl_tax=0)
    else:
        shopper.post(change, {"then": "cancel"})
    context = chromium.new_context(
        base_url=live_server.url,
        viewport={"width": width, "height": 844},
    )
    # Oscar asks a CDN for jQuery first
    context.route(lambda url: not url.startswith(live_server.url), lambda route: route.abort())
    page = context.new_page()
    for name, address in {
        "order": orders.status_url(order.number),
        "change": change,
        "pay": world.way_to_pay(order.number),
        "return": f"/payments/return/{payment.return_key}/",
    }.items():
        page.goto(address)
        expect(page.get_by_text("Do not pay there.")).to_be_visible()
        page.screenshot(path=ARTEFACTS / f"oscar-{kind}-{name}-{width}.png", full_page=True)
        faults = {one["id"] for one in Axe().run(page, "main, .page_inner").response["violations"]}
        assert faults <= {"color-contrast"}, "beside the blue of Oscar's own links and buttons"
        assert (
            page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth",
            )
            <= 0
        )
    context.close()
