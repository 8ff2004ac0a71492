"""A target: how an input is drawn, and the promises that must hold for any input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = ["ROUND", "Target"]

ROUND = 1000
"""Inputs of one seed, over all targets together: the weights of the targets add up to this."""


@dataclass(frozen=True)
class Target:
    """`draw` makes an input and `check` gives it to the code, raises when a promise is broken, and
    else returns the outcome in a word.
    """

    name: str
    weight: int
    draw: Callable[[Random], Any]
    check: Callable[[Any], str]
