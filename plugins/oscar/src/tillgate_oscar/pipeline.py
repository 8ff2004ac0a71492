"""The statuses of orders, for a project's settings: this module imports no Django and no Oscar."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["order_statuses"]


def order_statuses(
    own: Mapping[str, tuple[str, ...]],
    *,
    after_paid: str = "Shipped",
) -> dict[str, tuple[str, ...]]:
    """Return an `OSCAR_ORDER_STATUS_PIPELINE` with the statuses that a payment needs.

    `own` is the shop's own pipeline: its entries stay as they are; empty for a new shop.
    `after_paid` is the status that staff give a paid order next; it becomes a new status where
    `own` lacks it.
    """
    return {
        "Pending payment": ("Paid", "Cancelled"),
        "Paid": (after_paid, "Cancelled"),
        after_paid: (),
        "Cancelled": (),
        **own,
    }
