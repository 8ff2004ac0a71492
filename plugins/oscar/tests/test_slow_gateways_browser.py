"""Slow money on other gateways, in a browser: the shopper takes a voucher, or a debit, on the page
of the imitation of Stripe, and a bank transfer on the fake PayU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.urls import reverse
from playwright.sync_api import Browser, Page, expect

from tests.looking import chromium, look, new_context  # noqa: F401  # a fixture
from tests.shopper import Shopper
from tillgate import hooks, shop
from tillgate.django.models import Payment
from tillgate.testing.gateway_driver import GatewayDriver
from tillgate.testing.world import World

PLUGINS = Path(__file__).parents[2]
IN_FOUR_LANGUAGES = pytest.mark.parametrize("language", ["en", "de", "ja", "ur"])
TRANSFER_BY = {
    "en": "Make the bank transfer by December 20",
    "de": "Überweisen Sie den Betrag bis 20. Dezember",
    "ja": "12月20日までに銀行振込でお支払いください",
    "ur": "دسمبر 20 تک بینک ٹرانسفر کریں",
}


def emulator(plugin: str, module: str) -> Any:
    """Return a module of a gateway's emulator, which stands beside the gateway's plugin."""
    pytest.importorskip(f"tillgate_{plugin}")
    if str(PLUGINS / plugin) not in sys.path:
        sys.path.append(str(PLUGINS / plugin))
    return import_module(f"{plugin}_emulator.{module}")


@pytest.fixture
def gateway() -> str:
    return "stripe"


@pytest.fixture
def shop_gateway(gateway: str, live_server: Any) -> Iterator[GatewayDriver]:
    """The gateway of every test here, with a page to click where it has one."""
    driver = emulator(gateway, "driver")
    if gateway == "payu":
        with driver.FakeDriver() as fake:
            yield fake
        return
    notify = live_server.url + reverse("tillgate:webhook", args=["default"])

    class Clickable(driver.FakeDriver):  # type: ignore[misc, name-defined]
        def __enter__(self) -> Any:
            self.stripe = emulator("stripe", "pages").ClickableStripe(
                merchant="Tea & Co",
                notify=notify,
                secret=driver.SECRETS[1],
            )
            self.stripe.__enter__()
            self.proxy = driver.FaultyProxy(self.stripe.url, driver.CALLS, driver.ALTERED).start()
            return self

    with Clickable() as clickable:
        yield clickable


@pytest.fixture
def page(
    chromium: Browser,  # noqa: F811
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
) -> Iterator[Page]:
    """A browser whose shopper has placed an order, and comes to the payment page."""
    world.configure(PUBLIC_URL=live_server.url)
    way = shopper.buys(product(), method=world.gateway.method)["Location"]
    settings.LANGUAGE_CODE = language
    monkeypatch.setattr("tillgate_oscar.orders.language_of", lambda payment: language)
    context = new_context(chromium, live_server.url, shopper.client)
    tab = context.new_page()
    tab.goto(way)
    yield tab
    context.close()


def see_order(page: Page, world: World, live_server: Any) -> None:
    """Open the shopper's own page of the order."""
    found = shop.find_payment("oscar", reference=Payment.objects.get().reference)
    page.goto(hooks.call_owner("oscar", "tillgate_return_url", payment=found))


def press(world: World, action: str) -> None:
    """Let staff of the gateway press a button in its dashboard; the shop's notification comes."""
    stripe, payment = world.gateway.stripe, Payment.objects.get()  # type: ignore[attr-defined]
    session = stripe.session_of(payment.reference)["id"]
    act, kind = stripe._staff[action]
    act(session)
    headers, body = stripe.signed(stripe.event(kind, session), stripe.secret)
    answer = world.client.post(
        reverse("tillgate:webhook", args=["default"]),
        body,
        content_type="application/json",
        headers=headers,
    )
    assert answer.status_code == 200
    world.run_worker()


def mails(page: Page, *names: str) -> list[str]:
    """Look at the mails in HTML, and return their texts."""
    outbox: list[Any] = mail.outbox
    assert len(outbox) == len(names), [sent.subject for sent in outbox]
    for name, sent in zip(names, outbox, strict=True):
        page.set_content(str(sent.alternatives[0][0]))
        look(page, name)
    return [f"{sent.subject}\n{sent.body}" for sent in outbox]


