"""The simulator: seeded worlds in which shoppers pay while everything goes wrong, and a judge who
checks after every step.

The operations are the real ones, on a real database; time, chance and the network are virtual, so a
seed always plays the same world. `world.simulate` plays one; `python -m proving.simulation` plays
many.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import xor

__all__ = ["together"]


def together(digests: Iterable[str]) -> str:
    """Return one hash for those of many worlds, in any order: their exclusive or."""
    return f"{reduce(xor, (int(digest, 16) for digest in digests)):064x}"
