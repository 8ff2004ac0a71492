"""The example shop running as `make demo` runs it, a browser, and the promises that hold on every
page and after every test.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

# ships no types
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect

from example_shop import demo
from tests.browser.conftest import ARTEFACTS
from tests.browser.shop.holdings import Ledger
from tests.browser.shop.visitors import Hand, Mouse, Shopper

ROOT: Final = Path(__file__).parents[3]
DESKTOP: Final[dict[str, Any]] = {"viewport": {"width": 1280, "height": 900}}
PHONE: Final[dict[str, Any]] = {
    "viewport": {"width": 390, "height": 844},
    "is_mobile": True,
    "has_touch": True,
    "user_agent": "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0 Mobile "
    "Safari/537.36",
}
_DEADLINE_MS: Final = 15_000

_NUMBERS_AND_KEYS: Final = re.compile(r"\d+|\b[\w-]{16,}")
"""The differences of one page from one visit to the next."""

# Oscar's migrations take longer than all the tests; `make demo ONCE=1` goes through them.
_PREPARE: Final = """
import sys
import django
django.setup()
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from example_shop import demo
settings.MIGRATION_MODULES = {app.label: None for app in apps.get_app_configs()}
call_command("migrate", run_syncdb=True, verbosity=0)
demo._prepare(sys.argv[1])
"""


OSCARS_OWN: Final = (
    ".navbar",  # a form is in a list of links
    ".breadcrumb",  # grey on grey
    ".nav-tabs",  # a list of tabs without tabs
)
"""Parts of Oscar's dashboard that are not accessible; only its staff see them, and we cannot change
them.
"""

_OSCARS_NOISE: Final = "oscar.dashboard.orders.initTable is not a function"
"""The dashboard's page of an order calls this, and Oscar 4.2 has it nowhere."""


@dataclass(frozen=True, slots=True)
class Running:
    """The addresses of the shop's processes, and the staff who may enter the dashboard."""

    shop: str
    gateway: str
    database: Path
    password: str


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Shop, gateway and worker, started once for all tests here, with a database of their own."""
    folder, password = tmp_path_factory.mktemp("shop"), secrets.token_hex(4)
    shop_port, gateway_port = demo._free_port(), demo._free_port()
    found = Running(
        f"http://127.0.0.1:{shop_port}",
        f"http://127.0.0.1:{gateway_port}",
        folder / "shop.sqlite3",
        password,
    )
    environment = {
        "DJANGO_SETTINGS_MODULE": "example_shop.settings",
        "SHOP_VAR": str(folder),
        "SHOP_PUBLIC_URL": found.shop,
        "SHOP_GATEWAY_URL": found.gateway,
    }
    prepare = [sys.executable, "-c", _PREPARE, password]
    done = subprocess.run(
        prepare,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    commands = demo._commands({"shop": shop_port, "gateway": gateway_port})
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with demo._running(commands, quiet=True) as processes:
            demo._wait_for(processes, {"shop": found.shop, "gateway": found.gateway})
            yield found
            assert [process.ended() for process in processes.values()] == [None] * len(processes), (
                "a process of the shop has died"
            )


class Shop:
    """The example shop as its visitors meet it. The tests look at every page; they hear every word
    of the console and every request.
    """

    def __init__(self, browser: Browser, running: Running, last_polled_at: set[str]) -> None:
        self.browser, self.running, self._looked_at = browser, running, last_polled_at
        self.ledger = Ledger(running.database, running.gateway)
        self.errors: list[str] = []
        self._contexts: list[BrowserContext] = []
        self._hosts = {urlsplit(running.shop).netloc, urlsplit(running.gateway).netloc}

    def open(self, path: str = "", **options: Any) -> Page:
        """Open a page of the shop in a browser of its own."""
        context = self.browser.new_context(base_url=self.running.shop, **{**DESKTOP, **options})
        self._contexts.append(context)
        context.set_default_timeout(_DEADLINE_MS)
        context.on("request", self._see_request)
        context.on("console", self._hear)
        context.on(
            "weberror",
            lambda error: self._note(str(error.error), error.page.url if error.page else ""),
        )
        page = context.new_page()
        if path:
            page.goto(path)
        return page

    def shopper(
        self,
        hand: Hand | None = None,
        *,
        album: str = "",
        has_script: bool = True,
        **options: Any,
    ) -> Shopper:
        """Let a visitor in; with an album, each page is kept as a picture. The tests cannot look
        into pages without script.
        """

        def look(page: Page, name: str) -> None:
            if has_script:
                self.look(page, f"{album}-{name}" if album else "")

        return Shopper(self.open(java_script_enabled=has_script, **options), hand or Mouse(), look)

    def staff(self, path: str, **options: Any) -> Page:
        """Log in to the dashboard, and open a page of it."""
        page = self.open("/dashboard/login/", **options)
        # the fields of Oscar's page have no labels
        page.locator("[name=username]").fill(demo._STAFF)
        page.locator("[name=password]").fill(self.running.password)
        page.locator("[name=password]").press("Enter")
        expect(page).to_have_url(re.compile("/dashboard/$"))
        page.goto(path)
        return page

    def _see_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https") and address.netloc not in self._hosts:
            self.errors.append(f"{request.frame.url} asks another host: {request.url}")

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(
                message.text,
                message.page.url if message.page else message.location.get("url", ""),
            )

    def _note(self, error: str, url: str) -> None:
        if not ("/dashboard/orders/" in url and _OSCARS_NOISE in error):
            self.errors.append(f"{error} ({url})")

    def look(self, page: Page, picture: str = "", *, beside: Sequence[str] = ()) -> None:
        """Demand that a page is accessible, except for the parts that some selectors exclude, and
        fits its window; keep a picture if wanted.
        """
        if picture:
            self.keep(page, picture)
        self._must_be_accessible(page, beside)
        too_wide = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth",
        )
        assert too_wide <= 0, f"{page.url} is {too_wide} pixels too wide"

    def _must_be_accessible(self, page: Page, beside: Sequence[str]) -> None:
        alike = f"{page.viewport_size} {beside} {_NUMBERS_AND_KEYS.sub('', page.content())}"
        if alike in self._looked_at:
            return
        context = {"exclude": [[selector] for selector in beside]} if beside else None
        faults = [
            fault
            for fault in Axe().run(page, context).response["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
        shown = [
            f"{page.url}: {fault['id']}: {fault['help']}: "
            f"{[node['html'][:200] for node in fault['nodes']]}"
            for fault in faults
        ]
        assert not shown, "\n".join(shown)
        self._looked_at.add(alike)

    def keep(self, page: Page, name: str) -> None:
        """Keep a picture of a whole page."""
        ARTEFACTS.mkdir(exist_ok=True)
        slug = re.sub(r"[^a-z]+", "-", name.lower()).strip("-")
        page.screenshot(path=ARTEFACTS / f"shop-{slug}.png", full_page=True, animations="disabled")

    def close(self) -> None:
        """Close every browser that was opened."""
        for context in self._contexts:
            context.close()


@pytest.fixture(scope="package")
def last_polled_at() -> set[str]:
    """The pages that were found accessible; the same page again is the same."""
    return set()


@pytest.fixture
def shop(chromium: Browser, running: Running, last_polled_at: set[str]) -> Iterator[Shop]:
    """The shop, whose pages stay without faults, and whose books agree with the gateway's in the
    end.
    """
    visited = Shop(chromium, running, last_polled_at)
    yield visited
    visited.close()
    assert not visited.errors
    visited.ledger.must_agree()
