"""The driver: how tests talk to a Saleor that has the App, here to its double."""

from __future__ import annotations

import functools
from decimal import Decimal

from django.urls import reverse

from tests.double import SaleorDouble, Source
from tests.storefront import Storefront
from tillgate.django.models import OutboxEvent, OutboxEventKind
from tillgate.django.outbox.delivering import deliver
from tillgate.django.outbox.remote import deliver_remote
from tillgate.shop import now
from tillgate.testing.driver import ShopDriver
from tillgate_saleor.models import Installation


@functools.cache
def running_double() -> SaleorDouble:
    """Return the double of all tests; its thread ends with the process."""
    return SaleorDouble()


class StorefrontDriver(ShopDriver):
    """Buys through a storefront. An order's key ends with the identifier of its checkout."""

    plugin = "saleor"
    # a checkout reserves nothing until its shopper begins a transaction, and Saleor drops it
    # without us
    waits_once_placed = False

    @staticmethod
    def carry_reports() -> None:
        """Deliver the due reports to Saleor, also those that wait for staff, as the worker does,
        which runs beside the service all the time.
        """
        kinds = (OutboxEventKind.REVIEW_OPENED, OutboxEventKind.REMOTE)
        waiting = OutboxEvent.objects.filter(kind__in=kinds, done_at__isnull=True).exclude(
            due_at__gt=now(),
        )
        for order_id in set(waiting.values_list("order_id", flat=True)):
            deliver(order_id)
            deliver_remote(order_id)

    def pay_path(self, order_key: str) -> str:
        return reverse("storefront-pay", args=[source_id(order_key)])


def source_id(order_key: str) -> str:
    """Return the identifier that Saleor has for an order of ours."""
    return order_key.partition(":")[2]


class SaleorDriver(StorefrontDriver):
    """Reads the ledger of the double."""

    @property
    def saleor(self) -> SaleorDouble:
        """The Saleor, with the App installed."""
        double = Storefront.saleor = running_double()
        if not Installation.objects.filter(api_url=double.api_url, app_id=double.app_id).exists():
            assert double.install() == (200, {"success": True})
        return double

    def _source(self, order_key: str) -> Source:
        """Return a checkout as Saleor has it."""
        self.carry_reports()
        assert running_double().faults == []
        return running_double().sources[source_id(order_key)]

    def place_order(self, total: Decimal) -> str:
        return self.place_order_in("USD", total)

    def place_order_in(self, currency: str, total: Decimal) -> str:
        saleor = self.saleor
        installation = Installation.objects.get(api_url=saleor.api_url)
        return f"{installation.pk}:{saleor.checkout(total, currency).id}"

    def is_paid(self, order_key: str) -> bool:
        source = self._source(order_key)
        return source.status == "open" and bool(source.ledger)

    def times_paid(self, order_key: str) -> int:
        source = self._source(order_key)
        return max(
            len(source.ledger),
            *(one.references_charged for one in source.transactions if source.ledger),
            0,
        )

    def paid_amount(self, order_key: str) -> Decimal:
        """Add up all money that came: Saleor's books contain a second payment too."""
        return sum(
            (one.counted("CHARGE") for one in self._source(order_key).transactions),
            Decimal(0),
        )

    def refunded(self, order_key: str) -> Decimal:
        return sum(
            (one.counted("REFUND") for one in self._source(order_key).transactions),
            Decimal(0),
        )

    def is_payable(self, order_key: str) -> bool:
        source = self._source(order_key)
        return source.status == "open" and not source.ledger

    def is_released(self, order_key: str) -> bool:
        return self._source(order_key).status == "expired"

    def close_order(self, order_key: str) -> None:
        """Take the checkout back, and cancel the transactions begun for it."""
        source = self._source(order_key)
        source.status = "closed"
        for transaction in source.transactions:
            running_double().request_cancel(transaction)

    def edit_total(self, order_key: str, total: Decimal) -> None:
        """Change the cart; the storefront then asks again for the ways to pay, as it does when it
        shows its payment step.
        """
        source = self._source(order_key)
        source.total = total
        running_double().gateway_initialize(source)

    def place_free_order(self) -> str:
        """Saleor makes an order of a checkout that costs nothing without a payment."""
        key = self.place_order(Decimal("0.00"))
        self._source(key).ledger.append("free")
        return key

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        key = self.place_order(total)
        source = self._source(key)
        self.saleor.charge_by_another_app(source, total)
        source.ledger.append("paid")
        return key
