"""The world of a shop's tests: the parts that a shop's author relies on and no scenario of ours
happens to use.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpResponse

from tillgate.testing.world import World


class Browser:
    """Answers as a shop whose pay page leads elsewhere, and notes its requests."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, str, Any]]()

    def _answer(self, method: str, path: str, data: Any = None) -> Any:
        self.asked.append((method, path, data))
        status, to = self.answers.pop(0)
        return SimpleNamespace(status_code=status, get=lambda name, default="": to or default)

    def get(self, path: str) -> Any:
        return self._answer("GET", path)

    def post(self, path: str, data: Any = None) -> Any:
        return self._answer("POST", path, data)


def choose(*answers: tuple[int, str]) -> list[tuple[str, str, Any]]:
    browser = Browser(*answers)
    shop: Any = SimpleNamespace(pay_path=lambda key: f"/orders/{key}/pay/?lang=en")
    # the parts that these tests need
    world = World(shop, GATEWAY, time=None, client=browser, configure=None)  # type: ignore[arg-type]
    assert world.choose("7").get("Location") == answers[-1][1]
    return browser.asked[1:]


GATEWAY: Any = SimpleNamespace(
    method="alipay",
    is_payment_page=lambda url: url.startswith("http://127.0.0.1:8181"),
)
PAYMENT_PAGE = (302, "http://127.0.0.1:8181/cashier/1")


@pytest.mark.parametrize(
    ("to", "asked"),
    [
        ("/checkout/?a=1", "/checkout/?a=1"),
        ("http://testserver/checkout/", "/checkout/"),
        ("confirm/", "/orders/7/pay/confirm/"),
        ("../details/?a=1", "/orders/7/details/?a=1"),
        ("?step=2", "/orders/7/pay/?step=2"),
    ],
)
def test_world_follows_redirects_like_browsers(to: str, asked: str) -> None:
    assert choose((302, to), PAYMENT_PAGE) == [("GET", asked, None)]


def test_second_redirect_is_relative_to_first() -> None:
    assert choose((302, "confirm/"), (303, "now/"), PAYMENT_PAGE)[1] == (
        "GET",
        "/orders/7/pay/confirm/now/",
        None,
    )


@pytest.mark.parametrize("status", [307, 308])
def test_method_keeping_redirect_is_posted_again(status: int) -> None:
    assert choose((status, "/checkout/"), PAYMENT_PAGE) == [
        ("POST", "/checkout/", {"method": "alipay"}),
    ]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            b"<head><title>Pay</title></head><main class='a'>\n<h1>Choose</h1> <p role='alert'>It "
            b"isn&#x27;t\n yours.</p></main>",
            "Choose It isn't yours.",
        ),
        (b"<p>Closed.</p>", "Closed."),
    ],
)
def test_missing_payment_page_error_quotes_shop(
    page: bytes,
    said: str,
) -> None:
    shop: Any = SimpleNamespace(pay_path=lambda key: "/pay/", plugin="shop")
    browser: Any = SimpleNamespace(post=lambda path, data: HttpResponse(page, status=409))
    # the parts that this test needs
    world = World(shop, GATEWAY, time=None, client=browser, configure=None)  # type: ignore[arg-type]
    with pytest.raises(
        AssertionError,
        match="^choosing alipay led to HTTP 409, and not to the payment page; the page says: "
        f"{said}",
    ):
        world.pay_page("7")
