"""The order's machine. A shop opens an order; one payment pays it, or the shop closes it. Staff may
reopen it for money that came late.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tillgate.lifecycle.machine import table

__all__ = ["ORDER_TRANSITIONS", "OrderStatus"]


class OrderStatus(StrEnum):
    """The status of an order, which its row holds as `paid_by` and `closed_at`."""

    OPEN = "open"
    """The order awaits payment."""
    CLOSED = "closed"
    """The shop cancelled the order: no payment starts, and open payments are still polled."""
    PAID = "paid"
    """One payment has paid the order (I4). Final: a refund changes the payment and not the
    order.
    """


_O = OrderStatus

ORDER_TRANSITIONS: Final = table(
    {
        _O.OPEN: {_O.CLOSED, _O.PAID},
        _O.CLOSED: {
            _O.OPEN,
        },  # staff redeliver a payment, and the shop takes money for the order again
        _O.PAID: set(),
    },
)
