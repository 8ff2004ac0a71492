"""The smallest shop once more, for proofs only: it reports payments and refunds to others over the
network, and slow money to the shopper.

The smallest shop's own functions do the shop's work, even when others replace them. Reports are
kept in files, which outlive their sender.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.smallest_shop import plugin as smallest
from tests.smallest_shop.driver import SmallestShopDriver
from tillgate.hooks import (
    Event,
    Order,
    OrderDescription,
    PaidOutcome,
    Payment,
    Refund,
    RefundStatus,
    RemoteEvent,
    hookimpl,
    plugin_manager,
)
from tillgate.shop import enqueue_remote, find_payment, pay_path, remote_events

__all__ = ["NAME", "TellingDriver"]

NAME = "telling-shop"


def _own(hook: str) -> Callable[..., Any]:
    """Return the smallest shop's function of a hook."""
    implementations = getattr(plugin_manager().hook, hook).get_hookimpls()
    own: Callable[..., Any] = next(
        one.function for one in implementations if one.plugin is smallest
    )
    return own


class TellingShop:
    """The plugin."""

    def __init__(self) -> None:
        self.elsewhere = Path(tempfile.mkdtemp(prefix=NAME))
        atexit.register(self._forget, os.getpid())

    def _forget(self, maker: int) -> None:
        """Remove the reports; a forked process leaves them to its parent."""
        if os.getpid() == maker:
            shutil.rmtree(self.elsewhere, ignore_errors=True)

    @hookimpl
    def tillgate_describe_order(self, order_key: str) -> OrderDescription | None:
        """Describe an order."""
        described: OrderDescription | None = _own("tillgate_describe_order")(order_key)
        return described

    @hookimpl
    def tillgate_payment_paid(self, payment: Payment) -> PaidOutcome:
        """Mark the order paid, and report it to others."""
        outcome: PaidOutcome = _own("tillgate_payment_paid")(payment)
        if outcome is PaidOutcome.APPLIED:
            enqueue_remote(
                NAME,
                payment.order.key,
                "paid",
                payment_id=payment.id,
                data={"amount": str(payment.amount)},
            )
        return outcome

    @hookimpl
    def tillgate_order_unpaid(self, order: Order) -> None:
        """Cancel the unpaid order."""
        _own("tillgate_order_unpaid")(order)

    @hookimpl
    def tillgate_refund_changed(self, refund: Refund) -> None:
        """Note money refunded, and report it to others."""
        _own("tillgate_refund_changed")(refund)
        if refund.status is RefundStatus.SUCCEEDED:
            payment = refund.payment
            enqueue_remote(
                NAME,
                payment.order.key,
                "refunded",
                payment_id=payment.id,
                refund_id=refund.id,
            )

    @hookimpl
    def tillgate_event(self, event: Event) -> None:
        """Tell the shopper that money is under way, and that it came to nothing."""
        is_over = event.fields.get("was_under_way") and event.name != "payment.paid"
        name = "waits" if event.name == "payment.processing" else "failed" if is_over else ""
        payment = find_payment(NAME, reference=event.reference) if name else None
        if payment and not remote_events(NAME, payment_id=payment.id, name=name):
            enqueue_remote(NAME, payment.order.key, name, payment_id=payment.id)

    @hookimpl
    def tillgate_deliver(self, outbox_event: RemoteEvent) -> None:
        """Tell others."""
        with (self.elsewhere / outbox_event.order.key).open("a") as file:
            file.write(f"{outbox_event.event_id}\n")

    @hookimpl
    def tillgate_return_url(self, payment: Payment) -> str:
        """Bring the shopper to the order's page."""
        return smallest.tillgate_return_url(payment)


class TellingDriver(SmallestShopDriver):
    """The smallest shop's driver, which also reads the reports to others."""

    plugin = NAME

    def __init__(self) -> None:
        shop = plugin_manager().get_plugin(NAME) or TellingShop()
        if not plugin_manager().has_plugin(NAME):
            plugin_manager().register(shop, name=NAME)
        self._elsewhere: Path = shop.elsewhere

    def place_order(self, total: Decimal) -> str:
        return self._without_traces(super().place_order(total))

    def place_order_in(self, currency: str, total: Decimal) -> str:
        return self._without_traces(super().place_order_in(currency, total))

    def pay_path(self, order_key: str) -> str:
        return pay_path(NAME, order_key)

    def _without_traces(self, key: str) -> str:
        # of an order that bore this number before the tables were emptied
        (self._elsewhere / key).unlink(missing_ok=True)
        return key

    def heard_elsewhere(self, order_key: str) -> list[str]:
        file = self._elsewhere / order_key
        return file.read_text("utf-8").split() if file.exists() else []
