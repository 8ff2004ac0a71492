"""Personal data: the export and the erasure of one order, for a shop that offers its own."""

from __future__ import annotations

from typing import Any

from tillgate.django.worker import retention

__all__ = ["erase_order", "export_order"]


def export_order(plugin: str, order_key: str) -> dict[str, Any]:
    """Return everything that Tillgate stores about an order, as JSON knows it, without addresses
    that grant access to their holder.

    The page on personal data lists it. Raises `InvalidRequest` for an order that Tillgate does not
    know.
    """
    return retention.export_order(plugin, order_key)


def erase_order(plugin: str, order_key: str, *, actor: str = "shop") -> bool:
    """Erase the details of an order, and return whether there were any. Touches the database only.

    Notifications, answers of the gateway and texts go; the facts about the money stay, and the page
    on personal data lists both. Raises `InvalidRequest` for an order that Tillgate does not know,
    and for one that has anything open: its `remedy` names it.
    """
    return retention.erase_order(plugin, order_key, actor)
