"""The order page and the mails of slow money in a browser, in four languages and two widths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

# ships no types
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from django.core import mail
from playwright.sync_api import Browser, Page

from tests.shopper import Shopper
from tests.test_dashboard_browser import ARTEFACTS
from tillgate import hooks, shop
from tillgate.django.models import Payment
from tillgate.gateways import NextStep
from tillgate.testing.browsers import running_chromium
from tillgate.testing.world import World

VOUCHER = "https://pay.example/voucher/7"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for these tests, closed before any other runs."""
    with running_chromium() as browser:
        yield browser


def look(page: Page, name: str) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"oscar-{name}.png", full_page=True)
    assert (
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        <= 0
    ), f"{name} is too wide"


@pytest.mark.parametrize("language", ["en", "de", "ja", "ur"])
@pytest.mark.parametrize("width", [390, 1280])
def test_voucher_reads_well_on_order_page_and_mail(
    chromium: Browser,
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    width: int,
) -> None:
    """The mails that a voucher is to be paid, and that it was not, fit a telephone too."""
    shopper.get(shopper.buys(product("12.50"))["Location"])
    payment = Payment.objects.get()
    settings.LANGUAGE_CODE = language
    monkeypatch.setattr("tillgate_oscar.orders.language_of", lambda payment: language)
    until = world.time.now() + timedelta(days=3)
    world.money.hold(payment.reference, NextStep(url=VOUCHER, until=until))
    world.come_back(payment)
    world.run_worker()
    context = chromium.new_context(
        base_url=live_server.url,
        viewport={"width": width, "height": 844},
    )
    # Oscar asks a CDN for jQuery first
    context.route(lambda url: not url.startswith(live_server.url), lambda route: route.abort())
    context.add_cookies(
        [
            {"name": name, "value": one.value, "url": live_server.url}
            for name, one in shopper.client.cookies.items()
        ],
    )
    page = context.new_page()
    found = shop.find_payment("oscar", reference=payment.reference)
    page.goto(hooks.call_owner("oscar", "tillgate_return_url", payment=found))
    assert page.locator(f"a[href='{VOUCHER}']").is_visible()
    faults = {one["id"] for one in Axe().run(page, ".content").response["violations"]}
    assert faults <= {"color-contrast"}, "beside the blue of Oscar's own links and buttons"
    look(page, f"voucher-{language}-{width}")
    world.gateway.decline(payment.reference)
    world.money.release(payment.reference)
    world.time.advance(hours=3)
    world.run_worker()
    for name, sent in zip(("begun", "failed"), mail.outbox, strict=True):
        page.set_content(str(sent.alternatives[0][0]))
        look(page, f"mail-{name}-{language}-{width}")
    context.close()
