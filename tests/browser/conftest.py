"""A browser, a live shop and the faults that no page may have. Skipped by name where there is no
chromium; in CI that is a failure.

`pytest tests/browser --update-images` takes the pictures of the documentation again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# ships no types
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page

# the same shop, gateway and clock as in the tests without a browser
from tests.django.conftest import (  # noqa: F401
    World,
    configure,
    database,
    running_sandbox,
    sandbox,
    time_,
    world,
)
from tillgate.django.pages import shoppers
from tillgate.sandbox import Sandbox
from tillgate.testing.browsers import running_chromium

ROOT = Path(__file__).parents[2]
ARTEFACTS = ROOT / "artefacts"
_DEADLINE_MS = 10_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-images",
        action="store_true",
        help="take the pictures in docs/images anew",
    )


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Callable[[Locator, str], None]:
    """Take the picture of a part of a page; with `--update-images` the documentation shows it."""
    folder = (
        ROOT / "docs" / "images"
        if request.config.getoption("--update-images", default=False)
        else ARTEFACTS
    )

    def take(part: Locator, name: str) -> None:
        part.screenshot(path=folder / name, animations="disabled")

    return take


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One browser for all of these tests, closed before any other test runs: its event loop would
    confuse them.
    """
    with running_chromium() as browser:
        yield browser


class Shop:
    """The shop as its visitors and its staff meet it."""

    def __init__(self, browser: Browser, url: str, world: World) -> None:  # noqa: F811
        self.browser, self.url, self.world = browser, url, world
        self.errors: list[str] = []
        self.contexts: list[BrowserContext] = []

    def open(self, path: str, **options: Any) -> Page:
        """Open a page of the shop in a browser of its own, and note everything that the console
        complains about.
        """
        context = self.browser.new_context(base_url=self.url, **options)
        context.set_default_timeout(_DEADLINE_MS)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        if path:
            page.goto(path)
        return page

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.text} ({message.location.get('url')})")

    def admin(self, path: str, **options: Any) -> Page:
        """Open a page of the admin as staff with every permission."""
        staff = User.objects.create_superuser("anna", "anna@shop.example", "correct horse")
        client = Client()
        client.force_login(staff)
        page = self.open("", **options)
        page.context.add_cookies(
            [{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": self.url}],
        )
        page.goto(path)
        return page

    def look(self, page: Page, name: str) -> None:
        """Keep a picture of a page, and demand that it is accessible and fits its window."""
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True, animations="disabled")
        faults = [
            fault
            for fault in Axe().run(page).response["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
        shown = [
            f"{fault['id']}: {fault['help']}: {[node['html'][:200] for node in fault['nodes']]}"
            for fault in faults
        ]
        assert not shown, "\n".join(shown)
        assert page.locator("h1").count() == 1
        too_wide = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        )
        assert too_wide <= 0, f"{name} is {too_wide} pixels too wide"


@pytest.fixture
def shop(
    chromium: Browser,
    live_server: Any,
    world: World,  # noqa: F811
    sandbox: Sandbox,  # noqa: F811
    configure: Callable[..., None],  # noqa: F811
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    """A live shop whose gateway sends real notifications, and whose waiting page is less patient
    than usual.
    """
    settings.ROOT_URLCONF = "tests.browser.urls"
    configure(PUBLIC_URL=live_server.url)
    monkeypatch.setattr(shoppers, "_POLL_SECONDS", 0.3)
    sandbox.control.set_options({"notification_on_paid": True, "notification_on_refund": True})
    visited = Shop(chromium, live_server.url, world)
    yield visited
    for context in visited.contexts:
        context.close()
    sandbox.control.wait_for_notifications()
    sandbox.control.set_options({"notification_on_paid": False, "notification_on_refund": False})
    assert not visited.errors
