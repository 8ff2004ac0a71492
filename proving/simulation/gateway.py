"""The gateway of the simulation: the emulator's service, which names the payer in answers and
notifications, as a gateway may.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tillgate.sandbox.notifications import Notification, NotificationKind, Outbox
from tillgate.sandbox.service import Service
from tillgate.sandbox.transactions import Transaction

__all__ = ["PAYER_NAME", "NamingOutbox", "NamingService"]

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

    def _facts(self, transaction: Transaction, amount_form: str, **more: str) -> dict[str, object]:
        return {**super()._facts(transaction, amount_form, **more), "payerName": PAYER_NAME}
