"""A shop that is broken on purpose, for the simulator to find."""

from __future__ import annotations

from tests.smallest_shop.driver import SmallestShopDriver


class PaidTwiceDriver(SmallestShopDriver):
    """Counts every payment twice."""

    def times_paid(self, order_key: str) -> int:
        return 2 * super().times_paid(order_key)
