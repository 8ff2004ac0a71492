"""The App's page: its frame, its readers, and its content."""

from __future__ import annotations

import re
import time
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from tests.double import SaleorDouble, forged_key
from tests.storefront import RETURN_URL
from tillgate import GatewayProfile, Method, hooks
from tillgate.sandbox import PUBLISHED_TEST_TOKEN
from tillgate.testing.world import World
from tillgate_saleor.models import Installation

DATA = {"method": "alipay", "returnUrl": RETURN_URL}


def page(api_url: str) -> Any:
    return Client().get(
        "/app/",
        {"saleorApiUrl": api_url, "domain": "x", "theme": "light", "id": "QXBwOjE="},
    )


def content(saleor: SaleorDouble, token: str | None = None, query: str = "", **headers: str) -> Any:
    signed = {
        "Authorization": f"Bearer {saleor.page_token() if token is None else token}",
        "Saleor-Api-Url": saleor.api_url,
    }
    return Client(enforce_csrf_checks=True).post(
        f"/app/content{query}",
        headers={**signed, **headers},
    )


def policy(answer: Any) -> dict[str, str]:
    return dict(
        part.strip().partition(" ")[::2] for part in answer["Content-Security-Policy"].split(";")
    )


# Framing ------------------------------------------------------------------------------------------


def test_only_own_saleor_may_frame_page(saleor: SaleorDouble) -> None:
    answer = page(saleor.api_url)
    assert answer.status_code == 200
    assert policy(answer)["frame-ancestors"] == saleor.origin
    assert "X-Frame-Options" not in answer


def test_only_configured_dashboards_may_frame_page(
    saleor: SaleorDouble,
    settings: Any,
) -> None:
    dashboards = ["https://dashboard.shop.example", "http://127.0.0.1:9000"]
    settings.TILLGATE_SALEOR = {"SALEORS": {saleor.origin: {"DASHBOARDS": dashboards}}}
    answer = page(saleor.api_url)
    assert policy(answer)["frame-ancestors"] == " ".join(dashboards)
    assert all(origin in answer.content.decode() for origin in dashboards), (
        "the script hears no other"
    )


@pytest.mark.parametrize(
    "api_url",
    ["", "https://elsewhere.example/graphql/", "x; frame-ancestors *", "\r\nX: y"],
)
def test_a_saleor_that_nobody_knows_frames_nothing(api_url: str, saleor: SaleorDouble) -> None:
    answer = page(api_url)
    assert answer.status_code == 404
    assert policy(answer)["frame-ancestors"] == "'none'"
    assert "<script" not in answer.content.decode()


def test_saleor_without_app_frames_nothing(
    double: SaleorDouble,
    world: World,
) -> None:
    """It is allowed but has not installed the app."""
    assert policy(page(double.api_url))["frame-ancestors"] == "'none'"


def test_page_has_no_data_or_scripts(
    saleor: SaleorDouble,
) -> None:
    """Scripts and styles come from its own files, and no secret is in it."""
    answer = page(saleor.api_url)
    rules = policy(answer)
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    text = answer.content.decode()
    assert not re.search(r"<script(?![^>]*(src=|application/json))|<style|\son\w+=|style=", text)
    for secret in ("200043", PUBLISHED_TEST_TOKEN):
        assert secret not in text
    for path in re.findall(r'(?:href|src)="([^"]+)"', text):
        assert Client().get(path).status_code == 200
    assert Client().get("/app/assets/settings.py").status_code == 404


# Permission ---------------------------------------------------------------------------------------


def test_staff_with_the_dashboards_token_see_it(saleor: SaleorDouble) -> None:
    answer = content(saleor)
    assert answer.status_code == 200
    assert "200043" in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"exp": None},
        {"iss": "https://elsewhere.example/graphql/"},
        {"iss": None},
        {"app": "QXBwOjk5OQ=="},
        {"app": None},
        {"type": "access"},
        {"type": None},
        {"nbf": 9_999_999_999},
        {"iat": 9_999_999_999},
        {"permissions": "HANDLE_PAYMENTS"},
        {"permissions": {"HANDLE_PAYMENTS": True}},
        {"permissions": ["HANDLE_PAYMENTS", 1]},
        {"permissions": None},
        {"type": ["thirdparty"]},
    ],
    ids=str,
)
def test_misdirected_or_untimely_token_is_refused(
    changes: dict[str, Any],
    saleor: SaleorDouble,
) -> None:
    """A token must be for this app and valid now."""
    answer = content(saleor, saleor.page_token(**changes))
    assert answer.status_code == 401
    assert b"200043" not in answer.content


