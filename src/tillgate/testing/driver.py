"""The driver: how tests talk to a shop of any framework. A plugin's author writes one driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal

__all__ = ["ShopDriver"]


class ShopDriver(ABC):
    """What the tests need to do to a shop and to see of it; a driver is a subclass.

    An order is named by the key under which the plugin gives it to Tillgate. What a driver tells must be read anew from where the shop
    itself keeps it, each time: other threads and processes change it meanwhile.
    """

    plugin: str
    """The plugin's entry-point name, which Tillgate's rows carry."""

    @abstractmethod
    def place_order(self, total: Decimal) -> str:
        """Place an order of a total in dollars that waits to be paid with Tillgate, and return its key.

        Whatever it needs (a product, a country, a customer), it makes: tests empty the tables, and what a migration wrote is gone too.
        """

    @abstractmethod
    def is_paid(self, order_key: str) -> bool:
        """Tell whether the shop holds the order to be paid: whether it would be sent to the customer."""

    @abstractmethod
    def times_paid(self, order_key: str) -> int:
        """Tell how often being paid took effect in the shop: count entries in its books, mails, tickets... rather than read one flag."""

    @abstractmethod
    def refunded(self, order_key: str) -> Decimal:
        """Tell how much the shop holds to be refunded, in dollars; 0 when nothing was. Add up its books rather than read one flag."""

    @abstractmethod
    def is_payable(self, order_key: str) -> bool:
        """Tell whether the shop still waits for the order to be paid."""

    @abstractmethod
    def is_released(self, order_key: str) -> bool:
        """Tell whether the shop gave up the order because nobody paid: stock, seats and vouchers are free again."""

    @abstractmethod
    def close_order(self, order_key: str) -> None:
        """Close the order as the shop's staff would, which the plugin hears of and passes on to `operations.close_order`."""

    @abstractmethod
    def edit_total(self, order_key: str, total: Decimal) -> None:
        """Change what the order costs as the shop's staff would, after a payment of it may have been started."""

    # What most shops have alike -----------------------------------------------------------------------------------------------------------

    def pay_path(self, order_key: str) -> str:
        """Return the path of the page where a shopper chooses how to pay the order, first or again: Tillgate's own, or the shop's.

        A POST of `payment method` there leads to the payment page, by way of the shop's own redirects if it likes. The page works in a
        browser that the shop has never seen.
        """
        from tillgate.django.tickets import pay_url

        return pay_url(self.plugin, order_key)

    # Capabilities that not every shop has -------------------------------------------------------------------------------------------------

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        """Place an order and pay it with another payment method of the shop, cash or invoice, and return its key."""
        raise NotImplementedError("the driver does not place orders that are paid otherwise: implement it, or decline the scenario")

    def place_order_in(self, currency: str, total: Decimal) -> str:
        """Place an order in another currency than dollars that waits to be paid, and return its key; nobody may pay it with Tillgate.

        `currency` is a code of ISO 4217, such as "EUR". A shop that sells in dollars alone declines the scenario.
        """
        raise NotImplementedError("the driver does not place orders in another currency: implement it, or decline the scenario")

    def times_released(self, order_key: str) -> int | None:
        """Tell how often giving up the order took effect: count what became free again in the shop's books rather than read one flag.

        None, if the shop keeps no count.
        """
        return None

    def heard_elsewhere(self, order_key: str) -> list[str] | None:
        """Tell what others have heard of an order over the network: the event id of each remote event, once for each arrival.

        None, if the plugin tells nobody that an order was paid or that money was refunded. Only the simulator and the killing ask.
        """
        return None

    def use_account(self, base_url: str, merchant_no: str, token: str) -> None:  # noqa: B027  # most have nothing to do
        """Point the shop's account at a gateway; only for a plugin that keeps accounts itself and implements `tillgate_account`.

        All others find theirs in `TILLGATE["ACCOUNTS"]`, which is set before this is called.
        """
