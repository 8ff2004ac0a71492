"""A shopper's browser between the storefront and the payment page."""

from __future__ import annotations

import functools
from typing import Final
from urllib.parse import urljoin

import httpx

from tests.real.saleor import until

_MOST_REDIRECTS: Final = 5


def decides(payment_page: str, decision: str, home: str) -> str:
    """Press `pay`, `decline` or `leave` on the payment page, and return the address below `home` at
    which the shopper arrives.
    """
    with httpx.Client(timeout=30.0) as browser:
        to = _led_from(browser.post(payment_page, data={"decision": decision}))
        for _ in range(_MOST_REDIRECTS):
            if to.startswith(home):
                return to
            # In between there may be a page that says that the payment is being confirmed, and that
            # looks again.
            to = until(
                "the shopper is led on",
                functools.partial(lambda page: _led_from(browser.get(page)), to),
            )
        raise AssertionError(f"redirected for ever, at last to {to}")


def pays_again(payment_page: str) -> None:
    """Press pay on the payment page of an order that is paid, and wait until the page, which does
    not lead on, shows the outcome.
    """
    with httpx.Client(timeout=30.0, follow_redirects=True) as browser:
        page = browser.post(payment_page, data={"decision": "pay"}).url
        until("the shopper is told", lambda: "paid twice" in browser.get(page).text)


def _led_from(answer: httpx.Response) -> str:
    """Return the address that a page leads to, or nothing when it stays."""
    assert answer.is_redirect or answer.is_success, (
        f"{answer.url} answered HTTP {answer.status_code}"
    )
    return (
        urljoin(str(answer.url), answer.headers.get("location", "")) if answer.is_redirect else ""
    )


def pays_and_closes_the_tab(payment_page: str) -> None:
    """Press pay on the payment page and follow it nowhere."""
    with httpx.Client(timeout=30.0) as browser:
        assert browser.post(payment_page, data={"decision": "pay"}).is_redirect
