"""The gateway of the simulation: the emulator's service, which names the payer in answers and
notifications, as a gateway may, and holds slow money for hours or days.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final

from tillgate.sandbox.notifications import Notification, NotificationKind, Outbox
from tillgate.sandbox.service import Service
from tillgate.sandbox.transactions import Transaction

__all__ = ["PAYER_NAME", "SLOW_MONEY", "NamingOutbox", "NamingService"]

SLOW_MONEY: Final = ("slow_money", "slow_failure", "voucher")
"""The ways in which a gateway keeps the money of a payment under way."""
_HOUR: Final = 3600.0
_UNDER_WAY_SECONDS: Final = (5 * _HOUR, 30 * _HOUR, 48 * _HOUR, 96 * _HOUR)
"""How long the money of a payment is under way, and a voucher valid."""

PAYER_NAME: Final = "Ann Featherstonehaugh"
"""The name of every payer. Its last word stands nowhere else, and no encoding changes it."""


class NamingOutbox(Outbox):
    """Notifications with the payer's name, which their signature covers."""

    def put(
        self,
        kind: NotificationKind,
        transaction: Transaction,
        url: str,
        payload: Mapping[str, str],
        **more: Any,
    ) -> Notification:
        """Schedule a notification for its first sending."""
        return super().put(kind, transaction, url, {**payload, "payerName": PAYER_NAME}, **more)


class NamingService(Service):
    """A gateway that names the payer wherever it tells facts about a payment."""

    def reset(self) -> None:
        """Forget everything; the streams of random numbers continue."""
        super().reset()
        self.outbox = NamingOutbox()

    def _delay(self, transaction: Transaction, fault: str, now: float) -> None:
        """Let each slow payment take a time of its own."""
        options = self.options
        chance = Random(f"{options.seed}:{transaction.reference}:under way")  # repeatable
        seconds = chance.choice(_UNDER_WAY_SECONDS)
        self.options = replace(options, slow_seconds=seconds)
        try:
            super()._delay(transaction, fault, now)
        finally:
            self.options = options

    def _facts(self, transaction: Transaction, amount_form: str, **more: str) -> dict[str, object]:
        return {**super()._facts(transaction, amount_form, **more), "payerName": PAYER_NAME}
