"""Walks through the shop as a guest and as its staff, over HTTP alone: buys, closes the tab, loses
a notification, refunds money.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import httpx

from example_shop.browser import Browser, Page, PageProblem
from example_shop.catalogue import VOUCHER

__all__ = ["log_in", "order", "walk", "walk_stripe"]

Tell = Callable[[str], object]

_ANOTHER: Final = "Choose how to pay"
"""The link of the return page to another payment, after one that failed."""
_PAYMENT_PAGES: Final = ("/cashier/", "/c/pay/")
"""Where the payment pages of the sandbox and of the imitation of Stripe are."""
_PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.5
_ADDRESS: Final = {
    "first_name": "Ada",
    "last_name": "Lovelace",
    "line1": "12 Mill Lane",
    "line4": "Burlington",
    "state": "Vermont",
    "postcode": "05401",
}
_MAIL: Final = "ada@example.com"


def walk(shop: str, gateway: str, staff: tuple[str, str], tell: Tell) -> None:
    """Make four purchases and a refund, telling each step; raise `PageProblem` when something is
    not as it should be.
    """
    with Browser(shop) as office:
        log_in(office, staff)
        tell("A guest buys two things with a voucher, and comes back")
        with Browser(shop) as guest:
            payment_page, total = order(
                guest,
                ["Writing set", "Fountain pen"],
                "paypal",
                tell,
                voucher=VOUCHER,
            )
            number = _number(payment_page)
            _must_be_asked(gateway, number, total)
            back = guest.submit(payment_page, payment_page.forms[0], decision="pay")
            tell(f"    pays at the payment page and lands on “{back.heading}”")
        _must_be_paid(office, number, tell)

        tell(
            "A guest pays and closes the tab: nobody comes back, only the gateway's notification "
            "does",
        )
        with Browser(shop) as guest:
            payment_page, _ = order(guest, ["Linen journal"], "venmo", tell)
            guest.submit_and_close(payment_page, payment_page.forms[0], decision="pay")
        _must_be_paid(office, _number(payment_page), tell)

        tell(
            "A guest pays and closes the tab, and the notification is lost too: the worker finds "
            "the money",
        )
        with Browser(shop) as guest:
            payment_page, _ = order(guest, ["Gift card, 13.61"], "alipay", tell)
            guest.submit_and_close(payment_page, payment_page.forms[0], decision="pay")
        _must_be_paid(office, _number(payment_page), tell)

        tell(
            "A guest's payment is declined, and is made again another way: one order, two payments",
        )
        with Browser(shop) as guest:
            payment_page, _ = order(guest, ["Sealing wax"], "creditcard", tell)
            declined = _settled(
                guest,
                guest.submit(payment_page, payment_page.forms[0], decision="decline"),
            )
            tell(f"    is declined and lands on “{declined.heading}”")
            choice = guest.open(declined.link(_ANOTHER))
            again = guest.submit(choice, choice.form("method"), method="wechatpay")
            guest.submit(again, again.forms[0], decision="pay")
            tell("    pays again with wechatpay")
        _must_be_paid(office, _number(payment_page), tell)

        tell("The shop's staff refund a part of the first order")
        _refund(office, number, "5.00", tell)


def walk_stripe(shop: str, gateway: str, staff: tuple[str, str], tell: Tell) -> None:
    """Make five purchases and a refund at the imitation of Stripe, as `walk` does at the sandbox;
    raise `PageProblem` when something is not as it should be.
    """

    def buy(*goods: str) -> tuple[Browser, Page, str]:
        guest = guests.enter_context(Browser(shop))
        page, total = order(guest, [*goods], "checkout", tell)
        return guest, page, total

    with ExitStack() as guests:
        office = guests.enter_context(Browser(shop))
        log_in(office, staff)
        tell("A guest's card is declined, and another pays on the same page")
        guest, page, total = buy("Writing set", "Fountain pen")
        number = _number(page)
        _must_be_asked(gateway, number, total)
        page = guest.submit(page, page.forms[0], decision="decline")
        if "insufficient funds" not in page.text:
            raise PageProblem(f"the payment page does not say why: {page.text[:300]}")
        back = guest.submit(page, page.forms[0], decision="pay")
        tell(f"    pays at the payment page and lands on “{back.heading}”")
        _must_be_paid(office, number, tell)

        tell("A guest pays and closes the tab: only Stripe's event comes")
        guest, page, _ = buy("Linen journal")
        guest.submit_and_close(page, page.forms[0], decision="pay")
        _must_be_paid(office, _number(page), tell)

        tell("A guest pays and closes the tab, and the event is lost: the worker finds the money")
        guest, page, _ = buy("Sealing wax")
        guest.submit_and_close(page, page.forms[0], decision="pay", notification="lost")
        _must_be_paid(office, _number(page), tell)

        tell("A guest pays by bank debit, whose money arrives later")
        guest, page, _ = buy("Linen journal")
        back = guest.submit(page, page.forms[0], decision="later")
        tell(f"    lands on “{back.heading}”")
        ledger = guest.open(f"{gateway}/")
        guest.submit(ledger, ledger.forms[0], action="settle")
        _must_be_paid(office, _number(page), tell)

        tell("A guest takes a voucher, and pays it later")
        guest, page, _ = buy("Linen journal")
        back = guest.submit(page, page.forms[0], decision="konbini")
        tell(f"    lands on “{back.heading}”")
        voucher = guest.open(back.link("Show the voucher"))
        guest.submit_and_close(voucher, voucher.forms[0], decision="voucher")
        _must_be_paid(office, _number(page), tell)

        tell("The shop's staff refund a part of the first order")
        _refund(office, number, "5.00", tell)


def order(
    guest: Browser,
    titles: list[str],
    method: str,
    tell: Tell,
    *,
    voucher: str = "",
) -> tuple[Page, str]:
    """Buy some things, and return the payment page with the total that the preview showed."""
    for title in titles:
        shelf = guest.open("/catalogue/")
        goods = guest.open(shelf.link(title))
        guest.submit(goods, goods.form("quantity"), quantity="1")
        tell(f"    puts {goods.heading} into the cart")
    if voucher:
        cart = guest.open("/basket/")
        guest.submit(cart, cart.form("code"), code=voucher)
        tell(f"    uses voucher {voucher}")
    page = guest.open("/checkout/")
    page = guest.submit(page, page.form("options"), username=_MAIL, options="anonymous")
    if _has(page, "line1"):  # a gift card needs no parcel
        page = guest.submit(page, page.form("line1"), **_ADDRESS)
        page = guest.submit(page, page.form("method_code", "post"))
        tell("    gives an address and chooses the post")
    page = guest.submit(page, page.form("tillgate-method", method), **{"tillgate-method": method})
    total = page.text.rpartition("Total $")[2].partition(" ")[0]
    payment_page = guest.submit(page, page.form("action", "place_order"))
    if not any(path in payment_page.url for path in _PAYMENT_PAGES):
        raise PageProblem(
            f"placing the order led to {payment_page.url} instead of the payment page: "
            f"{payment_page.text[:300]}",
        )
    tell(f"    places the order, USD {total}, and is sent to pay with {method}")
    return payment_page, total


def _settled(guest: Browser, page: Page) -> Page:
    """Wait where a shopper waits, until the shop knows how the payment ended: the page goes home,
    or offers another payment.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while "/payments/return/" in page.url and _ANOTHER not in page.links:
        if time.monotonic() > until:
            raise PageProblem(
                f"after {_PATIENCE_SECONDS:.0f} s the page still says “{page.heading}”",
            )
        time.sleep(_PAUSE_SECONDS)
        page = guest.open(page.url.partition("?")[0] + "?wait=1")
    return page


