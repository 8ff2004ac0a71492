"""The visitors in front of the browser: their pointing devices, and their way through the shop."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final, Protocol

from playwright.sync_api import Locator, Page, expect

_PATIENCE_MS: Final = 15_000
_MOST_TABS: Final = 80
_MOST_ARROWS: Final = 20

# Where the focus is drawn: around the element itself, or around the label that holds a radio
# button.
_FOCUS_IS_VISIBLE: Final = """element => [element, ...element.labels ?? []].some(drawn => {
    const style = getComputedStyle(drawn);
    return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2) || style.boxShadow !== "none";
})"""


class Hand(Protocol):
    """How a visitor presses, writes and chooses."""

    def press(self, target: Locator) -> None:
        """Press a link or a button."""

    def write(self, target: Locator, text: str) -> None:
        """Fill a field."""

    def choose(self, radio: Locator) -> None:
        """Choose one of several."""


class Mouse:
    """A mouse, with the keys for writing."""

    def press(self, target: Locator) -> None:
        target.click()

    def write(self, target: Locator, text: str) -> None:
        target.fill(text)

    def choose(self, radio: Locator) -> None:
        radio.check()


class Finger(Mouse):
    """A finger on a phone."""

    def press(self, target: Locator) -> None:
        target.tap()

    def choose(self, radio: Locator) -> None:
        radio.tap()
        expect(radio).to_be_checked()


class Keyboard:
    """Tab, arrows, Enter and letters alone; wherever the focus goes it can be seen."""

    def press(self, target: Locator) -> None:
        self._reach(target, "element => element === document.activeElement")
        target.page.keyboard.press("Enter")

    def write(self, target: Locator, text: str) -> None:
        self._reach(target, "element => element === document.activeElement")
        target.page.keyboard.type(text)

    def choose(self, radio: Locator) -> None:
        self._reach(radio, "element => element.name === document.activeElement.name")
        for _ in range(_MOST_ARROWS):
            if radio.is_checked():
                return
            radio.page.keyboard.press("ArrowDown")
        raise AssertionError(f"{radio} cannot be chosen with the arrow keys")

    def _reach(self, target: Locator, is_reached: str) -> None:
        expect(target).to_be_visible()
        for _ in range(_MOST_TABS):
            if target.evaluate(is_reached):
                break
            target.page.keyboard.press("Tab")
        else:
            raise AssertionError(f"{target} cannot be reached with the Tab key")
        focused = target.page.locator(":focus")
        assert focused.evaluate(_FOCUS_IS_VISIBLE), f"the focus on {target} cannot be seen"
        expect(focused).to_be_in_viewport()


class Shopper:
    """Buys as a guest. Every page is passed to `look`, with its name."""

    def __init__(self, page: Page, hand: Hand, look: Callable[[Page, str], None]) -> None:
        self.page, self.hand = page, hand
        self._look = look

    def see(self, heading: str | re.Pattern[str]) -> None:
        """Wait for the page with a heading, and look at it."""
        title = self.page.get_by_role("heading", level=1)
        expect(title).to_have_text(heading, timeout=_PATIENCE_MS)
        self._look(self.page, title.inner_text())

    def press(self, name: str | re.Pattern[str], role: str = "button") -> None:
        """Press the button, or link, of a name."""
        exact = isinstance(name, str)
        # a literal there, text here
        self.hand.press(self.page.get_by_role(role, name=name, exact=exact))  # type: ignore[arg-type]

    def follow(self, name: str | re.Pattern[str]) -> None:
        """Press the link of a name."""
        self.press(name, "link")

    def press_twice(self, name: str, *, is_sent_twice: bool) -> None:
        """Press a button, and once more while the first press is under way: a page with a script
        may hear only the first.

        The browser would make one of a quicker double click.
        """
        button = self.page.get_by_role("button", name=name, exact=True)
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box
        for is_heard in (True, is_sent_twice):
            sent = (
                self.page.expect_request(lambda request: request.method == "POST")
                if is_heard
                else nullcontext()
            )
            with sent:
                self.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def browse(self, goods: str) -> None:
        """Find something on the shelves, read about it, and put it into the cart."""
        self.page.goto("/")
        self.see("Write it down.")
        self.follow("Look around")
        self.see("Everything")
        self.follow(goods)
        self.see(goods)
        self.press("Add to cart")
        self._see_added(goods)

    def fill_cart(self, goods: str) -> None:
        """Put something that the front page shows into the cart."""
        self.page.goto("/")
        self.see("Write it down.")
        self.hand.press(
            self.page.get_by_role("article")
            .filter(has_text=goods)
            .get_by_role("button", name="Add to cart"),
        )
        self._see_added(goods)

    def _see_added(self, goods: str) -> None:
        expect(self.page.get_by_text(f"{goods} has been added to your cart")).to_be_visible(
            timeout=_PATIENCE_MS,
        )
        self._look(self.page, "In the cart")

    def check_out(self, method: str) -> None:
        """Go from the cart to the preview of the order."""
        self.follow("View cart")
        self.see("Cart")
        self.follow("Checkout")
        self.see("Who are you?")
        self.hand.write(self.page.get_by_label("My email address is"), "ada@example.com")
        self.press("Continue")
        self.see("Shipping address")
        for label, text in _ADDRESS.items():
            self.hand.write(self.page.get_by_label(label), text)
        self.press("Continue")
        self.see("Shipping method")
        self.press("Send it: By post")
        self.see("Payment")
        self.hand.choose(self.page.get_by_label(method, exact=True))
        self._look(self.page, "Payment chosen")
        self.press("Continue")
        self.see("Preview order")

    def go_to_payment_page(self, method: str = "PayPal") -> str:
        """Buy something, up to the payment page; return the total."""
        self.fill_cart("Writing set")
        self.check_out(method)
        return self.place_order()

    def place_order(self) -> str:
        """Place the order; return the total that the preview showed and the payment page asks
        for.
        """
        total = self.total()
        self.press("Place order")
        self.see_payment_page(total)
        return total

    def total(self) -> str:
        """Return the total that the page shows."""
        return (
            self.page.get_by_role("row", name=re.compile("^Total"))
            .get_by_role("cell")
            .inner_text()
            .removeprefix("$")
        )

    def see_payment_page(self, total: str) -> None:
        """Wait for the payment page, which asks for the total that the shop showed."""
        expect(self.page.get_by_role("button", name=f"Pay USD {total}", exact=True)).to_be_visible(
            timeout=_PATIENCE_MS,
        )
        expect(self.page.get_by_role("heading", name="Fold & Margin")).to_be_visible()
        self._look(self.page, "Cashier")

    def pay(self) -> None:
        """Pay on the payment page."""
        self.press(re.compile("^Pay USD"))

    def see_paid(self, number: str) -> None:
        """Wait for the shop's page that thanks for the order."""
        self.see(f"Order {number}: confirmation")

    def pay_again(self, method: str) -> None:
        """Choose another way to pay, from the order's page."""
        self.follow("Pay now")
        self.see("Choose how to pay")
        self.hand.choose(self.page.get_by_label(method, exact=True))
        self.press("Continue to payment")


_ADDRESS: Final = {
    "First name": "Ada",
    "Last name": "Lovelace",
    "First line of address": "12 Mill Lane",
    "City": "Burlington",
    "State/County": "Vermont",
    "Post/Zip-code": "05401",
}
