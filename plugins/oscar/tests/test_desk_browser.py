"""The ten tasks of a clerk in a browser, by keyboard, with the presses and the words that each takes.

A press chooses a link, a button, a tick or a field. Typing into a field costs nothing more, and
Enter sends it. Words are those that a clerk reads to decide: of the search box, a refund's page and
its confirmation, a review's card, the link's form, the totals of the figures. The menus and the
tables of Oscar and Django do not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import pytest
from oscar.core.loading import get_model
from playwright.sync_api import Locator, Page, expect

from tests.looking import WIDTHS, chromium, look  # noqa: F401  # a fixture
from tests.test_dashboard_browser import OURS, dashboard  # noqa: F401  # a fixture
from tests.test_occasions import disputed
from tests.test_refunds import Bought
from tillgate.django import actions
from tillgate.hooks import DisputeStatus
from tillgate.testing.world import World

MOST_WORDS: Final = 80
WOOCOMMERCE: Final = {
    "find by name": 4,
    "find by number": 4,
    "refund all": 6,
    "refund a part": 6,
    "refund a line": 6,
    "second payment": 5,
    "wrong amount": 5,
    "late money": 5,
    "unknown refund": 7,
    "dispute": 3,
    "month": 4,
    "resend a link": 5,
}
"""The presses of the steps that WooCommerce and its Stripe extension document."""


@dataclass
class Clerk:
    """Presses by keyboard, reads, and counts both."""

    page: Page
    world: World
    buy: Callable[[], Bought]
    presses: int = 0
    words: int = 0

    def press(self, one: Locator) -> None:
        one.focus()
        expect(one).to_be_focused()
        self.page.keyboard.press("Enter")
        self.presses += 1

    def button(self, name: str, role: Any = "button") -> None:
        self.press(self.page.get_by_role(role, name=name))

    def types(self, field: Locator, text: str) -> None:
        field.fill(text)
        self.presses += 1

    def reads(self, selector: str, picture: str = "") -> None:
        part = self.page.locator(selector)
        expect(part).to_be_visible()
        if picture:
            look(self.page, f"desk-{picture}", OURS)
        self.page.add_style_tag(content=".visually-hidden { display: none !important }")
        self.words += len(re.findall(r"\w[\w.,:@'-]*", part.inner_text()))

    def opens(self, name: str) -> None:
        """Choose an entry of the menu, which folds on a phone as WooCommerce's does."""
        self.page.goto("/dashboard/")
        for folded in self.page.locator(".navbar-toggler:visible").all():
            folded.click()
        self.button(name, "link")

    def finds(self, text: str) -> None:
        self.page.goto("/dashboard/")
        self.reads("#tillgate_find_form", "home")
        self.types(self.page.get_by_label("Find an order"), text)
        self.press(self.page.get_by_label("Find an order"))
        expect(self.page).to_have_url(re.compile(r"/dashboard/orders/\d+/$"))

    def says(self, text: str) -> None:
        expect(self.page.get_by_text(text).first).to_be_visible()


def find(clerk: Clerk, by: str) -> None:
    clerk.world.order("5.00")
    bought = clerk.buy()
    addresses = get_model("order", "ShippingAddress").objects
    addresses.filter(order__number=bought.order.number).update(last_name="Hopper")
    number = clerk.world.fresh(bought.payment).transaction_no
    clerk.finds("hopper" if by == "name" else str(number))
    clerk.says(f"Order #{bought.order.number}")


def refund(clerk: Clerk, what: str) -> None:
    clerk.finds(clerk.buy().order.number)
    clerk.button("Refund items", "link")
    if what == "all":
        clerk.reads("#tillgate_rest_form")
        clerk.button("Refund the rest")
    else:
        clerk.reads("section:has(#tillgate_items_form)", "refund")
        page, is_line = clerk.page, what == "a line"
        field = page.get_by_role("spinbutton") if is_line else page.get_by_label("Another amount")
        clerk.types(field.last, "1" if is_line else "2.50")
        clerk.button("Check the refund")
        clerk.reads("section:has(#tillgate_confirm_form)", "confirm")
        clerk.button("Refund USD")
    clerk.says("was refunded.")


