"""The faults of a simulated world: their kinds, how often each strikes, and when one does."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from proving.simulation.database import DATABASE_FAULTS
from proving.simulation.network import CREATED_FAULTS, NOTIFICATION_FAULTS
from proving.simulation.scheduler import Scheduler

__all__ = ["KINDS", "Faults"]

KINDS: Final = {
    "network": (0.0, 0.03, 0.1, 0.3),
    "notifications": (0.0, 0.1, 0.5),
    "database": (0.0, 0.001, 0.01),
    "crashes": (0.0, 0.002, 0.02),
    "handlers": (0.0, 0.05, 0.4),
    "closings": (0.0, 0.03, 0.2),
    "amounts": (0.0, 0.0, 0.1),
    "outages": (0.0, 0.0, 1.0),
    "credentials": (0.0, 0.0, 1.0),
    "errors": (0.0, 0.1, 0.5),
    "sleeps": (0.0, 0.05, 0.3),
    "currencies": (0.0, 0.02, 0.1),
    "unusable": (0.0, 0.0, 0.05),
    "slow": (0.1, 0.3, 0.6),
}
"""Each kind of fault, and the rates from which a world draws one; of outages and credentials only
if they happen. Slow money is no fault, but may be left out like one.
"""


@dataclass
class Faults:
    """Decides for the present actor whether a fault strikes, by the actor's own stream of
    chance.
    """

    scheduler: Scheduler
    rates: dict[str, float]
    is_calm: bool = False
    struck: dict[str, int] = field(default_factory=dict)
    """How often each fault has struck."""

    @classmethod
    def drawn(cls, scheduler: Scheduler, without: frozenset[str]) -> Faults:
        """Draw a rate for each kind from the world's seed, and leave some kinds out."""
        chance = Random(f"{scheduler.seed}:faults")  # repeatable on purpose
        rates = {kind: chance.choice(choices) for kind, choices in KINDS.items()}
        return cls(
            scheduler,
            {kind: 0.0 if kind in without else rate for kind, rate in rates.items()},
        )

    def strikes(self, *faults: str) -> str:
        """Return the fault that strikes the actor here, or nothing; all that are named are of one
        kind.
        """
        fault = self.draws(*faults)
        return self.note(fault) if fault else ""

    def draws(self, *faults: str) -> str:
        """Return a fault that is about to strike, or nothing; its observer notes it."""
        actor, rate = self.scheduler.actor, self.rates[_kind(faults[0])]
        if (
            self.is_calm
            or actor is None
            or not actor.is_mortal
            or not rate
            or actor.chance.random() >= rate
        ):
            return ""
        return actor.chance.choice(faults)

    def note(self, fault: str) -> str:
        """Count a fault that has struck."""
        self.struck[fault] = self.struck.get(fault, 0) + 1
        if self.scheduler.actor:
            self.scheduler.actor.struck += 1
        return fault

    @property
    def interruptions(self) -> int:
        """How many faults may have ended a process between a commit and the code after it."""
        return sum(self.struck.get(fault, 0) for fault in ("crash", *DATABASE_FAULTS))

    def dies(self, where: str) -> None:
        """End the actor's process here, now and then."""
        actor = self.scheduler.actor
        if actor and self.strikes("crash"):
            raise actor.die(where)


def _kind(fault: str) -> str:
    if fault in DATABASE_FAULTS:
        return "database"
    if fault in NOTIFICATION_FAULTS or fault in CREATED_FAULTS:
        return "notifications"
    return {
        "crash": "crashes",
        "handler": "handlers",
        "closed_meanwhile": "closings",
        "sleep": "sleeps",
    }.get(fault, "network")
