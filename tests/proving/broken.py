"""Shops and cores that are broken on purpose, for the simulator to find."""

from __future__ import annotations

import pytest

from tests.smallest_shop.driver import SmallestShopDriver


class PaidTwiceDriver(SmallestShopDriver):
    """Counts every payment twice."""

    def times_paid(self, order_key: str) -> int:
        return 2 * super().times_paid(order_key)


class Broken(SmallestShopDriver):
    """Breaks the core for good, in the way of one of the conformance kit's mutants; for a process of its own."""

    mutant = ""

    def __init__(self) -> None:
        from tests.smallest_shop.mutants import MUTANTS  # once Django is ready

        [chosen] = [one for one in MUTANTS if one.name == self.mutant]
        chosen.breaks(pytest.MonkeyPatch())


class CutOffDriver(Broken):
    """Takes a refund that was cut off by a crash for one that was never sent."""

    mutant = "sends a refund again that was cut off"


class HopefulDriver(Broken):
    """Takes a refund of unknown outcome for one that was never sent."""

    mutant = "sends an unknown refund again"


class ForgetfulDriver(Broken):
    """Never gives an order up that nobody paid."""

    mutant = "keeps what nobody paid"