@pytest.mark.parametrize(("claim", "name"), [("app", "app_id"), ("iss", "api_url")])
def test_token_for_several_recipients_is_refused(
    claim: str,
    name: str,
    saleor: SaleorDouble,
) -> None:
    """It names several apps or Saleors."""
    several: dict[str, Any] = {claim: [getattr(Installation.objects.get(), name), "another"]}
    assert content(saleor, saleor.page_token(**several)).status_code == 401


@pytest.mark.parametrize("seconds", [-240, -2, 2, 240])
def test_small_clock_difference_refuses_no_staff(
    seconds: int,
    saleor: SaleorDouble,
) -> None:
    theirs = int(time.time()) + seconds
    assert content(saleor, saleor.page_token(iat=theirs, exp=theirs + 30)).status_code == 200


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "é"])
def test_what_is_no_token_is_refused(token: str, saleor: SaleorDouble) -> None:
    assert content(saleor, token).status_code == 401


def test_token_of_other_key_is_refused(saleor: SaleorDouble) -> None:
    forger = forged_key(saleor)
    assert content(saleor, saleor.page_token(forger)).status_code == 401


def test_a_webhooks_signature_is_no_token(saleor: SaleorDouble) -> None:
    assert content(saleor, saleor.sign(b'{"app": "x"}')).status_code == 401


def test_staff_without_payment_permission_see_nothing(saleor: SaleorDouble) -> None:
    answer = content(saleor, saleor.page_token(permissions=[]))
    assert answer.status_code == 403
    assert b"200043" not in answer.content


def test_a_token_of_another_saleor_is_refused(saleor: SaleorDouble) -> None:
    answer = content(saleor, **{"Saleor-Api-Url": "https://elsewhere.example/graphql/"})
    assert answer.status_code == 401


def test_after_it_was_uninstalled_nobody_sees_it(saleor: SaleorDouble) -> None:
    from tillgate_saleor.installing import uninstall

    token = saleor.page_token()
    uninstall(Installation.objects.get())
    assert content(saleor, token).status_code == 401


def test_a_get_shows_nothing(saleor: SaleorDouble) -> None:
    assert Client().get("/app/content").status_code == 405


# Content ------------------------------------------------------------------------------------------


class Outline(HTMLParser):
    """Hears a page as a screen reader does."""

    def __init__(self) -> None:
        super().__init__()
        self.headings, self.labels, self.ids, self.links = (
            list[str](),
            set[str](),
            set[str](),
            list[dict[str, str | None]](),
        )
        self._in_heading = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.ids |= {given["id"] or ""} if "id" in given else set()
        self.labels |= {given["aria-labelledby"] or ""} if "aria-labelledby" in given else set()
        self._in_heading = tag in ("h1", "h2")
        if tag == "a":
            self.links.append(given)
        if tag == "th":
            assert given.get("scope") in ("col", "row")

    def handle_data(self, data: str) -> None:
        if self._in_heading and data.strip():
            self.headings.append(data.strip())
            self._in_heading = False


def test_channels_are_shown_with_account_and_methods(saleor: SaleorDouble, settings: Any) -> None:
    channels = {"asia": {"PAYMENT_METHODS": ["gcash", "dana"]}, "gone": {"ACCOUNT": "nobody"}}
    settings.TILLGATE_SALEOR = {
        "SALEORS": {saleor.origin: {"STOREFRONTS": ["http://testserver"], "CHANNELS": channels}},
    }
    saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    text = content(saleor).content.decode()
    for shown in (
        "asia",
        "GCash",
        "DANA",
        "default-channel",
        "every other",
        "200043",
        "play money",
        "not configured",
    ):
        assert shown in text
    assert PUBLISHED_TEST_TOKEN not in text


