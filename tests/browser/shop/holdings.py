"""The holdings of the shop and the gateway, each read at its source: the shop's database and the
gateway's ledger.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import httpx

_PATIENCE_SECONDS: Final = 20.0
_PAUSE_SECONDS: Final = 0.2

# SQLite keeps a decimal as a number; `printf` refunds the cents that Oscar stored.
_ORDERS: Final = """
    SELECT bought.number, bought.status, printf('%.2f', bought.total_incl_tax), waiting.id,
           (SELECT printf('%.2f', coalesce(sum(amount_debited), 0)) FROM payment_source WHERE order_id = bought.id),
           (SELECT printf('%.2f', coalesce(sum(amount_refunded), 0)) FROM payment_source WHERE order_id = bought.id)
    FROM order_order AS bought LEFT JOIN tillgate_order AS waiting ON waiting.key = bought.number
    WHERE bought.id > ? ORDER BY bought.id
"""
_ACTORS: Final = (
    "SELECT actor FROM tillgate_timelineentry WHERE order_id = ? AND event = ? ORDER BY id"
)


@dataclass(frozen=True, slots=True)
class Money:
    """The money taken, and how much of it was refunded."""

    paid: Decimal = Decimal()
    refunded: Decimal = Decimal()

    def __add__(self, other: Money) -> Money:
        return Money(self.paid + other.paid, self.refunded + other.refunded)


@dataclass(frozen=True, slots=True)
class Order:
    """An order as the shop's books have it."""

    number: str
    status: str
    total: Decimal
    money: Money
    key: int
    """Of the order in Tillgate's tables, where its timeline is."""


class Ledger:
    """Both books, of the orders that were placed since these were opened."""

    def __init__(self, database: Path, gateway: str) -> None:
        self._database, self._gateway = f"{database.as_uri()}?mode=ro", gateway
        self._before = self._ask("SELECT coalesce(max(id), 0) FROM order_order")[0][0]
        self._earlier = set(self.transactions())

    def _ask(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._database, uri=True)) as connection:
            return connection.execute(question, values).fetchall()

    def orders(self) -> list[Order]:
        """Return the shop's holdings for each order."""
        rows = self._ask(_ORDERS, self._before)
        return [
            Order(number, status, Decimal(total), Money(Decimal(paid), Decimal(refunded)), key)
            for number, status, total, key, paid, refunded in rows
        ]

    def order(self) -> Order:
        """Return the one order that was placed; more, or none, is a fault."""
        [order] = self.orders()
        return order

    def actors(self, event: str) -> list[str]:
        """Return the actors of the order's timeline entries of a kind."""
        return [actor for (actor,) in self._ask(_ACTORS, self.order().key, event)]

    def transactions(self) -> dict[str, dict[str, Any]]:
        """Return everything that the gateway was ever asked to take, by reference."""
        state = httpx.get(f"{self._gateway}/_control/state", timeout=_PATIENCE_SECONDS).json()
        return {transaction["reference"]: transaction for transaction in state["transactions"]}

    def payments(self) -> list[dict[str, Any]]:
        """Return the payments that the gateway was sent since these books were opened, the oldest
        first.
        """
        found = [
            transaction
            for reference, transaction in self.transactions().items()
            if reference not in self._earlier
        ]
        return sorted(found, key=lambda transaction: float(transaction["createdAt"]))

    def held_by_gateway(self) -> dict[str, Money]:
        """Return the gateway's holdings for each order's number."""
        held: defaultdict[str, Money] = defaultdict(Money)
        for transaction in self.payments():
            if transaction["status"] == "paid":
                number = transaction["reference"].rpartition("-")[0]
                held[number] += Money(
                    Decimal(transaction["amount"]),
                    Decimal(transaction["refunded"]),
                )
        return dict(held)

    def held_by_shop(self) -> dict[str, Money]:
        """Return the amounts that the shop holds as paid for each order's number."""
        return {order.number: order.money for order in self.orders() if order.money != Money()}

    def must_agree(self) -> None:
        """Demand that both hold the same for every order, to the cent, as soon as everything under
        way has arrived.
        """
        until = time.monotonic() + _PATIENCE_SECONDS
        while self.held_by_gateway() != self.held_by_shop() and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)
        assert self.held_by_shop() == self.held_by_gateway()
        for order in self.orders():
            assert order.money.paid in (0, order.total), (
                f"order {order.number} costs {order.total}, and {order.money.paid} was paid"
            )
            assert (order.status == "Paid") == (order.money.paid == order.total), (
                f"order {order.number} is {order.status}"
            )
