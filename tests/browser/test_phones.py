"""A wallet in the browser of another app, on a phone and a wide screen, in four languages."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Shop
from tillgate.django.models import Payment

WECHAT = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 "
    "MicroMessenger/8.0.49(0x18003137) NetType/WIFI Language/zh_CN"
)
MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17.5 Safari/605"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    ("language", "copy", "copied"),
    [
        ("en", "Copy the link", "Copied. Paste it into the address bar of your browser."),
        ("de", "Link kopieren", "Kopiert. Fügen Sie ihn in die Adresszeile Ihres Browsers ein."),
        ("ja", "リンクをコピー", "コピーしました。ブラウザのアドレスバーに貼り付けてください。"),
        ("ur", "لنک کاپی کریں", "اسے اپنے براؤزر کی ایڈریس بار میں پیسٹ کریں"),
    ],
)
def test_link_is_copied_from_an_app(
    shop: Shop,
    language: str,
    copy: str,
    copied: str,
    width: int,
    settings: Any,
) -> None:
    """The method that cannot open stands last, and its choice leads to the link."""
    settings.LANGUAGE_CODE = language
    order = shop.world.order("39.90")
    options: dict[str, Any] = {
        "user_agent": WECHAT,
        "viewport": {"width": width, "height": 844},
        "permissions": ["clipboard-read", "clipboard-write"],
    }
    page = shop.open(shop.world.way_to_pay(order), **options)
    expect(page.get_by_role("radio").first).to_be_checked()
    expect(page.get_by_role("radio").first).to_have_value("wechatpay")
    shop.look(page, f"in-app-first-{language}-{width}")
    button = page.get_by_role("button", name=copy)
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text(copied)).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{shop.url}/payments/pay/")
    page.get_by_label("Alipay").first.check()
    page.locator("form button[type=submit], form button:not([type])").click()
    expect(page.get_by_role("alert")).to_be_visible()
    shop.look(page, f"in-app-{language}-{width}")
    assert not Payment.objects.exists()
    elsewhere = shop.open(link)
    expect(elsewhere.get_by_role("radio").first).to_have_value("alipay")


def test_link_without_javascript(shop: Shop) -> None:
    """The link can be marked by hand, and no button does nothing."""
    page = shop.open(
        shop.world.way_to_pay(shop.world.order()),
        user_agent=WECHAT,
        java_script_enabled=False,
    )
    expect(page.locator("#tillgate-link")).to_be_visible()
    expect(page.locator("#tillgate-copy")).to_be_hidden()


@pytest.mark.parametrize(("touches", "terminal"), [(True, "WAP"), (False, "ONLINE")])
def test_ipad_counts_as_a_phone(shop: Shop, touches: bool, terminal: str) -> None:
    """It names itself a Mac, and only its screen tells."""
    page = shop.open("", user_agent=MAC)
    page.add_init_script(
        f"Object.defineProperty(navigator, 'maxTouchPoints', {{get: () => {5 if touches else 0}}})",
    )
    page.goto(shop.world.way_to_pay(shop.world.order()))
    page.get_by_role("button", name="Continue to payment").click()
    expect(page).to_have_url(re.compile(re.escape(shop.world.sandbox.base_url)))
    assert Payment.objects.get().terminal == terminal
