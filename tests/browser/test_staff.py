"""Staff refund money and settle reviews."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import Shop
from tests.shop.test_summaries import described, known
from tillgate import Goods
from tillgate.django.models import Payment, Refund, Review
from tillgate.django.reviews.opening import open_review
from tillgate.hooks import Customer
from tillgate.lifecycle import ReviewReason


def _paid(shop: Shop, total: str) -> int:
    payment = shop.world.start(shop.world.order(total))
    shop.world.shopper_pays(payment)
    shop.world.sandbox.control.wait_for_notifications()
    return int(payment.pk)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_staff_double_press_makes_one_refund(
    shop: Shop,
    scheme: str,
) -> None:
    """Staff refund part of a payment."""
    payment_id = _paid(shop, "39.90")
    page = shop.admin(f"/admin/tillgate/payment/{payment_id}/change/", color_scheme=scheme)
    page.get_by_label("Amount in USD").fill("9.90")
    page.get_by_label("Reason").fill("one cup was broken")
    page.get_by_role("button", name="Refund…").click()
    expect(page.get_by_text("This cannot be undone.")).to_be_visible()
    shop.look(page, f"admin-refund-{scheme}")
    page.get_by_role("button", name="Refund USD 9.90").dblclick()
    page.wait_for_url("**/change/")
    if not page.get_by_text(
        "USD 9.90 was refunded.",
    ).count():  # the second press was answered while the first was sent
        page.wait_for_timeout(3000)
        page.reload()
    expect(page.get_by_text("Refunded USD 9.90 by anna")).to_be_visible()
    shop.look(page, f"admin-payment-{scheme}")
    assert [refund.amount for refund in Refund.objects.all()] == [Decimal("9.90")]
    assert shop.world.sandbox.control.state()["transactions"][0]["refunded"] == "9.90"  # type: ignore[index]
    page.get_by_text("For technicians").click()
    page.get_by_text("Cause and evidence").first.click()
    expect(page.get_by_text("Money refunded").first).to_be_visible()
    page.get_by_role("button", name="Poll now").click()
    expect(
        page.get_by_text("Polled the gateway: the gateway says that it is paid."),
    ).to_be_visible()


def test_staff_sees_the_lists(shop: Shop) -> None:
    for total in ("12.50", "40.00", "7.25"):
        _paid(shop, total)
    shop.world.start(shop.world.order("99.00"), method="paypal")
    page = shop.admin("/admin/tillgate/payment/", viewport={"width": 1280, "height": 900})
    shop.look(page, "admin-payments")
    page.goto("/admin/tillgate/order/")
    shop.look(page, "admin-orders")
    page.locator("#result_list tbody a").first.click()
    expect(page.get_by_role("heading", name="What happened")).to_be_visible()
    page.get_by_text("For technicians").click()
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    shop.look(page, "admin-order")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_staff_refunds_second_payment_from_reviews(
    shop: Shop,
    scheme: str,
    picture: Callable[[Locator, str], None],
) -> None:
    order = shop.world.order("25.00")
    first, second = shop.world.start(order), shop.world.start(order, "paypal")
    for payment in (first, second):
        shop.world.shopper_pays(payment)
        shop.world.sandbox.control.wait_for_notifications()
    assert shop.world.reviews() == ["second-payment"]
    page = shop.admin("/admin/tillgate/payment/", color_scheme=scheme, device_scale_factor=2)
    page.get_by_role("link", name="1 open review").click()
    expect(page.get_by_text("Recommended: “Refund…”.")).to_be_visible()
    expect(page.get_by_role("link", name="Refund…")).to_have_accessible_description(
        re.compile("confirm it on the next page"),
    )
    shop.look(page, f"admin-needs-a-person-{scheme}")
    if scheme == "light":
        picture(page.locator(f"#review-{Review.objects.get().pk}"), "review.png")
    page.get_by_role("link", name="Refund…").click()
    page.get_by_role("button", name="Refund USD 25.00").click()
    expect(page.get_by_text("USD 25.00 was refunded.").first).to_be_visible()
    expect(page.get_by_text("Resolved by anna")).to_be_visible()
    shop.look(page, f"admin-resolved-{scheme}")
    assert shop.world.reviews() == []
    page.goto("/admin/tillgate/review/")
    expect(page.get_by_text("Nothing here")).to_be_visible()


def test_staff_settles_unknown_refund_with_note(shop: Shop) -> None:
    payment_id = _paid(shop, "30.00")
    shop.world.sandbox.control.set_options({"notification_on_refund": False})
    shop.world.sandbox.control.fault("lost_response", occasion="refund")
    page = shop.admin(f"/admin/tillgate/payment/{payment_id}/refund/?amount=10")
    page.get_by_role("button", name="Refund USD 10.00").click()
    expect(page.get_by_text("The outcome of the refund of USD 10.00 is unknown")).to_be_visible()
    shop.world.sandbox.control.reverse(
        shop.world.sandbox.control.service.transactions()[0].reference,
    )
    page.get_by_role("button", name="Poll now").click()
    page.goto("/admin/tillgate/review/")
    shop.look(page, "admin-reviews-several")
    page.get_by_role("button", name="The refund was done").click()
    expect(page.get_by_text("Resolved by anna")).to_be_visible()
    page.goto("/admin/tillgate/review/")
    page.get_by_text("Dismiss with a note").first.click()
    page.get_by_label("Why you dismiss it").first.fill("it was our own refund")
    page.get_by_role("button", name="Dismiss", exact=True).click()
    expect(page.get_by_text("it was our own refund").first).to_be_visible()
    assert shop.world.reviews() == []


def test_the_admin_on_a_phone(shop: Shop) -> None:
    payment_id = _paid(shop, "12.50")
    page = shop.admin(
        f"/admin/tillgate/payment/{payment_id}/change/",
        viewport={"width": 390, "height": 844},
        is_mobile=True,
    )
    shop.look(page, "admin-payment-phone")
    page.get_by_text("Record an external refund").press("Enter")
    page.get_by_label("Refunded, in USD").fill("2.50")
    shop.look(page, "admin-enter-phone")
    page.get_by_role("button", name="Enter").press("Enter")
    expect(page.get_by_text("Recorded: an external refund of USD 2.50.")).to_be_visible()
    expect(page.get_by_text("USD 2.50 refunded, USD 10.00 can still be refunded.")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1280])
def test_clerk_works_by_keyboard(
    shop: Shop,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A clerk reads a disputed payment, copies its number, leaves a note and takes the review."""
    payment = known(Payment.objects.get(pk=_paid(shop, "12.50")))
    described(
        monkeypatch,
        lines=(Goods.named("A very long name of a mug that is white", 2),),
        customer=Customer(name="Ann Lee", email="ann.with.a.long.name@shop.example"),
        staff_url="/orders/7/",
    )
    facts = {"case": "deadline", "amount": "12.50", "currency": "USD", "dispute_no": "dp_1"}
    facts["respond_by"] = "2026-12-05 12:00 UTC"
    open_review(ReviewReason.DISPUTED, facts, "test", payment)
    page = shop.admin(
        f"/admin/tillgate/payment/{payment.pk}/change/",
        viewport={"width": width, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
    )
    shop.look(page, f"admin-clerk-{width}")
    page.get_by_role("button", name="Copy: ch_7").press("Enter")
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "ch_7"
    page.get_by_label("Note", exact=True).fill("Ann rang, she has the mug")
    page.get_by_role("button", name="Add the note").press("Enter")
    expect(page.get_by_text("anna: Ann rang, she has the mug")).to_be_visible()
    page.get_by_role("link", name="Disputed by the shopper's bank").first.press("Enter")
    page.get_by_role("button", name="Take this review").press("Enter")
    expect(page.get_by_text("You have this review.")).to_be_visible()
    expect(page.get_by_role("link", name="Open the dispute at").first).to_be_visible()
    shop.look(page, f"admin-dispute-{width}")
    page.goto("/admin/tillgate/review/")
    shop.look(page, f"admin-disputes-{width}")


@pytest.mark.parametrize("width", [390, 1280])
def test_staff_ends_unknown_payment_by_keyboard(
    shop: Shop,
    width: int,
) -> None:
    """The gateway does not know the payment."""
    payment = shop.world.start(shop.world.order("18.00"))
    shop.world.sandbox.control.fault("denied", occasion="query", times=100)
    shop.world.notification(payment)
    Payment.objects.update(expires_at=payment.created_at)
    page = shop.admin("/admin/tillgate/review/", viewport={"width": width, "height": 900})
    page.get_by_text("Mark as expired").first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The worker still finds late money.").first).to_be_visible()
    shop.look(page, f"admin-unpaid-{width}")
    page.keyboard.press("Tab")
    page.keyboard.type("not in the back office")
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"Resolved: payment {payment.reference} is expired.")).to_be_visible()
    assert shop.world.reviews() == []


