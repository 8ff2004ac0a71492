"""The worker: all due work, for a shop that runs it in periodic tasks of its own."""

from __future__ import annotations

from tillgate.django import operations
from tillgate.django.operations.bounds import TimeBudget, never

__all__ = ["run_worker"]


def run_worker(*, seconds: float) -> None:
    """Do all due work once, for about `seconds` at most. Uses the network."""
    budget = TimeBudget(never, seconds)
    operations.run_worker(stop=lambda: budget.is_over)