def _must_be_paid(office: Browser, number: str, tell: Tell) -> None:
    """Wait until the staff see the order as paid."""
    began = time.monotonic()
    while True:
        page = office.open(f"/dashboard/orders/{number}/")
        history = page.text.partition("Status Changes")[2]
        if times := history.partition("Shipping Events")[0].count("Pending payment Paid"):
            break
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise PageProblem(
                f"order {number} was not paid within {_PATIENCE_SECONDS:.0f} s; its page says: "
                f"{history[:200]}",
            )
        time.sleep(_PAUSE_SECONDS)
    if times != 1:
        raise PageProblem(f"order {number} became paid {times} times")
    tell(f"    order {number} is paid, {time.monotonic() - began:.1f} s later")


def _must_be_asked(gateway: str, number: str, total: str) -> None:
    """Compare the preview with the request to the gateway, to the cent."""
    state = httpx.get(
        f"{gateway}/_control/state",
        timeout=_PATIENCE_SECONDS,
        trust_env=False,
    ).json()
    amounts = [
        transaction["amount"]
        for transaction in state["transactions"]
        if transaction["reference"].startswith(f"{number}-")
    ]
    if amounts != [total]:
        raise PageProblem(
            f"the preview of order {number} said USD {total}, and the gateway was asked for "
            f"{amounts}",
        )


def _refund(office: Browser, number: str, amount: str, tell: Tell) -> None:
    address = f"/dashboard/orders/{number}/"
    page = office.open(address)
    office.submit(
        page,
        page.form("order_action", "create_order_payment_event"),
        amount=amount,
        reason="A page is creased",
    )
    until = time.monotonic() + _PATIENCE_SECONDS
    while f"Refunded USD {amount}" not in page.text:
        if time.monotonic() > until:
            raise PageProblem(
                f"USD {amount} of order {number} were not refunded within {_PATIENCE_SECONDS:.0f} s",
            )
        time.sleep(_PAUSE_SECONDS)
        page = office.open(address)
    events = page.text.partition("Payment Events")[2].partition("Shipping Method")[0]
    if events.count(f"Refund ${amount}") != 1:
        raise PageProblem(
            f"the refund of order {number} should be in Oscar's payment events once; they say: "
            f"{events}",
        )
    tell(f"    USD {amount} of order {number} are refunded")


def log_in(office: Browser, staff: tuple[str, str]) -> None:
    """Log a user of the staff, by address and password, in to the dashboard."""
    page = office.open("/dashboard/login/")
    page = office.submit(page, page.form("password"), username=staff[0], password=staff[1])
    if "login" in page.url:
        raise PageProblem(f"{staff[0]} cannot log in to the dashboard: {page.text[:300]}")


def _number(payment_page: Page) -> str:
    found = re.search(r"Order (\d+)", payment_page.text)
    if found is None:
        raise PageProblem(f"the payment page names no order: {payment_page.text[:300]}")
    return found[1]


def _has(page: Page, name: str) -> bool:
    return any(name in form.fields or name in form.choices for form in page.forms)
