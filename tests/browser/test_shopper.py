"""A shopper pays: by keyboard, on a phone, in the dark, without JavaScript, and while the news is
late.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Shop
from tests.smallest_shop.models import ShopOrder
from tillgate.django.models import Payment
from tillgate.django.pages import owner, shoppers

PHONE = {
    "viewport": {"width": 360, "height": 740},
    "is_mobile": True,
    "has_touch": True,
    "device_scale_factor": 2,
}


def _focus_on(page: Page, selector: str) -> None:
    """Press Tab until the element has the focus, as a shopper without a mouse does."""
    for _ in range(40):
        if page.locator(selector).first.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} cannot be reached by keyboard")


def _newest() -> Payment:
    return Payment.objects.select_related("order").latest("id")


def test_shopper_pays_by_keyboard_alone(
    shop: Shop,
    picture: Callable[[Locator, str], None],
) -> None:
    order = shop.world.order("39.90")
    page = shop.open(shop.world.way_to_pay(order), device_scale_factor=2)
    _focus_on(page, "input[type=radio]:checked")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("WeChat Pay")).to_be_checked()
    shop.look(page, "pay-desktop")
    picture(page.locator("main"), "choose.png")
    _focus_on(page, "button")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(re.escape(shop.world.sandbox.base_url)))
    _focus_on(page, "button[value=pay]")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"Order {order} is paid")).to_be_visible()
    assert _newest().method == "wechatpay"
    assert shop.world.shop.times_paid(order) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_on_a_phone(shop: Shop, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "home", lambda payment: None)
    order = shop.world.order("8.00")
    phone: dict[str, Any] = {
        **PHONE,
        "color_scheme": scheme,
        "user_agent": "Mozilla/5.0 (Linux; Android 15) Mobile",
    }
    page = shop.open(shop.world.way_to_pay(order), **phone)
    shop.look(page, f"pay-phone-{scheme}")
    page.get_by_role("button", name="Continue to payment").tap()
    expect(page).to_have_url(re.compile(re.escape(shop.world.sandbox.base_url)))
    payment = _newest()
    assert payment.terminal == "WAP"
    page.goto(f"/payments/return/{payment.return_key}/")
    expect(page.get_by_role("heading", name="We have not received a payment yet")).to_be_visible()
    shop.look(page, f"not-received-phone-{scheme}")
    shop.world.shopper_pays(payment)
    expect(page.get_by_role("heading", name="Thank you, your payment has arrived")).to_be_visible()
    shop.look(page, f"paid-phone-{scheme}")


@pytest.mark.parametrize(
    ("status", "heading"),
    [("", "We have not received a payment yet"), ("success", "Confirming your payment")],
)
def test_notification_moves_waiting_page_on(
    shop: Shop,
    status: str,
    heading: str,
) -> None:
    order = shop.world.order()
    payment = shop.world.start(order)
    page = shop.open(f"/payments/return/{payment.return_key}/?status={status}")
    expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("Checking with the payment service…")
    # a shopper who has just paid is not asked to pay
    expect(page.get_by_role("link", name="Pay now")).to_have_count(0 if status else 1)
    expect(page.get_by_role("link", name="Choose another payment method")).to_have_count(
        0 if status else 1,
    )
    shop.look(page, f"waiting-{status or 'nothing'}-desktop")
    shop.world.shopper_pays(payment)
    expect(page.get_by_role("heading", name=f"Order {order} is paid")).to_be_visible()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_i4_paid_shopper_is_told_before_repaying(
    shop: Shop,
    options: dict[str, Any],
    request: Any,
) -> None:
    """The gateway's word that the payment is paid is enough."""
    device = request.node.callspec.id
    order = shop.world.order()
    payment = shop.world.start(order)
    before = shop.open(shop.world.way_to_pay(order), **options)  # in a tab that stays open
    page = shop.open(f"/payments/return/{payment.return_key}/", **options)
    expect(page.get_by_role("heading", name="We have not received a payment yet")).to_be_visible()
    shop.world.sandbox.control.fault("wrong_amount", occasion="query", times=1000)
    shop.world.shopper_pays(payment)
    expect(page.get_by_role("heading", name="Your payment is under review")).to_be_visible()
    expect(page.get_by_text("Pay now")).to_have_count(0)
    shop.look(page, f"under-review-{device}")
    before.get_by_label("PayPal").check()
    before.get_by_role("button", name="Continue to payment").click()
    expect(before.get_by_role("alert")).to_contain_text("you have paid with Alipay already")
    expect(before.get_by_label("PayPal")).to_be_checked()
    shop.look(before, f"asked-back-{device}")


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_money_in_transit_asks_before_repaying(
    shop: Shop,
    options: dict[str, Any],
    request: Any,
) -> None:
    """The page says that the shopper's money is on its way."""
    device = request.node.callspec.id
    order = shop.world.order()
    payment = shop.world.start(order)
    Payment.objects.filter(pk=payment.pk).update(is_processing=True)
    # the sandbox has no such payments: no query here
    page = shop.open(f"/payments/return/{payment.return_key}/?wait=1", **options)
    expect(page.get_by_role("heading", name="Your payment is on its way")).to_be_visible()
    expect(page.get_by_role("link", name="Back to the shop")).to_be_visible()
    expect(page.get_by_text("Pay now")).to_have_count(0)
    shop.look(page, f"on-its-way-{device}")
    page.goto(shop.world.way_to_pay(order))
    expect(page.get_by_text("You need not pay again.")).to_be_visible()
    shop.look(page, f"on-its-way-again-{device}")


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_second_payment_is_shown_without_clicking(
    shop: Shop,
    options: dict[str, Any],
    request: Any,
) -> None:
    order = shop.world.order()
    first, second = shop.world.start(order), shop.world.start(order, "paypal")
    shop.world.shopper_pays(first)
    page = shop.open(f"/payments/return/{second.return_key}/?status=success", **options)
    expect(page.get_by_role("heading", name="This order is already paid")).to_be_visible()
    shop.look(page, f"second-payment-{request.node.callspec.id}")
    shop.world.shopper_pays(second)
    expect(page.get_by_role("heading", name="This order was paid twice")).to_be_visible()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_waiting_page_notices_payment_elsewhere(
    shop: Shop,
    options: dict[str, Any],
    request: Any,
) -> None:
    """Another tab paid the order; a late shopper still finds the way to the shop."""
    order = shop.world.order()
    waiting, other = shop.world.start(order), shop.world.start(order, "paypal")
    page = shop.open(f"/payments/return/{waiting.return_key}/", **options)
    expect(page.get_by_role("link", name="Pay now")).to_be_visible()
    shop.world.shopper_pays(other)
    expect(page.get_by_role("heading", name="This order is already paid")).to_be_visible()
    expect(page.get_by_text("Pay now")).to_have_count(0)
    late = shop.world.order()
    shop.world.start(late)
    shop.world.shop.close_order(late)
    page.goto(shop.world.way_to_pay(late))
    expect(page.get_by_role("link", name="Back to the shop")).to_be_visible()
    shop.look(page, f"too-late-{request.node.callspec.id}")


