"""The pages of shoppers and staff in a browser, with pretix's own styles, as wide as a phone and as
a desktop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# ships no types
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from django.conf import settings as project
from playwright.sync_api import Browser, Page, expect

from tests.shopping import event_of, order_of, staff
from tests.test_mails import PAGE as MAILS
from tests.test_paying import expired
from tests.test_settings import FORM
from tests.test_staff import PAGE
from tillgate.testing.browsers import running_chromium
from tillgate.testing.world import World
from tillgate_pretix import accounts

ARTEFACTS = Path(__file__).parents[3] / "artefacts"
WIDTHS = (390, 1280)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for these tests, closed before any other runs: its event loop would confuse
    them.
    """
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser, live_server: Any, settings: Any) -> Iterator[Page]:
    """Return a page of a browser on a live pretix."""
    settings.SITE_URL = live_server.url
    # pretix's settings for tests leave out its styles.
    settings.COMPRESS_PRECOMPILERS = project.COMPRESS_PRECOMPILERS_ORIGINAL
    settings.COMPRESS_ENABLED, settings.COMPRESS_CACHE_BACKEND = True, "default"
    context = chromium.new_context(base_url=live_server.url)
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


def check(page: Page, name: str, part: str | None = None) -> None:
    """Keep a picture of a page in both widths, and check that it fits and that axe finds nothing in
    it, or in the part of it that is ours.
    """
    ARTEFACTS.mkdir(exist_ok=True)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        picture = ARTEFACTS / f"pretix-{name}-{width}.png"
        page.screenshot(path=picture, animations="disabled", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page, context=part).response["violations"]
        assert [(fault["id"], fault["nodes"][0]["html"][:100]) for fault in found] == []


def test_returning_shopper_sees_outcome_and_advice(
    page: Page,
    world: World,
) -> None:
    key = world.order()
    order = order_of(world, key)
    page.goto(world.shop.pay_path(key) or "")
    check(page, "choose")
    page.get_by_role("radio", name="PayPal").focus()
    page.keyboard.press("Space")
    expect(page.get_by_role("radio", name="PayPal")).to_be_checked()
    payment = world.pay_page(key, "paypal")
    page.goto(f"/org/conf/order/{order.code}/{order.secret}/")
    expect(page.get_by_text("We are waiting for your payment with PayPal.")).to_be_visible()
    check(page, "waiting")
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    # it updates itself
    expect(page.get_by_text("We are waiting for your payment")).to_have_count(0, timeout=30_000)
    check(page, "paid")


def test_late_paying_shopper_reads_money_arrived(page: Page, world: World) -> None:
    order, payment = expired(world, places=1, accepts_late=False)
    world.gateway_notification(payment)
    world.run_worker()
    page.goto(f"/org/conf/order/{order.code}/{order.secret}/")
    expect(
        page.get_by_text("Your payment has arrived, and has not paid this order."),
    ).to_be_visible()
    check(page, "late", ".alert-info")