def test_other_gateways_account_shows_own_methods(
    saleor: SaleorDouble,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is shown without a merchant number."""
    beads = Method(code="beads", label="Glass beads")
    toy = GatewayProfile(
        name="toy",
        base_url="https://toy.example",
        currencies=("USD",),
        methods=(beads, Method(code="checkout")),
    )
    settings.TILLGATE = {
        **settings.TILLGATE,
        "ACCOUNTS": {"default": {"DIALECT": toy, "TOKEN": "a-key"}},
    }
    monkeypatch.setattr(hooks, "expect_gateway", lambda _: None)  # its plugin is installed
    text = content(saleor).content.decode()
    assert "default: https://toy.example" in text
    assert "Glass beads, Card or another way to pay" in text
    _, said = saleor.gateway_initialize(saleor.checkout(Decimal("19.90")))
    assert said["data"]["methods"] == [
        {"id": "beads", "name": "Glass beads"},
        {"id": "checkout", "name": "Card or another way to pay"},
    ]


def test_open_review_links_to_admin(
    saleor: SaleorDouble,
    world: World,
) -> None:
    _, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    world.sandbox.control.fault("wrong_amount", occasion="query")
    world.time.advance(seconds=10)
    world.run_worker()
    (reason,) = world.reviews()
    assert reason == "amount-mismatch"
    text = content(saleor).content.decode()
    outline = Outline()
    outline.feed(text)
    assert outline.headings == ["Needs review", "Channels"]
    assert outline.labels <= outline.ids
    assert said["pspReference"] in text
    assert outline.links[0]["href"] == "http://testserver/admin/tillgate/review/"
    assert re.fullmatch(
        r"http://testserver/admin/tillgate/review/\d+/change/",
        outline.links[1]["href"] or "",
    )
    assert all(link["rel"] == "noopener" for link in outline.links)


def find(saleor: SaleorDouble, text: str) -> str:
    headers = {
        "Authorization": f"Bearer {saleor.page_token()}",
        "Saleor-Api-Url": saleor.api_url,
    }
    answer = Client().post("/app/content", {"q": text}, headers=headers)
    assert answer.status_code == 200
    return answer.content.decode()


def test_found_payment_shows_facts_and_history(saleor: SaleorDouble, world: World) -> None:
    """A clerk pastes the pspReference of a transaction, and reads all that is known of it."""
    _, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    world.sandbox.control.pay(said["pspReference"])
    world.time.advance(seconds=10)
    world.run_worker()
    text = find(saleor, f" {said['pspReference']} ")
    outline = Outline()
    outline.feed(text)
    assert outline.headings[0] == "Payments found"
    assert outline.labels <= outline.ids
    assert "Payment method" in text
    assert "Paid USD 19.90 with Alipay" in text


@pytest.mark.parametrize("text", ["x", "x" * 10_000, "' OR 1=1 --", "<script>alert(1)</script>"])
def test_search_without_result_says_so(text: str, saleor: SaleorDouble, world: World) -> None:
    saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
    found = find(saleor, text)
    assert "No payment was found." in found
    assert "<script>alert" not in found


def test_payment_of_other_saleor_is_not_found(
    saleor: SaleorDouble, world: World, settings: Any
) -> None:
    other = SaleorDouble()
    try:
        settings.TILLGATE_SALEOR = {
            "SALEORS": {saleor.origin: {"STOREFRONTS": ["http://testserver"]}, other.origin: {}},
        }
        assert other.install()[0] == 200
        _, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
        assert "No payment was found." not in find(saleor, said["pspReference"])
        assert "No payment was found." in find(other, said["pspReference"])
    finally:
        other.close()


def test_reviews_of_other_saleor_stay_hidden(
    saleor: SaleorDouble,
    world: World,
    settings: Any,
) -> None:
    other = SaleorDouble()
    try:
        settings.TILLGATE_SALEOR = {
            "SALEORS": {saleor.origin: {"STOREFRONTS": ["http://testserver"]}, other.origin: {}},
        }
        assert other.install()[0] == 200
        _, said = saleor.initialize(saleor.checkout(Decimal("19.90")), "key", DATA)
        world.sandbox.control.pay(said["pspReference"])
        world.sandbox.control.fault("wrong_amount", occasion="query")
        world.time.advance(seconds=10)
        world.run_worker()
        assert said["pspReference"] in content(saleor).content.decode()
        assert "Nothing needs review" in content(other).content.decode()
    finally:
        other.close()


def test_the_connection_is_tested_when_asked_for(saleor: SaleorDouble, world: World) -> None:
    before = world.queries()
    assert "Connection" not in content(saleor).content.decode()
    assert world.queries() == before
    assert "works" in content(saleor, query="?test=1").content.decode()
    world.configure({"TOKEN": "f" * 33})
    assert "does not work" in content(saleor, query="?test=1").content.decode()


def test_a_page_in_german_is_german(saleor: SaleorDouble) -> None:
    assert "Kanäle" in content(saleor, **{"Accept-Language": "de"}).content.decode()
