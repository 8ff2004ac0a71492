"""A browser for tests of pages: an installed Chromium, driven by Playwright, which is installed
beside `tillgate[testing]`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_ARGUMENTS: Final = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run"),
    # no calls to its maker
    *(
        "--disable-quic",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ),
)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run a Chromium without a window; skip the test without one, or fail if CI=true.

    Close it before other tests run: the driver's event loop, which runs in this thread, would
    confuse them.
    """
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "needs chromium on this machine",
        )
    with pytest.MonkeyPatch.context() as environment, sync_playwright() as playwright:
        # Tests may use the database as usual: the event loop is in their thread, but none of their
        # code runs in it.
        environment.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