def second_payment(clerk: Clerk) -> None:
    number = clerk.world.order("25.00")
    for payment in [clerk.world.start(number), clerk.world.start(number, "paypal")]:
        clerk.world.shopper_pays(payment)
        clerk.world.notification(payment)
    clerk.opens("Needs review")
    clerk.reads(".tillgate-card", "second")
    clerk.button("Refund…", "link")
    clerk.reads(".tillgate-question", "second-confirm")
    clerk.button("Refund USD 25.00")
    clerk.says("Resolved by anna")


def wrong_amount(clerk: Clerk) -> None:
    payment = clerk.world.start(clerk.world.order("12.50"))
    clerk.world.sandbox.control.fault("wrong_amount", times=9)
    clerk.world.shopper_pays(payment)
    clerk.world.notification(payment)
    clerk.world.sandbox.control.clear_faults()
    clerk.opens("Needs review")
    clerk.reads(".tillgate-card", "wrong-amount")
    clerk.press(clerk.page.locator("summary", has_text="Accept as paid"))
    clerk.reads("button:has-text('Accept USD')")
    clerk.button("Accept USD 12.51")
    clerk.says("Resolved by")


def late_money(clerk: Clerk) -> None:
    payment = clerk.world.start(number := clerk.world.order("12.50"))
    get_model("order", "Order").objects.get(number=number).set_status("Cancelled")
    clerk.world.shopper_pays(payment)
    clerk.world.notification(payment)
    clerk.opens("Needs review")
    clerk.reads(".tillgate-card", "late")
    clerk.button("Reopen and deliver")
    clerk.says("Resolved by")


def unknown_refund(clerk: Clerk) -> None:
    bought = clerk.buy()
    clerk.world.sandbox.control.fault("lost_response", occasion="refund")
    bought.ask(Decimal("1.00"))
    clerk.opens("Needs review")
    clerk.reads(".tillgate-card", "unknown")
    clerk.button("The refund was done")
    clerk.says("Resolved by anna")


def dispute(clerk: Clerk) -> None:
    """Done is the gateway's page about it, where it is answered."""
    payment = clerk.world.fresh(clerk.buy().payment)
    until = clerk.world.time.now() + timedelta(days=9)
    with disputed(DisputeStatus.OPEN, respond_by=until, url="https://gateway.example/d-0"):
        actions.poll_now(payment, "anna")
    clerk.opens("Needs review")
    clerk.reads(".tillgate-card", "dispute")
    link = clerk.page.get_by_role("link", name="Open the dispute at")
    expect(link).to_have_attribute("href", "https://gateway.example/d-0")
    clerk.press(link)


def month(clerk: Clerk) -> None:
    clerk.buy()
    clerk.opens("Payment figures")
    clerk.button("This month", "link")
    clerk.reads(".tillgate-totals", "figures")
    clerk.says("Net, before fees")


def resend_a_link(clerk: Clerk) -> None:
    clerk.finds(clerk.world.order("5.00"))
    clerk.press(clerk.page.locator('a[href="#payment"]'))
    clerk.reads("#tillgate_link_form", "link")
    clerk.button("Mail it to")
    clerk.says("The payment link goes to")


TASKS: Final[dict[str, Callable[[Clerk], None]]] = {
    "find by name": lambda clerk: find(clerk, "name"),
    "find by number": lambda clerk: find(clerk, "number"),
    "refund all": lambda clerk: refund(clerk, "all"),
    "refund a part": lambda clerk: refund(clerk, "a part"),
    "refund a line": lambda clerk: refund(clerk, "a line"),
    "second payment": second_payment,
    "wrong amount": wrong_amount,
    "late money": late_money,
    "unknown refund": unknown_refund,
    "dispute": dispute,
    "month": month,
    "resend a link": resend_a_link,
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("task", TASKS)
def test_task_takes_few_presses_and_words(
    dashboard: Callable[..., Page],  # noqa: F811
    world: World,
    product: Callable[..., Any],
    task: str,
    width: int,
) -> None:
    size = {"width": width, "height": 844}
    page = dashboard("/dashboard/", viewport=size, reduced_motion="reduce")
    clerk = Clerk(page, world, lambda: Bought(world, product))
    TASKS[task](clerk)
    print(f"{task}: {clerk.presses} presses, {clerk.words} words")  # noqa: T201  # for the table
    assert clerk.presses <= WOOCOMMERCE[task]
    assert clerk.words <= MOST_WORDS
