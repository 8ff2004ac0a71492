"""The payment page for the shopper and the pages for the developer, as a browser without JavaScript
gets them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tillgate.sandbox import MAGIC, PUBLISHED_TEST_TOKEN, Options, Sandbox, pages
from tillgate.sandbox.masking import shown

if TYPE_CHECKING:
    from tests.sandbox.conftest import HttpMerchant

REFERENCE = "100017-7Q2MZK4RXW3DA"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def payment_page(http: HttpMerchant, **changes: str) -> str:
    """Create a payment and return the path of its payment page."""
    address: str = http.pay(**changes)[1]["result"]["cashierUrl"]
    return urlsplit(address).path


class Outline(HTMLParser):
    """Collects the parts that make a page usable without a mouse or a picture of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


# Failure first.


@pytest.mark.parametrize("path", ["/cashier/0000", "/cashier/", "/transactions/1", "/nothing"])
def test_an_unknown_address_is_a_readable_404(
    sandbox: Sandbox,
    http: HttpMerchant,
    path: str,
) -> None:
    status, headers, body = http.request("GET", path)
    assert (status, headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"<h1>" in body


@pytest.mark.parametrize("form", [b"", b"decision=steal", b"decision=", b"other=pay"])
def test_form_without_decision_changes_nothing(
    sandbox: Sandbox,
    http: HttpMerchant,
    form: bytes,
) -> None:
    assert http.request("POST", payment_page(http), form, FORM)[0] == 400
    assert http.query()[1]["result"]["status"] == "pending"


def test_what_is_settled_cannot_be_paid_again(sandbox: Sandbox, http: HttpMerchant) -> None:
    path = payment_page(http)
    http.request("POST", path, b"decision=decline", FORM)
    status, _, body = http.request("POST", path, b"decision=pay", FORM)
    assert status == 409
    assert "Not paid" in body.decode()
    assert http.query()[1]["result"]["status"] == "failed"


@pytest.mark.parametrize("decision", ["pay", "decline"])
def test_double_click_is_one_decision(
    sandbox: Sandbox,
    http: HttpMerchant,
    decision: str,
) -> None:
    """Both clicks lead to the same place."""
    path = payment_page(http)
    first, second = (
        http.request("POST", path, f"decision={decision}".encode(), FORM) for _ in range(2)
    )
    assert (first[0], first[1]["location"]) == (second[0], second[1]["location"])
    assert sandbox.service.outbox.count == (decision == "pay")


def test_expired_page_has_no_buttons(sandbox: Sandbox, http: HttpMerchant) -> None:
    """It says that it has expired."""
    path = payment_page(http)
    sandbox.control.expire(REFERENCE)
    page = http.request("GET", path)[2].decode()
    assert "Time is up" in page
    assert "<button" not in page


def test_what_a_merchant_writes_cannot_become_markup(sandbox: Sandbox, http: HttpMerchant) -> None:
    path = payment_page(http, description="<script>alert(1)</script>", reference='"><img src=x>')
    for page in (path, "/", "/transactions/" + sandbox.service.transactions()[0].transaction_no):
        html = http.request("GET", page)[2].decode()
        assert "<script" not in html
        assert "<img" not in html


# Promises.


@pytest.mark.parametrize(
    ("decision", "status"),
    [("pay", "success"), ("decline", "failed"), ("leave", "pending")],
)
def test_each_button_acts_and_returns_shopper(
    sandbox: Sandbox,
    http: HttpMerchant,
    decision: str,
    status: str,
) -> None:
    code, headers, _ = http.request(
        "POST",
        payment_page(http),
        f"decision={decision}".encode(),
        FORM,
    )
    number = sandbox.service.transactions()[0].transaction_no
    assert code == 303
    assert (
        headers["location"]
        == f"https://shop.example/back?amount=12.50&status={status}&no={number}&reference={REFERENCE}"
    )
    assert http.query()[1]["result"]["status"] == status


def test_unreplaced_macro_reaches_browser_unchanged(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    headers = http.request("POST", payment_page(http, amount="13.72"), b"decision=pay", FORM)[1]
    assert headers["location"].startswith(
        "https://shop.example/back?amount={amount}&status={status}",
    )


def test_shopper_not_sent_back_is_told(sandbox: Sandbox, http: HttpMerchant) -> None:
    status, headers, body = http.request(
        "POST",
        payment_page(http, amount="13.73"),
        b"decision=pay",
        FORM,
    )
    assert (status, headers.get("location")) == (200, None)
    assert "not to send you back" in body.decode()


def test_payment_page_shows_amount_payee_deadline(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    goods = '[{"goods_name":"Green tea, 250 g","quantity":"2"}]'
    path = payment_page(
        http,
        amount="1234.50",
        description="Order 17",
        goodsInfo=goods,
        vendor="gcash",
        timeout="30",
    )
    html = http.request("GET", path)[2].decode()
    for text in (
        "Test shop",
        "1,234.50",
        REFERENCE,
        "Order 17",
        "Green tea, 250 g",
        "\u00d7 2",
        "GCash",
        "29 min",
        "No real money moves",
    ):
        assert text in html


def test_payment_page_is_accessible_without_script(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    """It can be used by keyboard and by screen reader."""
    html = http.request("GET", payment_page(http))[2].decode()
    outline = Outline(html)
    assert [outline.count(tag) for tag in ("h1", "main", "form", "button", "title", "script")] == [
        1,
        1,
        1,
        3,
        1,
        0,
    ]
    assert ("html", {"lang": "en"}) in outline.tags
    ids = {attributes["id"] for _, attributes in outline.tags if "id" in attributes}
    for _, attributes in outline.tags:
        for reference in ("aria-labelledby", "aria-describedby"):
            assert set((attributes.get(reference) or "").split()) <= ids


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "ground", "least"),
    [
        *(
            (ink, ground, 4.5)
            for ink in ("ink", "soft", "brand", "bad", "good")
            for ground in ("ground", "card")
        ),
        *((f"{word}", f"{word}-soft", 4.5) for word in ("good", "bad", "wait")),
        *((ink, "brand-soft", 4.5) for ink in ("ink", "soft")),
        ("ink", "line", 4.5),
        ("brand-ink", "brand", 4.5),
        ("banner-ink", "banner", 4.5),
        ("field", "card", 3.0),
    ],
)
def test_every_colour_has_enough_contrast(
    scheme: str,
    ink: str,
    ground: str,
    least: float,
) -> None:
    """The contrast of WCAG 2.2, level AA: 4.5 for text, 3 for the edge of a button."""
    css = (Path(pages.__file__).parent / "static" / "sandbox.css").read_text()
    blocks = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\n *\}", css, re.DOTALL)
    ]
    colours = blocks[0] if scheme == "light" else {**blocks[0], **blocks[1]}
    lighter, darker = sorted((_luminance(colours[ink]), _luminance(colours[ground])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= least


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_pages_are_never_cached_or_framed(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    """They tell other sites nothing either."""
    for path in (payment_page(http), "/"):
        headers = http.request("GET", path)[1]
        assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_payment_page_lists_magic_amounts(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    """They are not listed when they are switched off."""
    path = payment_page(http)
    html = http.request("GET", path)[2].decode()
    assert all(f"{cents / 100:.2f}</th>" in html for cents in MAGIC)
    sandbox.control.set_options({"magic_amounts": False})
    assert "Magic amounts" not in http.request("GET", path)[2].decode()
    sandbox.control.set_options({"magic_amounts": True})


def test_ledger_lists_everything_that_happened(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    """It lists transactions, calls without a transaction, faults and the seed."""
    http.pay()
    http.query("NOBODY")
    sandbox.control.fault("lost_response", times=3)
    html = http.request("GET", "/")[2].decode()
    for text in (
        REFERENCE,
        "Calls that belong to no transaction",
        "NOBODY",
        "lost_response",
        "\u00d7 3",
        str(sandbox.seed),
    ):
        assert text in html
    assert PUBLISHED_TEST_TOKEN not in html


def test_ledger_refreshes_only_at_offered_pace(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    """It does so only when asked."""
    for query, refreshes in (
        ("", False),
        ("?refresh=5", True),
        ("?refresh=0", False),
        ("?refresh=x", False),
    ):
        assert ('http-equiv="refresh"' in http.request("GET", f"/{query}")[2].decode()) is refreshes


def test_timeline_tells_everything_with_signatures_masked(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    http.pay(ipnUrl="http://127.0.0.1:9/ipn")
    sandbox.control.pay(REFERENCE)
    assert sandbox.control.wait_for_notifications()
    http.refund("2.50")
    http.query()
    html = http.request("GET", f"/transactions/{REFERENCE}")[2].decode()
    for text in (
        "secure-pay",
        "the shopper chose pay",
        "payment notification 1, send 1",
        "send 2 follows",
        "refunded 2.50",
        "tran-query",
        "HTTP 200",
    ):
        assert text in html
    assert "verifySign" in html
    assert not re.search(r"verifySign\W{1,12}[0-9a-f]{32}", html)


@pytest.mark.parametrize(
    ("body", "readable"),
    [
        (
            b'{"amount":12.50,"verifySign":"0123456789abcdef0123456789abcdef"}',
            '{"amount":12.50,\n"verifySign":"0123…"}',
        ),
        (
            b"amount=12.50&verifySign=0123456789abcdef0123456789abcdef",
            "amount=12.50\nverifySign=0123…",
        ),
        (
            b"https://shop.example/ipn?a=b%20c&verifySign=0123456789abcdef",
            "https://shop.example/ipn?a=b%20c\nverifySign=0123…",
        ),
        (b'["a"]', '["a"]'),
        (b"<html>", "<html>"),
        (b'{"verifySign":"0123456789abcdef', '{"verifySign":"0123…'),
        (b"\xff", "\ufffd"),
    ],
)
def test_bodies_are_shown_readably_and_without_signatures(body: bytes, readable: str) -> None:
    assert shown(body) == readable


@pytest.mark.parametrize("is_on", [True, False])
def test_magic_amounts_mentioned_only_where_working(
    merchant_at: Callable[[str], HttpMerchant],
    is_on: bool,
) -> None:
    with Sandbox(Options(seed=1, magic_amounts=is_on)) as running:
        http = merchant_at(running.base_url)
        for path in ("/", payment_page(http)):
            assert (b"Magic amounts" in http.request("GET", path)[2]) == is_on


@pytest.mark.parametrize(
    ("amount", "has_hint"), [("13.74", True), ("13.76", True), ("1.00", False)]
)
def test_slow_money_tells_how_to_move_the_clock(
    sandbox: Sandbox,
    http: HttpMerchant,
    amount: str,
    has_hint: bool,
) -> None:
    path = payment_page(http, amount=amount)
    http.request("POST", path, b"decision=pay", FORM)
    for address in (path, "/"):
        page = http.request("GET", address)[2].decode()
        command = f"application/json&#39; {sandbox.base_url}/_control/clock"
        assert (command.replace("&#39;", "'") in page) is has_hint
