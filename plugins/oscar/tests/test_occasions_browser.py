"""The order page and the mails of slow money in a browser, in four languages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from playwright.sync_api import Browser

from tests.looking import OSCARS_BLUE, chromium, look, new_context  # noqa: F401  # a fixture
from tests.shopper import Shopper
from tillgate import hooks, shop
from tillgate.django.models import Payment
from tillgate.gateways import NextStep
from tillgate.testing.world import World

VOUCHER = "https://pay.example/voucher/7"


@pytest.mark.parametrize("language", ["en", "de", "ja", "ur"])
def test_voucher_reads_well_on_order_page_and_mail(
    chromium: Browser,  # noqa: F811
    live_server: Any,
    world: World,
    shopper: Shopper,
    product: Callable[..., Any],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
) -> None:
    """The mails that a voucher is to be paid, and that it was not, fit a telephone too."""
    shopper.get(shopper.buys(product("12.50"))["Location"])
    payment = Payment.objects.get()
    settings.LANGUAGE_CODE = language
    monkeypatch.setattr("tillgate_oscar.orders.language_of", lambda payment: language)
    until = world.time.now() + timedelta(days=3)
    world.money.hold(payment.reference, NextStep(url=VOUCHER, until=until))
    world.come_back(payment)
    world.run_worker()
    context = new_context(chromium, live_server.url, shopper.client)
    page = context.new_page()
    found = shop.find_payment("oscar", reference=payment.reference)
    page.goto(hooks.call_owner("oscar", "tillgate_return_url", payment=found))
    assert page.locator(f"a[href='{VOUCHER}']").is_visible()
    look(page, f"voucher-{language}", ".content", OSCARS_BLUE)
    world.gateway.decline(payment.reference)
    world.money.release(payment.reference)
    world.time.advance(hours=3)
    world.run_worker()
    outbox: list[Any] = mail.outbox
    for name, sent in zip(("begun", "failed"), outbox, strict=True):
        page.set_content(str(sent.alternatives[0][0]))
        look(page, f"mail-{name}-{language}")
    context.close()
