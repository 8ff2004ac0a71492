"""The worker: all due work, for a shop that runs it in periodic tasks of its own, and whether it
keeps up.
"""

from __future__ import annotations

from tillgate.django.operating.monitoring import vitals
from tillgate.django.orders.times import stop_after
from tillgate.django.worker import run

__all__ = ["run_worker", "vitals"]


def run_worker(*, seconds: float) -> None:
    """Do all due work once, for about `seconds` at most. Uses the network."""
    run.run_worker(stop=stop_after(seconds))
