"""Personal data: pretix's shredder erases the details of an event's payments, and its exporter
writes all that Tillgate stores of them.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _
from pretix.base.exporter import BaseExporter
from pretix.base.shredder import BaseDataShredder, ShredError, shred_log_fields

from tillgate import InvalidRequest, shop
from tillgate_pretix.accounts import HOLDER
from tillgate_pretix.configuration import PLUGIN
from tillgate_pretix.orders import REVIEW_LOGGED, bills_of, method_of

_LOGGED: Final = {REVIEW_LOGGED: ["message"], "pretix.event.order.refund.failed": ["error"]}
"""The texts in an order's history that come from Tillgate."""
_MOST_NAMED: Final = 20


def erase(order: Any) -> bool:
    """Erase the details of an order's payments and the texts in its history; return whether nothing
    was open and so left.
    """
    is_erased = True
    for bill in bills_of(order):
        try:
            shop.erase_order(PLUGIN, bill.key, actor="pretix:shredder")
        except (
            InvalidRequest
        ):  # a review, a refund or a payment is open, and staff need its details
            is_erased = False
    for entry in order.all_logentries().filter(action_type__in=_LOGGED):
        if method_of(entry.parsed_data.get("provider", "")) or entry.action_type == REVIEW_LOGGED:
            shred_log_fields(entry, banlist=_LOGGED[entry.action_type])
    return is_erased


def _orders(event: Any) -> Any:
    return event.orders.filter(payments__provider__startswith=f"{HOLDER}_").distinct()


def _exported(orders: Any) -> str:
    found = {
        order.code: [shop.export_order(PLUGIN, bill.key) for bill in bills_of(order)]
        for order in orders
    }
    return json.dumps(found, indent=2)


class Shredder(BaseDataShredder):  # type: ignore[misc]  # pretix has no types
    """Erases notifications, answers of the gateway and texts. The facts about the money stay, for
    accounting and refunds.
    """

    identifier = "tillgate"
    verbose_name = _("Details of payments (Tillgate)")
    description = _(
        "This removes the notifications and answers of the payment service and the notes about "
        "payments. Amounts, states, times and "
        "transaction numbers stay, so that payments can still be accounted for and refunded.",
    )

    def generate_files(self) -> Iterator[tuple[str, str, str]]:
        """Yield what is stored before it is erased."""
        yield "tillgate.json", "application/json", _exported(_orders(self.event))

    def shred_data(self, progress_callback: Callable[[float], object] | None = None) -> None:
        """Erase order by order; raise at the end where something was open."""
        orders = _orders(self.event)
        total, left = orders.count(), []
        for number, order in enumerate(orders.iterator(), 1):
            if not erase(order):
                left.append(order.code)
            if progress_callback:
                progress_callback(100 * number / total)
        if left:
            named = ", ".join(left[:_MOST_NAMED]) + (" …" if len(left) > _MOST_NAMED else "")
            detail = _(
                "These orders have an open payment, refund or review, and keep its details. "
                "Settle it, and start again: %s",
            )
            raise ShredError(detail, (named,))


class Exporter(BaseExporter):  # type: ignore[misc]  # pretix has no types
    """Writes all that Tillgate stores about the payments of one order, or of an event, as JSON."""

    identifier = "tillgate"
    verbose_name = _("All stored data of payments (Tillgate, JSON)")
    description = _(
        "Everything that is stored about the payments of one order or of all orders, for example "
        "for a request of the shopper.",
    )

    @property
    def export_form_fields(self) -> dict[str, Any]:
        """The order, if it is about one."""
        return OrderedDict(
            order=forms.CharField(label=_("Order code, or empty for all orders"), required=False),
        )

    def render(self, form_data: dict[str, Any]) -> tuple[str, str, str]:
        """Return the file."""
        orders, code = _orders(self.event), str(form_data.get("order") or "").strip().upper()
        if code:
            orders = orders.filter(code=code)
        return f"{self.event.slug}_tillgate.json", "application/json", _exported(orders)
