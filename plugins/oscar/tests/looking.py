"""A browser, and how a page looks in it: on a telephone and at a desk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

# ships no types
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page

from tillgate.testing.browsers import running_chromium

ARTEFACTS: Final = Path(__file__).parents[3] / "artefacts"
WIDTHS: Final = (390, 1280)
OSCARS_BLUE: Final = frozenset({"color-contrast"})
"""Of Oscar's own links and buttons."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for a module's tests, closed before any other runs: its event loop would confuse
    them.
    """
    with running_chromium() as browser:
        yield browser


def new_context(
    chromium: Browser,
    address: str,
    client: Client | None = None,
    **options: Any,
) -> BrowserContext:
    """Open the browser of nobody, or of somebody who has been in the shop at this address."""
    size = {"width": 1280, "height": 844}
    context = chromium.new_context(base_url=address, **{"viewport": size, **options})
    context.set_default_timeout(10_000)
    # Oscar asks a CDN for jQuery first
    context.route(
        lambda url: "127.0.0.1" not in url and "localhost" not in url,
        lambda route: route.abort(),
    )
    cookies: Any = client.cookies if client else {}
    context.add_cookies(
        [{"name": name, "value": one.value, "url": address} for name, one in cookies.items()],
    )
    return context


def look(
    page: Page,
    name: str,
    within: str | None = None,
    allowed: frozenset[str] = frozenset(),
) -> None:
    """Keep pictures of the page in both widths; demand that it fits, and that the part `within` has
    no fault of accessibility but the allowed ones.
    """
    ARTEFACTS.mkdir(exist_ok=True)
    size = page.viewport_size
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        picture = ARTEFACTS / f"oscar-{name}-{width}.png"
        page.screenshot(path=picture, full_page=True, animations="disabled")
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0, f"{name} is too wide for {width} pixels"
        if within:
            faults = {
                one["id"]: [node["html"][:200] for node in one["nodes"]]
                for one in Axe().run(page, within).response["violations"]
            }
            assert set(faults) <= allowed, (name, width, faults)
    if size:
        page.set_viewport_size(size)