def test_staff_chooses_overpayment_refund_amount(shop: Shop) -> None:
    order = shop.world.order("30.00")
    payment = shop.world.start(order)
    shop.world.shop.edit_total(order, Decimal("28.00"))
    shop.world.shopper_pays(payment)
    shop.world.sandbox.control.wait_for_notifications()
    page = shop.admin("/admin/tillgate/review/")
    page.get_by_role("link", name="Refund…").click()
    expect(
        page.get_by_text("USD 30.00 was paid, and the order costs USD 28.00 by now"),
    ).to_be_visible()
    expect(page.get_by_role("button", name="Refund USD")).to_have_count(0)
    shop.look(page, "admin-overpaid")
    page.get_by_label("Amount in USD").fill("2.00")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Refund USD 2.00").click()
    expect(page.get_by_text("USD 2.00 was refunded.").first).to_be_visible()
    assert shop.world.reviews() == []


@pytest.mark.parametrize("width", [390, 1280])
def test_review_cards_say_next_step(
    shop: Shop,
    width: int,
) -> None:
    """The mail leads to the card."""
    order = shop.world.order("30.00")
    payment = shop.world.start(order)
    shop.world.shop.edit_total(order, Decimal("32.00"))
    shop.world.shopper_pays(payment)
    shop.world.sandbox.control.wait_for_notifications()
    review = Review.objects.get()
    page = shop.admin(
        f"/admin/tillgate/review/{review.pk}/change/#review-{review.pk}",
        viewport={"width": width, "height": 900},
    )
    card = page.locator(f"#review-{review.pk}")
    expect(card.get_by_text("Recommended:")).to_be_visible()
    background = "element => getComputedStyle(element).backgroundColor"
    first, second = (
        card.get_by_role("link", name="Refund…"),
        card.get_by_role("button", name="Deliver again"),
    )
    assert first.evaluate(background) != second.evaluate(background), (
        "the recommended one stands out"
    )
    expect(second).to_have_accessible_description(re.compile("Tells the shop once more"))
    shop.look(page, f"admin-card-{width}")
    page.locator("summary", has_text="Dismiss with a note").focus()
    page.keyboard.press("Enter")
    shop.look(page, f"admin-card-open-{width}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_health_page_tests_connection_by_keyboard(
    shop: Shop,
    width: int,
    scheme: str,
) -> None:
    _paid(shop, "12.50")
    page = shop.admin(
        "/admin/tillgate/payment/",
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
    )
    page.get_by_role("link", name="Health of the payments").click()
    expect(page.get_by_text("sandbox: no real money")).to_be_visible()
    page.get_by_role("button", name="Test connection").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The connection of account default works")).to_be_visible()
    shop.look(page, f"admin-health-{scheme}-{width}")


@pytest.mark.parametrize("width", [390, 1280])
def test_page_that_was_opened_again_asks_for_a_tick(shop: Shop, width: int) -> None:
    payment = shop.world.paid_payment("45.21")
    page = shop.admin(
        f"/admin/tillgate/payment/{payment.pk}/refund/?amount=0.30",
        viewport={"width": width, "height": 844},
    )
    page.get_by_role("button", name="Refund USD 0.30").click()
    expect(page.get_by_text("USD 0.30 was refunded.")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("A refund of USD 0.30 was asked for")).to_be_visible()
    shop.look(page, f"refund-again-{width}")
    page.get_by_role("button", name="Refund USD 0.30").click()
    assert Refund.objects.count() == 1, "the browser asks for the tick"
    page.get_by_label("Refund it again").check()
    page.get_by_role("button", name="Refund USD 0.30").click()
    expect(page.get_by_text("USD 0.30 was refunded.")).to_be_visible()
    assert Refund.objects.count() == 2
