"""Slow money, on any gateway: between the shopper's act and the money lie hours or days."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from tillgate.hooks import hookimpl
from tillgate.wire.details import NextStep
from tillgate.wire.messages import Transaction
from tillgate.wire.profile import TransactionStatus


class SlowMoney:
    """A wrapper around every gateway's query: while the money of a payment is held here, the answer
    says that it is under way.
    """

    def __init__(self) -> None:
        self._held: dict[str, NextStep | None] = {}

    def hold(self, reference: str, next_step: NextStep | None = None) -> None:
        """Let the money of a payment be under way, against the gateway's word; with a next step the
        shopper still has to pay a voucher.
        """
        self._held[reference] = next_step

    def release(self, reference: str) -> None:
        """Let the gateway's own answers through again."""
        del self._held[reference]

    @hookimpl(wrapper=True)
    def tillgate_query(self, reference: str) -> Generator[None, Transaction, Transaction]:
        """Change the answer about a payment with held money."""
        found = yield
        if reference not in self._held:
            return found
        return replace(
            found,
            status=TransactionStatus.PROCESSING,
            status_text="processing",
            next_step=self._held[reference],
        )