def test_a_waiting_page_refreshes_without_javascript(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a page without script refreshes after whole seconds
    monkeypatch.setattr(shoppers, "_POLL_SECONDS", 1)
    order = shop.world.order()
    page = shop.open(shop.world.way_to_pay(order), java_script_enabled=False)
    page.get_by_label("PayPal").check()
    page.get_by_role("button", name="Continue to payment").click()
    expect(page).to_have_url(re.compile(re.escape(shop.world.sandbox.base_url)))
    payment = _newest()
    page.goto(f"/payments/return/{payment.return_key}/")
    expect(page.get_by_role("heading", name="We have not received a payment yet")).to_be_visible()
    expect(page).to_have_url(re.compile(r"wait=\d"))
    shop.world.shopper_pays(payment)
    expect(page.get_by_role("heading", name=f"Order {order} is paid")).to_be_visible()


def test_long_wait_explains_what_follows(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shoppers, "_PATIENT_POLLS", 2)
    order = shop.world.order()
    payment = shop.world.start(order)
    page = shop.open(f"/payments/return/{payment.return_key}/?status=success")
    expect(
        page.get_by_role("heading", name="We are still waiting for the payment service"),
    ).to_be_visible()
    shop.look(page, "still-waiting")
    shop.world.sandbox.control.set_options({"notification_on_paid": False})
    shop.world.shopper_pays(payment)
    page.get_by_role("link", name="Check again").click()
    expect(page.get_by_role("heading", name=f"Order {order} is paid")).to_be_visible()


def test_late_money_turns_page_automatically(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shoppers, "_PATIENT_POLLS", 0)
    monkeypatch.setattr(shoppers, "_LATE_POLL_SECONDS", 1)
    order = shop.world.order()
    payment = shop.world.start(order)
    page = shop.open(f"/payments/return/{payment.return_key}/?status=success")
    expect(
        page.get_by_role("heading", name="We are still waiting for the payment service"),
    ).to_be_visible()
    shop.world.shopper_pays(payment)
    expect(page.get_by_role("heading", name=f"Order {order} is paid")).to_be_visible()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_abandoned_payment_can_be_resumed(
    shop: Shop,
    options: dict[str, Any],
    request: Any,
) -> None:
    """The shopper can pay immediately or choose another method."""
    payment = shop.world.start(shop.world.order(), "paypal")
    for step, way in (
        ("Pay now", shop.world.sandbox.base_url),
        ("Choose another payment method", "/payments/pay/"),
    ):
        page = shop.open(f"/payments/return/{payment.return_key}/", **options)
        shop.look(page, f"not-received-{request.node.callspec.id}")
        _focus_on(page, f"a:text-is('{step}')")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(re.escape(way)))


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_double_payer_reads_what_follows(
    shop: Shop,
    options: dict[str, Any],
    request: Any,
) -> None:
    order = shop.world.order()
    first, second = shop.world.start(order), shop.world.start(order, "paypal")
    for payment in (first, second):
        shop.world.shopper_pays(payment)
        shop.world.sandbox.control.wait_for_notifications()
    page = shop.open(f"/payments/return/{second.return_key}/", **options)
    expect(page.get_by_role("heading", name="This order was paid twice")).to_be_visible()
    shop.look(page, f"paid-twice-{request.node.callspec.id}")
    page.get_by_role("link", name="Back to the shop").click()
    expect(page.get_by_role("heading", name=f"Order {order} is paid")).to_be_visible()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_declined_payment_and_unpayable_order_pages(
    shop: Shop,
    options: dict[str, Any],
    request: Any,
) -> None:
    device = request.node.callspec.id
    order = shop.world.order()
    page = shop.open(shop.world.way_to_pay(order), **options)
    page.get_by_role("button", name="Continue to payment").click()
    page.get_by_role("button", name="Decline").click()
    expect(page.get_by_role("heading", name="Your payment was declined")).to_be_visible()
    shop.look(page, f"declined-{device}")
    page.get_by_role("link", name="Choose how to pay").click()
    expect(page.get_by_role("heading", name="Choose how to pay")).to_be_visible()
    shop.world.shop.close_order(order)
    page.goto(shop.world.way_to_pay(order))
    expect(page.get_by_role("heading", name="This order cannot be paid")).to_be_visible()
    shop.look(page, f"not-payable-{device}")


