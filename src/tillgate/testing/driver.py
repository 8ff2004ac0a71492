"""The driver connects the tests to a shop of any framework. A plugin's author writes one driver.

The conformance kit, the simulator and the kill harness use these definitions alike;
`driver.md` beside this explains them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from decimal import Decimal
from html import unescape
from typing import Any


def pay_link(page: Any) -> str | None:
    """Return the address of Tillgate's pay page that a page of the shop, a response of Django's
    test client, links to, or None.
    """
    from django.urls import reverse

    to_any = re.escape(reverse("tillgate:pay", args=["-"]).rpartition("-")[0])
    found = re.search(
        rf"""href=["']?((?:https?://[^/"'\s]+)?{to_any}[^"'\s>]+)""",
        b"".join(page).decode(errors="replace"),
    )
    return unescape(found[1]) if found else None


class ShopDriver(ABC):
    """The acts of the tests on a shop, and the facts that they read from it. A driver is a
    subclass.

    Orders have the plugin's own keys. Each method reads the shop's storage again, because other
    threads and processes change it.
    """

    plugin: str
    """The plugin's name, which Tillgate's rows carry."""

    waits_once_placed: bool = True
    """Whether the shop waits for the money of an order, and releases it in time, as soon as it is
    placed.

    False only where an order is a cart, which holds nothing, until its shopper begins to pay.
    """

    @abstractmethod
    def place_order(self, total: Decimal) -> str:
        """Place an order of a total in USD that waits to be paid with Tillgate, in the shop's own
        way, and return its key.

        The shop's own code registers it with `open_order`: the driver does not. The method makes
        every object that the order needs, since tests empty the tables.
        """

    @abstractmethod
    def pay_path(self, order_key: str) -> str | None:
        """Return the address where the shop lets the shopper of an order choose a payment method,
        or None without one.

        Read it from the shop's answer or page, as `pay_link` does, and do not build it from the
        key. A POST of `method` there leads to the payment page, also in a browser that the shop has
        never seen.
        """

    @abstractmethod
    def is_paid(self, order_key: str) -> bool:
        """Return whether the shop regards the order as paid: whether it would send the goods.

        A partial refund, and any refund of a second payment, leaves it paid. After the payment that
        paid it is refunded entirely, both answers are right.
        """

    @abstractmethod
    def times_paid(self, order_key: str) -> int:
        """Return how often the payment took effect in the shop: count entries in its books, mails,
        tickets... rather than read one flag.

        A refund changes nothing here, and a second payment, which pays nothing, is not counted.
        """

    @abstractmethod
    def refunded(self, order_key: str) -> Decimal:
        """Return the refunds that the shop has booked for the order, 0 for none. Add up its books
        rather than read one flag.

        A refund is booked where its payment is: in a shop whose books hold only the money that paid
        the order, a second payment's is not.
        """

    @abstractmethod
    def is_payable(self, order_key: str) -> bool:
        """Return whether the shop still waits for the order to be paid."""

    @abstractmethod
    def is_released(self, order_key: str) -> bool:
        """Return whether the shop released the unpaid order: stock, seats and vouchers are free
        again.
        """

    @abstractmethod
    def close_order(self, order_key: str) -> None:
        """Close an unpaid order as the shop's staff would. The plugin must react with
        `close_order`.

        On an order that was paid in the meantime it may raise or do nothing, as the shop does.
        """

    @abstractmethod
    def edit_total(self, order_key: str, total: Decimal) -> None:
        """Change the price of the order as the shop's staff would, after a payment of it may have
        been started.
        """

    def place_free_order(self) -> str:
        """Place an order that costs nothing in the shop's own way, as with a voucher, and return
        its key. The shop takes it for paid.
        """
        return self.place_order(Decimal("0.00"))

    # Capabilities that not every shop has ---------------------------------------------------------

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        """Place an order and pay it with another payment method of the shop, cash or invoice, and
        return its key.
        """
        scenario = "other_payment_methods_are_undisturbed"
        raise NotImplementedError(
            "the driver does not place orders that are paid otherwise: implement it, or decline "
            f"the scenario {scenario}",
        )

    def place_order_in(self, currency: str, total: Decimal) -> str:
        """Place an order in another currency, such as "EUR", that waits to be paid, and return its
        key. The account may not take it.
        """
        scenarios = "order_in_another_currency and currency_without_decimals"
        raise NotImplementedError(
            "the driver does not place orders in another currency: implement it, or decline the "
            f"scenarios {scenarios}",
        )

    def paid_amount(self, order_key: str) -> Decimal | None:
        """Return the sum of the payments that the shop has booked for the order, refunds not
        subtracted; None if its books hold no sums.

        It is the money that paid the order or, in a shop that books it, all money that came for the
        order, a second payment's included.
        """
        return None

    def times_released(self, order_key: str) -> int | None:
        """Return how often the release took effect, counted in the shop's books, or None if the
        shop keeps no count.
        """
        return None

    def heard_elsewhere(self, order_key: str) -> list[str] | None:
        """Return the event id of each remote event about an order, once per arrival, or None if the
        plugin delivers no remote events.
        """
        return None

    # most have nothing to do
    def use_account(self, base_url: str, merchant_no: str, token: str, **options: str) -> None:  # noqa: B027
        """Point the shop's account at a gateway; only for a plugin that keeps accounts itself and
        implements `tillgate_account`.
        """
