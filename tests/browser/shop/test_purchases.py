"""Every way in which a purchase goes, or goes on, at the example shop: by mouse, on a phone and by
keyboard alone.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Locator, Route, expect

from tests.browser.shop.conftest import OSCARS_OWN, PHONE, Shop
from tests.browser.shop.holdings import Money
from tests.browser.shop.visitors import Finger, Keyboard


def _methods(shop: Shop) -> list[tuple[str, str]]:
    """The methods that the gateway was asked to take, and their outcome."""
    return [(payment["vendor"], payment["status"]) for payment in shop.ledger.payments()]


def _send_and_hear_no_answer(route: Route) -> None:
    route.fetch(max_redirects=0)
    route.abort()


def test_shopper_returns_to_paid_order(shop: Shop) -> None:
    shopper = shop.shopper(album="desktop")
    shopper.browse("Fountain pen")
    shopper.check_out("PayPal")
    total = shopper.place_order()
    shopper.pay()
    order = shop.ledger.order()
    shopper.see_paid(order.number)
    assert shopper.total() == total
    shop.ledger.must_agree()
    order = shop.ledger.order()
    assert (order.status, order.money.paid) == ("Paid", Decimal(total))
    assert _methods(shop) == [("paypal", "paid")]


def test_shopper_closing_tab_has_paid_order(
    shop: Shop,
) -> None:
    """The notification alone is enough."""
    shopper = shop.shopper()
    total = shopper.go_to_payment_page()
    shopper.page.route("**/cashier/**", _send_and_hear_no_answer)
    with shopper.page.expect_event("requestfailed"):
        shopper.pay()
    shopper.page.close()
    shop.ledger.must_agree()
    assert shop.ledger.order().money.paid == Decimal(total)
    assert shop.ledger.actors("payment.paid") == ["webhook"]
    staff = shop.staff(f"/dashboard/orders/{shop.ledger.order().number}/#payment")
    expect(staff.get_by_text("paid the order")).to_be_visible()
    shop.look(staff, "closed tab", beside=OSCARS_OWN)


def test_leaving_payment_page_allows_another_way(shop: Shop) -> None:
    """The shopper pays the same order."""
    shopper = shop.shopper()
    total = shopper.go_to_payment_page("PayPal")
    shopper.press("Leave")
    shopper.see("We have not received a payment yet")
    shopper.page.go_back()
    shopper.page.go_back()
    number = shop.ledger.order().number
    shopper.see(f"Order {number}")
    shop.keep(shopper.page, "left")
    shopper.pay_again("Alipay")
    shopper.see_payment_page(total)
    shopper.pay()
    shopper.see_paid(number)
    assert _methods(shop) == [("paypal", "pending"), ("alipay", "paid")]
    assert shop.ledger.order().money.paid == Decimal(total)


def test_declined_order_can_be_paid_again(shop: Shop) -> None:
    """The declined payment takes no money."""
    shopper = shop.shopper()
    total = shopper.go_to_payment_page("Credit or debit card")
    shopper.press("Decline")
    number = shop.ledger.order().number
    shopper.see("Your payment was declined")
    shopper.follow("Back to the shop")
    shopper.see(f"Order {number}")
    expect(
        shopper.page.get_by_text("Your payment was declined. This order has not been paid yet."),
    ).to_be_visible()
    shop.keep(shopper.page, "declined")
    shop.ledger.must_agree()
    assert (shop.ledger.order().status, shop.ledger.order().money.paid) == (
        "Pending payment",
        Decimal(),
    )
    shopper.pay_again("WeChat Pay")
    shopper.see_payment_page(total)
    shopper.pay()
    shopper.see_paid(number)
    assert _methods(shop) == [("creditcard", "failed"), ("wechatpay", "paid")]


@pytest.mark.parametrize("has_script", [True, False], ids=["with script", "without script"])
def test_two_presses_make_one_payment(
    shop: Shop,
    has_script: bool,
) -> None:
    """They make one order as well."""
    shopper = shop.shopper(has_script=has_script)
    shopper.fill_cart("Sealing wax, clay")
    shopper.check_out("PayPal")
    total = shopper.total()
    # Oscar's own script disables the button
    shopper.press_twice("Place order", is_sent_twice=not has_script)
    shopper.see_payment_page(total)
    shop.keep(shopper.page, "double click")
    shopper.press_twice(f"Pay USD {total}", is_sent_twice=True)
    shopper.see_paid(shop.ledger.order().number)
    assert _methods(shop) == [("paypal", "paid")]


def test_back_button_leads_to_order(shop: Shop) -> None:
    """The shopper does not find an empty cart."""
    shopper = shop.shopper()
    total = shopper.go_to_payment_page("Venmo")
    shopper.page.go_back()
    number = shop.ledger.order().number
    shopper.see(f"Order {number}")
    shop.keep(shopper.page, "back from the payment page")
    shopper.pay_again("Venmo")
    shopper.see_payment_page(total)
    shopper.pay()
    shopper.see_paid(number)
    assert _methods(shop) == [("venmo", "paid")], (
        "the payment page that was open is handed out again"
    )


def test_return_elsewhere_shows_only_status(
    shop: Shop,
) -> None:
    """A different browser sees nothing else of the order."""
    shopper = shop.shopper()
    shopper.go_to_payment_page("WeChat Pay")
    wallet = shop.shopper(Finger(), **PHONE)
    wallet.page.goto(shopper.page.url)
    wallet.pay()
    order = shop.ledger.order()
    wallet.see(f"Order {order.number}")
    expect(wallet.page.get_by_text("Thank you, your payment has arrived.")).to_be_visible()
    shop.keep(wallet.page, "second browser")
    words = wallet.page.locator("body").inner_text()
    for private in (
        "Ada",
        "Lovelace",
        "Mill Lane",
        "ada@example.com",
        "Writing set",
        str(order.total),
    ):
        assert private not in words
    shopper.page.reload()
    shopper.follow("Back to the shop")
    shopper.see_paid(order.number)


def test_waiting_page_moves_on_when_paid(shop: Shop) -> None:
    shopper = shop.shopper()
    total = shopper.go_to_payment_page("Alipay")
    shopper.press("Leave")
    shopper.see("We have not received a payment yet")
    shop.keep(shopper.page, "pending")
    assert shop.ledger.order().status == "Pending payment"
    [payment] = shop.ledger.payments()
    path = f"{shop.running.gateway}/_control/transactions/{payment['reference']}/pay"
    httpx.post(path, json={}).raise_for_status()
    shopper.see_paid(shop.ledger.order().number)
    assert shop.ledger.order().money.paid == Decimal(total)


def test_whole_purchase_fits_phone(shop: Shop) -> None:
    """This includes a change of mind on the way."""
    shopper = shop.shopper(Finger(), album="phone", **PHONE)
    shopper.browse("Pocket memos, set of three")
    shopper.check_out("Venmo")
    total = shopper.place_order()
    shopper.press("Leave")
    shopper.see("We have not received a payment yet")
    shopper.page.go_back()
    shopper.page.go_back()
    number = shop.ledger.order().number
    shopper.see(f"Order {number}")
    shopper.pay_again("Alipay")
    shopper.see_payment_page(total)
    shopper.pay()
    shopper.see_paid(number)
    assert _methods(shop) == [("venmo", "pending"), ("alipay", "paid")]


def test_whole_purchase_works_by_keyboard(shop: Shop) -> None:
    """The focus is always visible."""
    shopper = shop.shopper(Keyboard())
    shopper.browse("Linen journal")
    shopper.check_out("WeChat Pay")
    shopper.place_order()
    shopper.pay()
    shopper.see_paid(shop.ledger.order().number)
    shop.keep(shopper.page, "keyboard")
    assert _methods(shop) == [("wechatpay", "paid")]


def test_partial_dashboard_refund_is_on_timeline(
    shop: Shop,
    picture: Callable[[Locator, str], None],
) -> None:
    shopper = shop.shopper()
    shopper.go_to_payment_page("Alipay")
    shopper.pay()
    number = shop.ledger.order().number
    shopper.see_paid(number)
    page = shop.staff(f"/dashboard/orders/{number}/")
    page.get_by_role("link", name="Payment", exact=True).click()
    page.get_by_label("Amount in USD").fill("5.00")
    page.get_by_label("Reason").fill("The box is dented")
    page.get_by_label("Yes, refund it.").check()
    page.get_by_role("button", name="Refund").click()
    expect(page.get_by_text("USD 5.00 was refunded.")).to_be_visible()
    expect(page.get_by_text("Refunded USD 5.00").first).to_be_visible()
    shop.look(page, "refund", beside=OSCARS_OWN)
    picture(page.locator("section.tillgate"), "timeline.png")
    shop.ledger.must_agree()
    assert shop.ledger.order().money == Money(Decimal("23.85"), Decimal("5.00"))


def test_payment_step_offers_owners_methods(
    shop: Shop,
    picture: Callable[[Locator, str], None],
) -> None:
    """They come in the owner's order, and the choice is remembered."""
    shopper = shop.shopper(viewport={"width": 960, "height": 640}, device_scale_factor=2)
    shopper.fill_cart("Writing set")
    shopper.check_out("Alipay")
    shopper.follow("Payment")
    shopper.see("Payment")
    names = [
        radio.evaluate("element => element.labels[0].innerText.trim()")
        for radio in shopper.page.get_by_role("radio").all()
    ]
    assert names == ["Credit or debit card", "PayPal", "Venmo", "Alipay", "WeChat Pay", "UnionPay"]
    expect(shopper.page.get_by_label("Alipay", exact=True)).to_be_checked()
    picture(shopper.page.locator("body"), "checkout.png")


def test_shop_language_reaches_payment_step(shop: Shop) -> None:
    for options, album in (({}, "german desktop"), (PHONE, "german phone")):
        shopper = shop.shopper(Keyboard(), album=album, **options)
        shopper.page.goto("/catalogue/")
        shopper.see("Everything")
        shopper.page.get_by_label("Language", exact=True).select_option("de")
        shopper.press("Change language")
        shopper.see("Alles")
        assert urlsplit(shopper.page.url).path == "/catalogue/"
        assert shopper.page.locator("html").get_attribute("lang") == "de"
        expect(
            shopper.page.get_by_text("Eine Vorführung: Es fließt kein echtes Geld."),
        ).to_be_visible()
