"""Measuring: contenders take turns, and the kept value is their ratio within each turn.

A machine that is busy for a second slows all contenders of that second, so it spoils one round and
not the comparison.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["Effort", "Ratio", "Series", "expect", "mean_call", "median_call", "take_turns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much time a run may spend. A quick run proves that the benchmarks work; its figures are
    not worth quoting.
    """

    quick: bool = False
    seed: int = 20251121

    def pick(self, full: int, quick: int) -> int:
        """Return the count for this run."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the rounds' ratios, with the least and the greatest of them."""

    median: float
    least: float
    greatest: float


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds for one call, by contender and round."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        """Return the median seconds of a contender."""
        return statistics.median(self.seconds[name])

    def cost(self, name: str, against: str) -> Ratio:
        """Return how many times the time of another contender this one takes."""
        ratios = [
            ours / theirs
            for ours, theirs in zip(self.seconds[name], self.seconds[against], strict=True)
        ]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios))

    def speed(self, name: str, against: str) -> Ratio:
        """Return how many times as fast as another contender this one is."""
        return self.cost(against, name)


def take_turns(
    title: str,
    contenders: Mapping[str, Callable[[], float]],
    rounds: int,
    effort: Effort,
) -> Series:
    """Let every contender give one sample per round, in an order drawn for each round from the
    run's seed.

    A sample is the seconds that one call took. One round before the first warms everything up and
    is not kept.
    """
    order = list(contenders)
    draw = random.Random(f"{effort.seed} {title}")
    seconds: dict[str, list[float]] = {name: [] for name in order}
    for budget in range(rounds + 1):
        _progress(title, budget, rounds)
        draw.shuffle(order)
        for name in order:
            sample = contenders[name]()
            if budget:
                seconds[name].append(sample)
    return Series(seconds)


def mean_call(call: Callable[[], object], calls: int) -> Callable[[], float]:
    """Return a sample for a call that only computes and is too short to be timed alone: the mean
    CPU time of many in a row.
    """

    def sample() -> float:
        bounds = itertools.repeat(None, calls)
        started = time.process_time()
        for _ in bounds:
            call()
        return (time.process_time() - started) / calls

    return sample


def median_call(call: Callable[[], object], calls: int) -> Callable[[], float]:
    """Return a sample for a call that can be timed alone: the median of many in a row."""

    def sample() -> float:
        times = []
        for _ in range(calls):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    return sample


def expect(what: str, actual: object, wanted: object) -> None:
    """Stop the run when a contender does not do the work that it is measured for."""
    if actual != wanted:
        raise RuntimeError(
            f"{what} gave {actual!r} instead of {wanted!r}: there is nothing to measure",
        )


_A_TERMINAL: Final = sys.stderr.isatty()


def _progress(title: str, budget: int, rounds: int) -> None:
    if _A_TERMINAL:
        print(
            f"\r{title}: round {budget} of {rounds}",
            end="\n" if budget == rounds else "",
            file=sys.stderr,
            flush=True,
        )
    elif budget % max(1, rounds // 4) == 0:
        print(f"{title}: round {budget} of {rounds}", file=sys.stderr, flush=True)
