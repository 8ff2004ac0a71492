"""Shops and cores that are broken on purpose, for the simulator to find."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.smallest_shop.driver import SmallestShopDriver
from tests.smallest_shop.telling import TellingDriver


class PaidTwiceDriver(SmallestShopDriver):
    """Counts every payment twice."""

    def times_paid(self, order_key: str) -> int:
        return 2 * super().times_paid(order_key)


class Broken(SmallestShopDriver):
    """Breaks the core for good, in the way of one of the conformance kit's mutants; for a process
    of its own.
    """

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
    """Never cancels an unpaid order."""

    mutant = "keeps what nobody paid"


class SilentDriver(TellingDriver):
    """Breaks the core for good: a remote outbox event that raised is taken for done."""

    def __init__(self) -> None:
        from tillgate.django.models import OutboxEvent  # once Django is ready
        from tillgate.django.outbox import remote
        from tillgate.django.outbox.attempts import note_failure as note

        super().__init__()

        def hushed(order_id: int, outbox_event_id: int, error: Exception, *rest: Any) -> None:
            if not OutboxEvent.objects.filter(pk=outbox_event_id, kind="remote").update(
                done_at=timezone.now(),
                due_at=None,
            ):
                note(order_id, outbox_event_id, error, *rest)

        pytest.MonkeyPatch().setattr(remote, "note_failure", hushed)


class PesteringDriver(SmallestShopDriver):
    """Breaks the core for good: its owner is mailed every minute."""

    def __init__(self) -> None:
        from tillgate.django.worker import lanes, mail

        every_minute = timedelta(minutes=1)
        pytest.MonkeyPatch().setattr(
            mail,
            "take_turn",
            lambda name, _: lanes.take_turn(name, every_minute),
        )