@IN_FOUR_LANGUAGES
@pytest.mark.parametrize("method", ["Konbini", "Bank transfer"])
def test_stripe_voucher_goes_round(
    page: Page,
    world: World,
    live_server: Any,
    method: str,
    language: str,
) -> None:
    """Taken, mailed, reminded of where it has an end, and paid at last."""
    name = f"stripe-{method.lower()}-{language}".replace(" ", "-")
    page.get_by_role("button", name=method).click()
    step = page.locator("a[href*='/c/pay/']")
    expect(step.first).to_be_visible()
    look(page, f"{name}-return")
    world.run_worker()
    see_order(page, world, live_server)
    expect(step.first).to_be_visible()
    look(page, f"{name}-order")
    world.time.advance(days=2.1)
    world.run_worker()
    step_url = step.first.get_attribute("href")
    press(world, "voucher")
    see_order(page, world, live_server)
    expect(step).to_have_count(0)
    look(page, f"{name}-paid")
    kinds = ["begun", *(["reminded"] if method == "Konbini" else []), "paid"]
    texts = mails(page, *(f"{name}-mail-{kind}" for kind in kinds))
    assert [str(step_url) in text for text in texts] == [True] * (len(kinds) - 1) + [False]
    if language == "en":
        title = "Pay the voucher by" if method == "Konbini" else "Make the bank transfer"
        assert title in texts[0]


@IN_FOUR_LANGUAGES
def test_stripe_debit_fails_or_arrives(
    page: Page,
    world: World,
    live_server: Any,
    language: str,
) -> None:
    """It fails after 30 hours, and the mail leads to another payment."""
    name = f"stripe-debit-{language}"
    page.get_by_role("button", name="Bank debit").click()
    expect(page.locator("h1")).to_be_visible()
    look(page, f"{name}-return")
    world.run_worker()
    see_order(page, world, live_server)
    look(page, f"{name}-order")
    world.time.advance(hours=30)
    world.run_worker()
    press(world, "fail")
    assert not world.shop.is_released(Payment.objects.get().order.key)
    see_order(page, world, live_server)
    expect(page.locator("a[href*='/payments/pay/']").first).to_be_visible()
    look(page, f"{name}-failed")
    _, failed = mails(page, f"{name}-mail-begun", f"{name}-mail-failed")
    assert "/payments/pay/" in failed


@pytest.mark.parametrize("gateway", ["payu"])
@IN_FOUR_LANGUAGES
def test_payu_transfer_is_still_to_be_made(
    page: Page,
    world: World,
    live_server: Any,
    language: str,
) -> None:
    """The shopper comes back from PayU's page, and reads until when to make it."""
    payment = Payment.objects.get()
    world.gateway.pay_slowly(payment.reference)
    page.goto(live_server.url + reverse("tillgate:return", args=[payment.return_key]))
    expect(page.locator("h1")).to_have_text(TRANSFER_BY[language])
    look(page, f"payu-transfer-{language}")
    world.run_worker()
    [text] = mails(page, f"payu-transfer-{language}-mail")
    assert TRANSFER_BY[language] in text.splitlines()[0]


@pytest.mark.parametrize("gateway", ["payu"])
@pytest.mark.parametrize("word", ["", "?error=501"])
@pytest.mark.parametrize("language", ["en"])
def test_payu_bank_that_is_pending_warns(
    page: Page,
    world: World,
    live_server: Any,
    word: str,
) -> None:
    """The bank may have taken the money: "Pay now" never stands alone, whatever the return says."""
    payment = Payment.objects.get()
    world.gateway.payu.choose(payment.reference, {"payMethod": {"value": "m"}})  # type: ignore[attr-defined]
    page.goto(live_server.url + reverse("tillgate:return", args=[payment.return_key]) + word)
    expect(page.locator("h1")).to_be_visible()
    look(page, f"payu-pending{len(word)}")
    expect(page.get_by_text("You may have paid already").first).to_be_visible()
    see_order(page, world, live_server)
    look(page, f"payu-pending{len(word)}-order")
    expect(page.get_by_text("You may have paid already").first).to_be_visible()
