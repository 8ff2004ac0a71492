"""Vouchers and money under way in a browser: on a telephone and a desk, in four languages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Shop
from tillgate.django.models import Payment
from tillgate.gateways import NextStep

VOUCHER = "https://pay.example/voucher/7"
WIDTHS: dict[str, dict[str, Any]] = {
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "is_mobile": True,
        "has_touch": True,
        "device_scale_factor": 2,
    },
    "desktop": {"viewport": {"width": 1280, "height": 800}},
}
TITLES = {
    "en": ("Pay the voucher by", "The time to pay the voucher has passed"),
    "de": ("Bezahlen Sie den Zahlschein bis", "Die Zeit für den Zahlschein ist vorbei"),
    "ja": ("までに払込票でお支払いください", "払込票のお支払い期限が過ぎました"),
    "ur": ("تک واؤچر کی ادائیگی کریں", "واؤچر کی ادائیگی کا وقت گزر گیا ہے"),
}


def finish(shop: Shop, step: NextStep | None) -> Payment:
    payment = shop.world.start(shop.world.order("39.90"))
    shop.world.money.hold(payment.reference, step)
    return payment


@pytest.mark.parametrize("language", TITLES)
@pytest.mark.parametrize("width", WIDTHS)
def test_slow_money_reads_well(shop: Shop, settings: Any, width: str, language: str) -> None:
    """The voucher, its end, money under way, and the page on which to pay in another way."""
    settings.LANGUAGE_CODE = language
    soon, over = (shop.world.time.now() + timedelta(days=days) for days in (3, -1))
    voucher, name = finish(shop, NextStep(url=VOUCHER, until=soon)), f"{language}-{width}"
    page = shop.open(f"/payments/return/{voucher.return_key}/", **WIDTHS[width])
    expect(page.get_by_role("heading", level=1)).to_contain_text(TITLES[language][0])
    expect(page.locator(f"a.button[href='{VOUCHER}']")).to_be_visible()
    shop.look(page, f"voucher-{name}")
    page.goto(shop.world.way_to_pay(voucher.order.key))
    expect(page.locator(".note").first).to_contain_text(TITLES[language][0])
    shop.look(page, f"voucher-pay-{name}")
    for kind, step in (
        ("over", NextStep(url=VOUCHER, until=over)),
        ("bare", NextStep()),
        ("debit", None),
    ):
        page.goto(f"/payments/return/{finish(shop, step).return_key}/")
        if kind == "over":
            expect(page.get_by_role("heading", level=1)).to_have_text(TITLES[language][1])
        shop.look(page, f"voucher-{kind}-{name}")
    pending = shop.world.start(shop.world.order())
    page.goto(f"/payments/return/{pending.return_key}/")
    shop.look(page, f"may-be-paid-{name}")


def test_money_within_a_second_turns_page(shop: Shop) -> None:
    """The notification is lost, and the return's own query was too early: the page asks once
    more.
    """
    shop.world.sandbox.control.set_options({"notification_on_paid": False})
    shop.world.configure(PUBLIC_URL=shop.url, NOTIFICATION_THROTTLE_SECONDS=60)
    order = shop.world.order()
    payment = shop.world.start(order)
    page = shop.open(f"/payments/return/{payment.return_key}/?status=success")
    expect(page.get_by_role("heading", name="Confirming your payment")).to_be_visible()
    shop.world.shopper_pays(payment)
    heading = page.get_by_role("heading", name=f"Order {order} is paid")
    expect(heading).to_be_visible(timeout=3_000)
