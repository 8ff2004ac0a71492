"""The driver connects the tests to a shop of any framework. A plugin's author writes one driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal

__all__ = ["ShopDriver"]


class ShopDriver(ABC):
    """The acts of the tests on a shop, and the facts that they read from it. A driver is a subclass.

    Orders have the plugin's own keys. Each method reads the shop's storage again, because other threads and processes change it.
    """

    plugin: str
    """The plugin's entry-point name, which Tillgate's rows carry."""

    @abstractmethod
    def place_order(self, total: Decimal) -> str:
        """Place an order of a total in USD that waits to be paid with Tillgate, and return its key.

        The method makes every object that the order needs, since tests empty the tables.
        """

    @abstractmethod
    def is_paid(self, order_key: str) -> bool:
        """Return whether the shop regards the order as paid: whether it would send the goods."""

    @abstractmethod
    def times_paid(self, order_key: str) -> int:
        """Return how often the payment took effect in the shop: count entries in its books, mails, tickets... rather than read one flag."""

    @abstractmethod
    def refunded(self, order_key: str) -> Decimal:
        """Return the amount that the shop regards as refunded, 0 for none. Add up its books rather than read one flag."""

    @abstractmethod
    def is_payable(self, order_key: str) -> bool:
        """Return whether the shop still waits for the order to be paid."""

    @abstractmethod
    def is_released(self, order_key: str) -> bool:
        """Return whether the shop released the unpaid order: stock, seats and vouchers are free again."""

    @abstractmethod
    def close_order(self, order_key: str) -> None:
        """Close the order as the shop's staff would. The plugin must react with `operations.close_order`."""

    @abstractmethod
    def edit_total(self, order_key: str, total: Decimal) -> None:
        """Change the price of the order as the shop's staff would, after a payment of it may have been started."""

    # Defaults that fit most shops ---------------------------------------------------------------------------------------------------------

    def pay_path(self, order_key: str) -> str:
        """Return the path of the page where a shopper chooses a payment method: Tillgate's own page, or the shop's.

        A POST of `method` there leads to the payment page, also in a browser that the shop has never seen.
        """
        from tillgate.django.tickets import pay_url

        return pay_url(self.plugin, order_key)

    # Capabilities that not every shop has -------------------------------------------------------------------------------------------------

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        """Place an order and pay it with another payment method of the shop, cash or invoice, and return its key."""
        scenario = "other_payment_methods_are_undisturbed"
        raise NotImplementedError(
            f"the driver does not place orders that are paid otherwise: implement it, or decline the scenario {scenario}"
        )

    def place_order_in(self, currency: str, total: Decimal) -> str:
        """Place an order in another currency, such as "EUR", that waits to be paid, and return its key. The account may not take it."""
        scenarios = "order_in_another_currency and currency_without_decimals"
        raise NotImplementedError(
            f"the driver does not place orders in another currency: implement it, or decline the scenarios {scenarios}"
        )

    def times_released(self, order_key: str) -> int | None:
        """Return how often the release took effect, counted in the shop's books, or None if the shop keeps no count."""
        return None

    def heard_elsewhere(self, order_key: str) -> list[str] | None:
        """Return the event id of each remote event about an order, once per arrival, or None if the plugin delivers no remote events."""
        return None

    def use_account(self, base_url: str, merchant_no: str, token: str, **options: str) -> None:  # noqa: B027  # most have nothing to do
        """Point the shop's account at a gateway; only for a plugin that keeps accounts itself and implements `tillgate_account`."""
