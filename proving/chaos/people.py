"""Shoppers who buy while everything dies, and a clerk who refunds money; each starts again when the
shop fails them.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from random import Random
from typing import Final

import httpx

from example_shop.browser import Browser, PageProblem
from example_shop.walk import log_in, order

__all__ = ["Clerk", "Person", "Shopper"]

_GOODS: Final = ("Writing set", "Fountain pen", "Linen journal", "Sealing wax", "Gift card, 13.61")
_METHODS: Final = ("paypal", "venmo", "alipay", "wechatpay", "creditcard")
_FAILURES: Final = (PageProblem, httpx.HTTPError)
_REST_SECONDS: Final = 0.5


class Person(threading.Thread):
    """Acts again and again until stopped."""

    def __init__(self, shop: str, seed: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.shop, self.chance, self.stop_wanted = shop, Random(seed), stop  # repeatable on purpose
        self.did: Counter[str] = Counter()
        self.last_failure = ""

    def run(self) -> None:
        """ReviewAction, and rest a little after each act."""
        while not self.stop_wanted.is_set():
            try:
                self.action()
            except _FAILURES as failure:
                self.did[f"failed: {type(failure).__name__}"] += 1
                self.last_failure = str(failure)
                time.sleep(_REST_SECONDS)

    def action(self) -> None:
        """Do one thing from beginning to end."""
        raise NotImplementedError


class Shopper(Person):
    """Buys one thing as a guest, and comes back from the payment page or not."""

    def action(self) -> None:
        """Go through a whole purchase."""
        chance = self.chance
        with Browser(self.shop) as guest:
            payment_page, _ = order(
                guest,
                [chance.choice(_GOODS)],
                chance.choice(_METHODS),
                lambda _: None,
            )
            self.did["ordered"] += 1
            for _ in range(3):
                decision = chance.choices(("pay", "decline", "leave"), (80, 10, 10))[0]
                if decision == "pay" and chance.random() < 0.5:
                    guest.submit_and_close(payment_page, payment_page.forms[0], decision="pay")
                    self.did["paid and closed the tab"] += 1
                    return
                back = guest.submit(payment_page, payment_page.forms[0], decision=decision)
                self.did[
                    {"pay": "paid and came back", "decline": "was declined", "leave": "left"}[
                        decision
                    ]
                ] += 1
                if decision == "pay" or "Pay now" not in " ".join(back.links):
                    return
                choice = guest.open(back.link("Pay now"))
                payment_page = guest.submit(
                    choice,
                    choice.form("method"),
                    method=chance.choice(_METHODS),
                )
                if "/cashier/" not in payment_page.url:
                    return


class Clerk(Person):
    """Refunds a part of some order in the dashboard, now and then."""

    def __init__(self, shop: str, seed: str, stop: threading.Event, staff: tuple[str, str]) -> None:
        super().__init__(shop, seed, stop)
        self._staff = staff

    def action(self) -> None:
        """Give some money back."""
        with Browser(self.shop) as office:
            log_in(office, self._staff)
            while not self.stop_wanted.is_set():
                self.stop_wanted.wait(self.chance.uniform(0.5, 3))
                page = office.open("/dashboard/orders/?status=Paid")
                numbers = sorted(
                    {
                        found[1]
                        for link in page.links.values()
                        if (found := re.search(r"/dashboard/orders/(\d+)/", link))
                    },
                )
                if not numbers:
                    continue
                page = office.open(f"/dashboard/orders/{self.chance.choice(numbers)}/")
                amount = f"{self.chance.randint(1, 400) / 100:.2f}"
                form = page.form("order_action", "create_order_payment_event")
                office.submit(page, form, amount=amount, reason="A page is creased")
                self.did["refunded money"] += 1
