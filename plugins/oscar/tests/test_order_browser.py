"""The guest's order page, while it waits and after its end, and the pay link after the end, in a
browser: on a phone and a wide screen, in four languages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

# ships no types
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from oscar.core.loading import get_model
from playwright.sync_api import Browser, Page, expect

from tests.shopper import Shopper
from tests.test_dashboard_browser import ARTEFACTS
from tillgate import shop
from tillgate.testing.browsers import running_chromium
from tillgate.testing.world import World
from tillgate_oscar import orders

IN_FOUR_LANGUAGES = pytest.mark.parametrize(
    ("language", "kept", "ended"),
    [
        ("en", "Your goods are kept for you until", "This order was not paid in time"),
        ("de", "Ihre Waren bleiben bis", "Diese Bestellung wurde nicht rechtzeitig bezahlt"),
        ("ja", "お取り置き", "期限までにお支払いがなかったため"),
        ("ur", "محفوظ", "ادائیگی وقت پر نہیں ہوئی"),
    ],
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for these tests, closed before any other runs."""
    with running_chromium() as browser:
        yield browser


def look(page: Page, name: str) -> None:
    """Keep a picture of a page; demand that our part is accessible and that it fits."""
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)
    faults = {
        one["id"]: [node["html"][:120] for node in one["nodes"]]
        for one in Axe().run(page, "#tillgate-order, #main").response["violations"]
    }
    # beside the blue of Oscar's own links and buttons
    assert set(faults) <= {"color-contrast"}, faults
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0, name


@IN_FOUR_LANGUAGES
@pytest.mark.parametrize("width", [390, 1280])
def test_guest_reads_what_waits_and_what_ended(
    chromium: Browser,
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    settings: Any,
    language: str,
    kept: str,
    ended: str,
    width: int,
) -> None:
    """The keyboard leads from the end to the items of the order."""
    settings.LANGUAGES = [(code, code) for code in ("en", "de", "ja", "ur")]
    shopper.get(shopper.buys(product("12.50"))["Location"])
    number = get_model("order", "Order").objects.get().number
    settings.LANGUAGE_CODE = language
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
    page.goto(orders.status_url(number))
    ours = page.locator("#tillgate-order")
    for text in (kept, "Green tea", "12"):
        expect(ours).to_contain_text(text)
    look(page, f"oscar-order-waits-{language}-{width}")
    world.a_day_passes()
    page.goto(orders.status_url(number))
    expect(ours).to_contain_text(ended)
    look(page, f"oscar-order-ended-{language}-{width}")
    page.goto(shop.pay_path("oscar", number))
    expect(page.locator("main")).to_contain_text(ended)
    look(page, f"oscar-pay-ended-{language}-{width}")
    again = page.locator("main a.button").first
    again.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#tillgate-change")).to_contain_text("Green tea")
    context.close()
