"""Staff reads the figures of the shop and checks a settlement file, on a phone and on a desktop,
under a strict policy.
"""

from __future__ import annotations

import csv
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Shop
from tests.django.bookings import payment, refund


def _days() -> None:
    now = timezone.now()
    for number in range(20):
        at = (now - timedelta(days=number)).isoformat()
        one = payment(
            f"REF{number:02}",
            f"{120 + 37 * (number % 7)}.50",
            at,
            method="alipay" if number % 3 else "paypal",
        )
        if not number % 4:
            refund(one, "45.25", at)
    payment("UNPAID", "80.00", now.isoformat(), status="expired")
    payment("YEN", "120000", now.isoformat(), currency="JPY", method="wechatpay")


def _strictly(page: Page) -> None:
    def with_policy(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(
            response=answer,
            headers={
                **answer.headers,
                "content-security-policy": "default-src 'self'; img-src 'self' data:",
            },
        )

    page.route("**/admin/tillgate/**", with_policy)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_staff_reads_the_figures_by_keyboard(shop: Shop, width: int, scheme: str) -> None:
    _days()
    page = shop.admin(
        "/admin/tillgate/",
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        timezone_id="UTC",
    )
    _strictly(page)
    page.get_by_role("link", name="Figures").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="USD")).to_be_visible()
    expect(page.get_by_role("img", name="Paid and refunded in USD")).to_be_visible()
    assert page.locator("svg rect.paid").count() == 21
    shop.look(page, f"admin-figures-{scheme}-{width}")
    page.get_by_role("link", name="Today").press("Enter")
    expect(
        page.get_by_role("region", name="By day, USD").get_by_role("row", name="Total"),
    ).to_contain_text("120.50")
    with page.expect_download() as download:
        page.get_by_role("button", name="Single payments").press("Enter")
    rows = csv.DictReader(download.value.path().read_text(encoding="utf-8-sig").splitlines())
    assert [row["Reference"] for row in rows] == ["REF00", "UNPAID", "YEN"]
    page.get_by_label("From").fill("2031-01-01")
    page.get_by_role("button", name="Show").press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    shop.look(page, f"admin-figures-refused-{width}")


@pytest.mark.parametrize("width", [390, 1280])
def test_staff_checks_a_settlement_file(shop: Shop, width: int) -> None:
    _days()
    page = shop.admin("/admin/tillgate/payment/figures/", viewport={"width": width, "height": 900})
    _strictly(page)
    page.get_by_role("link", name="Check a settlement file").press("Enter")
    shop.look(page, f"admin-settlement-form-{width}")
    text = "reference,amount,fee\nREF00,120.50,1.20\nREF05,1.00,0.30\nSTRANGER,9.00,0.10\nREF08,ten,\nUNPAID,80.00,0\nREF00,120.50,1.20\n"
    page.get_by_label("Settlement file").set_input_files(
        {"name": "june.csv", "mimeType": "text/csv", "buffer": text.encode()},
    )
    page.get_by_role("button", name="Check the file").press("Enter")
    expect(page.get_by_text("The file and Tillgate differ.")).to_be_visible()
    for heading in (
        "Missing in the file (4)",
        "Missing in Tillgate (1)",
        "Other amounts (1)",
        "Twice in the file (1)",
    ):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.get_by_text("line 5: amount 'ten'")).to_be_visible()
    shop.look(page, f"admin-settlement-{width}")
    page.get_by_role("link", name="REF05").press("Enter")
    expect(page.get_by_role("heading", name="REF05")).to_be_visible()