def test_form_reaches_payment_page_under_csp(
    shop: Shop,
) -> None:
    """Chromium refuses a redirect to another site after a form, without a word to the shopper. The
    page in between has a link too.
    """
    page = shop.open(shop.world.way_to_pay(shop.world.order()))
    sent = page.context.new_page()
    # 204: the browser stays
    sent.route(
        re.compile(re.escape(shop.world.sandbox.base_url)),
        lambda route: route.fulfill(status=204),
    )
    sent.goto(page.url)
    with sent.expect_response(re.compile("/pay/")) as answer:
        sent.get_by_role("button", name="Continue to payment").click()
    assert "form-action 'self';" in f"{answer.value.all_headers()['content-security-policy']};"
    link = sent.get_by_role("link", name="Continue to payment")
    assert link.get_attribute("href") == _newest().payment_url
    shop.look(sent, "leave")
    page.get_by_role("button", name="Continue to payment").click()
    expect(page).to_have_url(_newest().payment_url)


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_unsuitable_method_shows_reason_unclickable(
    shop: Shop,
    options: dict[str, Any],
    request: Any,
    configure: Callable[..., None],
) -> None:
    limits = [
        {"code": "alipay", "maximums": {"USD": "5000"}},
        {"code": "creditcard"},
        {"code": "oxxo", "label": "OXXO", "kind": "counter"},
    ]
    bank = {"code": "ideal", "label": "iDEAL", "kind": "bank", "currencies": ["EUR"]}
    configure(
        {"METHODS": [*limits, "paypal", bank]},
        PUBLIC_URL=shop.url,
        SHOP_NAME="Fold & Margin",
    )
    page = shop.open(shop.world.way_to_pay(shop.world.order("6000.00")), **options)
    alipay = page.get_by_role("radio", name=re.compile("^Alipay takes orders up to USD 5,000.00$"))
    expect(alipay).to_be_disabled()
    expect(page.get_by_label("Credit or debit card")).to_be_checked()
    expect(page.get_by_role("link", name="Fold & Margin")).to_be_visible()
    shop.look(page, f"unavailable-{request.node.callspec.id}")


