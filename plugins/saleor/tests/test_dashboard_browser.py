"""The App's page in a browser, in the frame of a dashboard: the handshake, the button, and the
senders that it ignores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

# ships no types
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, ConsoleMessage, FrameLocator, Page, expect

from tests.double import SaleorDouble
from tests.test_paying import TOTAL
from tillgate.testing.browsers import running_chromium
from tillgate.testing.world import World

ARTEFACTS = Path(__file__).parents[3] / "artefacts"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for these tests, closed before any other runs: its event loop would confuse
    them.
    """
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser, live_server: Any, saleor: SaleorDouble) -> Iterator[Page]:
    """Return a page of a browser; the dashboard of the Saleor shows the App's page of a live
    service.
    """
    saleor.page_url = page_url(live_server, saleor)
    context = chromium.new_context(viewport={"width": 740, "height": 760})
    context.set_default_timeout(10_000)
    yield context.new_page()
    context.close()


def page_url(live_server: Any, saleor: SaleorDouble) -> str:
    return f"{live_server.url}/app/?saleorApiUrl={quote(saleor.api_url, safe='')}&theme=light"


def app(page: Page) -> FrameLocator:
    return page.frame_locator("iframe")


def test_dashboards_token_opens_page(
    page: Page,
    saleor: SaleorDouble,
) -> None:
    """The page shows the content that the token allows."""
    complaints: list[str] = []

    def is_ours(message: ConsoleMessage) -> bool:
        return not str(message.location.get("url")).startswith(saleor.origin)

    page.on(
        "console",
        lambda message: (
            complaints.append(message.text)
            if message.type == "error" and is_ours(message)
            else None
        ),
    )
    page.goto(f"{saleor.origin}/dashboard/")
    expect(app(page).get_by_text("Nothing needs review.")).to_be_visible()
    app(page).get_by_role("button", name="Test the connection").click()
    expect(app(page).get_by_text("a signed query was understood")).to_be_visible()
    assert complaints == []
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "saleor-app-page.png", animations="disabled")
    faults = [
        fault["id"]
        for fault in Axe().run(page).response["violations"]
        if fault["impact"] in ("serious", "critical")
    ]
    assert faults == []
    frame = page.frames[1]
    assert (
        frame.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        )
        <= 0
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_review_page_fits_and_is_accessible(
    page: Page,
    saleor: SaleorDouble,
    world: World,
    width: int,
) -> None:
    """It also works by keyboard."""
    checkout = saleor.checkout(TOTAL)
    begun = [
        saleor.initialize(checkout, method, {"method": method})[1]
        for method in ("alipay", "paypal")
    ]
    for said in begun:
        world.sandbox.control.pay(said["pspReference"])
    world.a_day_passes()
    assert world.reviews() == ["second-payment"]
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(f"{saleor.origin}/dashboard/")
    expect(app(page).get_by_text("Paid twice")).to_be_visible()
    frame = page.frames[1]
    faults = [
        (one["id"], one["nodes"][0]["html"][:100])
        for one in Axe().run(frame).response["violations"]
    ]
    assert faults == []
    assert (
        frame.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        )
        <= 0
    )
    app(page).get_by_role("button", name="Show payment").first.click()
    expect(app(page).get_by_role("heading", name="Payments found")).to_be_visible()
    assert [one["id"] for one in Axe().run(frame).response["violations"]] == []
    assert (
        frame.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        )
        <= 0
    )
    app(page).get_by_role("link").last.focus()
    page.keyboard.press("Tab")
    expect(app(page).get_by_role("button", name="Test the connection")).to_be_focused()
    page.keyboard.press("Enter")
    expect(app(page).get_by_text("a signed query was understood")).to_be_visible()
    page.screenshot(
        path=ARTEFACTS / f"saleor-app-page-{width}.png",
        animations="disabled",
        full_page=True,
    )


def test_nobody_else_may_frame_it(page: Page, saleor: SaleorDouble, live_server: Any) -> None:
    stranger = SaleorDouble()
    try:
        stranger.page_url = saleor.page_url
        page.goto(f"{stranger.origin}/dashboard/")
        expect(app(page).get_by_text("Payments")).to_have_count(0)
    finally:
        stranger.close()


def test_token_from_elsewhere_is_refused(
    page: Page,
    saleor: SaleorDouble,
) -> None:
    """A page that is opened without a frame, or sends itself a message, has no dashboard."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(saleor.page_url)
    page.evaluate(
        "token => window.postMessage({ type: 'handshake', payload: { token } }, '*')",
        saleor.page_token(),
    )
    page.wait_for_timeout(300)
    assert not [url for url in asked if url.endswith("/app/content")]
    expect(page.get_by_role("status")).to_have_text("Waiting for the dashboard…")


def test_a_token_that_is_refused_is_told(
    page: Page,
    saleor: SaleorDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Callable[..., str] = saleor.page_token
    monkeypatch.setattr(saleor, "page_token", lambda: real(permissions=[]))
    page.goto(f"{saleor.origin}/dashboard/")
    expect(
        app(page).get_by_text("Only staff who may handle payments can see this."),
    ).to_be_visible()
