"""The driver: how the conformance kit talks to a real Saleor. Our App is in the kit's own process,
where the kit can make it fail.
"""

from __future__ import annotations

import secrets
from collections import Counter
from decimal import Decimal
from typing import Any, Final

from tests.double import Source
from tests.driver import StorefrontDriver, source_id
from tests.real import documents
from tests.real.saleor import Attempt, Saleor, Storefront, until
from tests.storefront import RETURN_URL
from tillgate_saleor.models import Installation

APP_ID: Final = "tillgate-conformance"
"""Its own identifier: an App that a developer has installed by hand may exist beside it."""
_PAID: Final = ("FULL", "OVERCHARGED")


class Shop:
    """A Saleor with the App installed, whose storefront may name the price: a total to the cent
    needs no product of its own.
    """

    def __init__(self, saleor: Saleor) -> None:
        self.saleor = saleor
        self.sources: dict[str, Source] = {}
        self.transactions: dict[str, Attempt] = {}
        self._storefront = Storefront(saleor, APP_ID, RETURN_URL)
        self._channel = saleor.channel("tillgate-charges")
        made = saleor.ask(documents.MAKE_APP, name=f"{APP_ID}-{secrets.token_hex(3)}")
        self._backend, self._token = made["app"]["id"], made["authToken"]
        self._installation: Installation | None = None

    def close(self) -> None:
        """Leave the Saleor as it was, but for the checkouts."""
        self.saleor.uninstall(APP_ID)
        self.saleor.ask(documents.UNINSTALL, id=self._backend)

    def install(self, manifest_url: str) -> None:
        """Install the App, once; the kit empties the tables before each scenario, and this puts its
        rows back.
        """
        if self._installation is None:
            self.saleor.uninstall(APP_ID)
            self.saleor.install(manifest_url)
            self._installation = until("the App has its token", Installation.objects.first)
        else:
            self._installation.save(force_insert=True)

    # The shopper, through the storefront ----------------------------------------------------------

    def checkout(self, total: Decimal) -> Source:
        """Fill a cart."""
        about = {"channel": self._channel.slug, "variant": self._channel.variant, "price": total}
        made = self.saleor.ask_as(self._token, documents.PRICED_CHECKOUT, **about)
        source = self.sources[made["checkout"]["id"]] = Source(made["checkout"]["id"], total)
        return source

    def edit(self, source: Source, total: Decimal) -> None:
        """Change the cart."""
        self.saleor.ask_as(
            self._token,
            documents.PRICE_CHECKOUT,
            id=source.id,
            variant=self._channel.variant,
            price=total,
        )
        source.total = total

    def gateway_initialize(self, source: Source) -> tuple[int, Any]:
        """Ask how can be paid."""
        return 200, {"data": self._storefront.ways_to_pay(source.id)}

    def initialize(self, source: Source, key: str, data: Any) -> tuple[Attempt, Any]:
        """Begin a transaction; with the same key, the same one."""
        attempt = self._storefront.begin(source.id, key=key, data=data)
        self.transactions[attempt.transaction] = attempt
        return attempt, {"result": attempt.event, "data": attempt.data}

    def process(self, transaction: Attempt) -> Any:
        """Ask how a transaction stands."""
        return {"result": self._storefront.process(transaction.transaction).event}


class RealSaleorDriver(StorefrontDriver):
    """Reads the ledger of a real Saleor. A checkout is paid when Saleor would make an order of
    it.
    """

    def __init__(self, shop: Shop) -> None:
        self.shop = shop

    def _ledger(self, order_key: str) -> Any:
        """Return a checkout as Saleor has it, the events of its transactions from the oldest on:
        each is charged under one pspReference.
        """
        self.carry_reports()
        found = self.shop.saleor.ask(documents.SOURCE, id=source_id(order_key))
        for transaction in found["transactions"]:
            transaction["events"].sort(key=lambda event: str(event["createdAt"]))
            references = {
                event["pspReference"]
                for event in transaction["events"]
                if event["type"].startswith("CHARGE_")
            }
            assert len(references - {""}) <= 1, f"one transaction was told of as {references}"
        return found

    def place_order(self, total: Decimal) -> str:
        return f"{Installation.objects.get().pk}:{self.shop.checkout(total).id}"

    def is_paid(self, order_key: str) -> bool:
        return self._has_paid(self._ledger(order_key))

    @staticmethod
    def _has_paid(ledger: Any) -> bool:
        """Tell whether a checkout was charged in full. Saleor subtracts refunds from the charge;
        here they change nothing.
        """
        return ledger["chargeStatus"] in _PAID or any(
            one["refundedAmount"]["amount"] for one in ledger["transactions"]
        )

    def times_paid(self, order_key: str) -> int:
        """Return how often the same money was counted, in one transaction or in several. A second
        payment is other money.
        """
        ledger = self._ledger(order_key)
        events = [
            (one["id"], event)
            for one in ledger["transactions"]
            for event in one["events"]
            if event["type"] == "CHARGE_SUCCESS"
        ]
        counted = Counter(
            name for transaction, event in events for name in (transaction, event["pspReference"])
        )
        return max(counted.values(), default=0) if self._has_paid(ledger) else 0

    def paid_amount(self, order_key: str) -> Decimal:
        """Add up all money that came, also a second payment's; Saleor subtracts refunds from its
        charged amount.
        """
        transactions = self._ledger(order_key)["transactions"]
        sums = (
            one[kind]["amount"]
            for one in transactions
            for kind in ("chargedAmount", "refundedAmount")
        )
        return sum(sums, Decimal(0))

    def refunded(self, order_key: str) -> Decimal:
        return sum(
            (one["refundedAmount"]["amount"] for one in self._ledger(order_key)["transactions"]),
            Decimal(0),
        )

    def is_payable(self, order_key: str) -> bool:
        return not self.is_paid(order_key)

    def is_released(self, order_key: str) -> bool:
        """Tell whether Saleor knows of every transaction that was not paid. Dropping the checkout
        is Saleor's own affair.
        """
        ledger = self._ledger(order_key)
        last_words = [one["events"][-1]["type"] for one in ledger["transactions"]]
        return ledger["chargeStatus"] not in _PAID and set(last_words) == {"CHARGE_FAILURE"}

    def close_order(self, order_key: str) -> None:
        """Cancel the transactions begun: the staff can do no more to a checkout."""
        for transaction in self._ledger(order_key)["transactions"]:
            self.shop.saleor.request(transaction["id"], "CANCEL")
            until(
                "it is canceled",
                lambda id_=transaction["id"]: (  # type: ignore[misc]
                    "CANCEL_SUCCESS" in dict(self.shop.saleor.events(id_))
                ),
            )

    def edit_total(self, order_key: str, total: Decimal) -> None:
        """Change the cart; the storefront then asks again for the ways to pay, as it does when it
        shows its payment step.
        """
        source = self.shop.sources[source_id(order_key)]
        self.shop.edit(source, total)
        self.shop.gateway_initialize(source)

    def place_order_paid_otherwise(self, total: Decimal) -> str:
        key = self.place_order(total)
        self.shop.saleor.ask(documents.PAY_BY_HAND, id=source_id(key), amount=total)
        return key