def test_refused_start_offers_another_way(shop: Shop) -> None:
    order = shop.world.order()
    shop.world.sandbox.control.fault("refused", occasion="pay")
    page = shop.open(shop.world.way_to_pay(order))
    page.get_by_role("button", name="Continue to payment").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was charged")
    shop.look(page, "refused")
    shop.errors.clear()  # the browser notes the answer's status, 409
    page.get_by_label("Alipay", exact=True).check()
    page.get_by_role("button", name="Continue to payment").click()
    expect(page).to_have_url(re.compile(re.escape(shop.world.sandbox.base_url)))


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_urdu_pages_run_right_to_left(
    shop: Shop,
    options: dict[str, Any],
    request: Any,
    settings: Any,
) -> None:
    settings.LANGUAGE_CODE = "ur"
    device = request.node.callspec.id
    order = shop.world.order("39.90")
    page = shop.open(shop.world.way_to_pay(order), **options)
    mark, name = (
        one.evaluate("element => element.getBoundingClientRect().left")
        for one in (page.locator("input[type=radio]").first, page.get_by_text("PayPal").first)
    )
    assert mark > name, "the text stands left of its mark"
    shop.look(page, f"pay-urdu-{device}")
    page.locator("main button").first.click()
    expect(page).to_have_url(re.compile(re.escape(shop.world.sandbox.base_url)))
    payment = _newest()
    page.goto(f"/payments/return/{payment.return_key}/")
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).direction") == "rtl"
    shop.look(page, f"not-received-urdu-{device}")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    ("change", "heading"),
    [
        ({"total": 0}, "There is nothing to pay for this order"),
        ({"status": "cancelled"}, "This order cannot be paid"),
        ({"total": 8}, "We have not received a payment yet"),
    ],
    ids=["free", "cancelled", "repriced"],
)
def test_changed_order_warns_of_open_payment_page(
    shop: Shop,
    change: dict[str, Any],
    heading: str,
    width: int,
    request: pytest.FixtureRequest,
) -> None:
    name = request.node.callspec.id
    payment = shop.world.start(shop.world.order())
    ShopOrder.objects.update(**change)
    for kind, address in {
        "return": f"/payments/return/{payment.return_key}/",
        "pay": shop.world.way_to_pay(payment.order.key),
    }.items():
        page = shop.open(address, viewport={"width": width, "height": 844})
        title = "Choose how to pay" if (kind, change) == ("pay", {"total": 8}) else heading
        expect(page.get_by_role("heading", name=title)).to_be_visible()
        expect(page.get_by_text("Do not pay there.")).to_be_visible()
        shop.look(page, f"changed-{kind}-{name}")
