"""The guest's order page, while it waits and after its end, and the pay link after the end, in a
browser, in four languages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from oscar.core.loading import get_model
from playwright.sync_api import Browser, expect

from tests.looking import OSCARS_BLUE, chromium, look, new_context  # noqa: F401  # a fixture
from tests.shopper import Shopper
from tillgate import shop
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
OURS = "#tillgate-order, #main"


@IN_FOUR_LANGUAGES
def test_guest_reads_what_waits_and_what_ended(
    chromium: Browser,  # noqa: F811
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    settings: Any,
    language: str,
    kept: str,
    ended: str,
) -> None:
    """The keyboard leads from the end to the items of the order."""
    settings.LANGUAGES = [(code, code) for code in ("en", "de", "ja", "ur")]
    shopper.get(shopper.buys(product("12.50"))["Location"])
    number = get_model("order", "Order").objects.get().number
    settings.LANGUAGE_CODE = language
    context = new_context(chromium, live_server.url, shopper.client)
    page = context.new_page()
    page.goto(orders.status_url(number))
    ours = page.locator("#tillgate-order")
    for text in (kept, "Green tea", "12"):
        expect(ours).to_contain_text(text)
    look(page, f"order-waits-{language}", OURS, OSCARS_BLUE)
    world.a_day_passes()
    page.goto(orders.status_url(number))
    expect(ours).to_contain_text(ended)
    look(page, f"order-ended-{language}", OURS, OSCARS_BLUE)
    page.goto(shop.pay_path("oscar", number))
    expect(page.locator("main")).to_contain_text(ended)
    look(page, f"pay-ended-{language}", OURS, OSCARS_BLUE)
    again = page.locator("main a.button").first
    again.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#tillgate-change")).to_contain_text("Green tea")
    context.close()