def test_organizer_tests_the_connection_of_an_account(
    page: Page,
    world: World,
    live_server: Any,
) -> None:
    cookies = staff(world, "event.settings.general:write", "event.settings.payment:write").cookies
    page.context.add_cookies(
        [
            {"name": name, "value": cookie.value, "url": live_server.url}
            for name, cookie in cookies.items()
        ],
    )
    page.goto(FORM)
    expect(page.get_by_label("Test mode: Webhook secret")).to_have_count(0)
    expect(page.get_by_label("Test mode: Store number")).to_be_hidden()
    page.get_by_label("Test mode: Payment service").select_option("Yuansfer or Pockyt")
    expect(page.get_by_label("Test mode: Store number")).to_be_visible()
    page.get_by_label("Test mode: Payment service").select_option("2Pay")
    page.get_by_label("Test mode: Merchant number").fill("987654")
    page.get_by_role("button", name="Test connection").click()
    expect(page.locator(".alert-danger")).to_contain_text("Account for test mode: ")
    check(page, "refused-account", ".alert-danger")
    page.get_by_label("Test mode: Merchant number").fill("200043")
    page.get_by_role("button", name="Test connection").click()
    expect(page.get_by_text("Account for test mode: the payment service knows it.")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Your changes have been saved.")).to_be_visible()
    accounts.settings_of(event_of(world)).set(
        "test_problem",
        "the token does not fit the merchant number",
    )
    page.goto(FORM)
    expect(page.locator(".alert-warning")).to_contain_text(
        "the token does not fit the merchant number",
    )
    check(page, "settings", "[name=test_connection]")


def test_staff_refund_a_second_payment_by_keyboard(
    page: Page,
    world: World,
    live_server: Any,
) -> None:
    key = world.order()
    for payment in [world.pay_page(key, method) for method in ("alipay", "paypal")]:
        world.shopper_pays(payment)
        world.gateway_notification(payment)
    world.run_worker()
    cookies = staff(world, "event.orders:read", "event.orders:write").cookies
    page.context.add_cookies(
        [
            {"name": name, "value": cookie.value, "url": live_server.url}
            for name, cookie in cookies.items()
        ],
    )
    page.goto(PAGE)
    expect(page.get_by_role("heading", name="Paid twice")).to_be_visible()
    check(page, "review", "form.panel-body")
    page.get_by_label("Amount in USD, for refunds").focus()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Refund…")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Refund")).to_be_visible()
    check(page, "refund", "form[method=post]:has([name=is_sure])")
    page.get_by_role("button", name="Refund USD 12.50").press("Enter")
    expect(page.get_by_text("Resolved: ")).to_be_visible()
    assert world.refunded_amount(payment) == payment.amount


def styled(world: World, **colours: str) -> None:
    """Give the event a name and colours of its own."""
    event = event_of(world)
    event.name = "Sommerfest"
    event.save(update_fields=["name"])
    for name, colour in colours.items():
        event.settings.set(name, colour)


@pytest.mark.parametrize("colour", ["#7f00ff", "#ffee00"])
def test_waiting_page_has_colours_of_event(page: Page, world: World, colour: str) -> None:
    """A colour that is too light for text is darker."""
    styled(world, primary_color=colour, theme_color_background="#102030")
    payment = world.pay_page(world.order())
    page.goto(f"/_tillgate/return/{payment.return_key}/?wait=41&status=pending")
    expect(page.get_by_role("link", name="Sommerfest")).to_be_visible()
    assert page.title().endswith("| Sommerfest")
    name = "light" if colour == "#ffee00" else "dark"
    check(page, f"return-{name}")
    button = page.get_by_role("link", name="Pay now")
    shown = button.evaluate("one => getComputedStyle(one).backgroundColor")
    assert shown == "rgb(127, 0, 255)" if name == "dark" else shown != "rgb(255, 238, 0)"
    page.get_by_role("link", name="Sommerfest").click()
    expect(page).to_have_url(re.compile(r"/org/conf/$"))


def test_other_browser_reads_outcome_on_event_page(page: Page, world: World) -> None:
    styled(world, primary_color="#7f00ff")
    key = world.order()
    payment = world.pay_page(key)
    world.shopper_pays(payment)
    world.gateway_notification(payment)
    page.goto(f"/_tillgate/return/{payment.return_key}/")
    expect(page.get_by_text("Thank you, your payment has arrived.")).to_be_visible()
    expect(page.get_by_role("heading", name="Sommerfest")).to_be_visible()
    check(page, "returned")


def test_organizer_edits_mails(page: Page, world: World, live_server: Any) -> None:
    event_of(world)
    cookies = staff(world, "event.settings.general:write").cookies
    page.context.add_cookies(
        [
            {"name": name, "value": cookie.value, "url": live_server.url}
            for name, cookie in cookies.items()
        ],
    )
    page.goto(MAILS)
    page.get_by_text("Money was refunded").click()
    page.get_by_role("link", name="Preview").nth(1).click()
    expect(page.get_by_text("42.23")).to_be_visible()
    check(page, "mails", ".submit-group")
