"""One seed is one round: a thousand inputs, over all targets by their weights, on a shop as it was
at first.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import Queue
from random import Random
from unittest.mock import Mock

from proving.fuzz.targets import Target

__all__ = ["Fault", "Fuzzer", "Round", "opened", "run", "target_names"]

_LONGEST_SHOWN = 2000


@dataclass(frozen=True)
class Fault:
    """A promise that was broken, with all that is needed to see it again."""

    target: str
    seed: int
    number: int
    drawn: str
    report: str

    def __str__(self) -> str:
        again = f"python -m proving fuzz --inputs 1 --seed {self.seed} --target {self.target!r}"
        return (
            f"{self.target}, seed {self.seed}, input "
            f"{self.number}\n{self.drawn}\n{self.report}\nSee it again: {again}"
        )


@dataclass
class Round:
    """The outcome of a seed: how often each target met each result."""

    seed: int
    met: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


class Fuzzer:
    """The targets, and the shop that half of them are on."""

    def __init__(self, targets: list[Target], restore: Callable[[], None] = lambda: None) -> None:
        self.targets = targets
        self._restore = restore

    def run(self, seed: int, only: str = "") -> Round:
        """Give every target its inputs of a seed. After a fault a target is left alone until the
        next seed: one is enough to look at.
        """
        done = Round(seed)
        self._restore()
        for target in self.targets:
            if only and target.name != only:
                continue
            met = done.met[target.name] = Counter()
            for number in range(target.weight):
                drawn = target.draw(Random(f"{seed}/{target.name}/{number}"))
                try:
                    met[target.check(drawn)] += 1
                except Exception:  # noqa: BLE001  # the shop's own code may raise anything
                    report = traceback.format_exc()[-_LONGEST_SHOWN:]
                    done.faults.append(
                        Fault(target.name, seed, number, repr(drawn)[:_LONGEST_SHOWN], report),
                    )
                    met["FAULT"] += 1
                    break
        return done


@contextlib.contextmanager
def opened() -> Iterator[Fuzzer]:
    """Build a database for this process, a shop on it, and all targets. Django must be set up with
    `proving.fuzz.settings`.
    """
    from django.db import connection

    from proving.fuzz import shop
    from proving.fuzz.readers import readers
    from proving.fuzz.views import Views, views

    name = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        with shop.opened() as opened_shop:
            on = Views(opened_shop)
            yield Fuzzer([*readers(), *views(on)], on.restore)
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


def target_names() -> list[str]:
    """Return the names of all targets."""
    from proving.fuzz.readers import readers
    from proving.fuzz.views import Views, views

    return [target.name for target in (*readers(), *views(Mock(spec=Views)))]


def run(seeds: list[int], processes: int, only: str = "") -> Iterator[Round]:
    """Run seeds in so many processes, each on a database of its own, and yield each round as it is
    done.
    """
    context = multiprocessing.get_context("spawn")
    waiting, done = context.Queue(), context.Queue()
    for seed in [*seeds, *[None] * processes]:
        waiting.put(seed)
    workers = [
        context.Process(target=_work, args=(number, only, waiting, done), daemon=True)
        for number in range(processes)
    ]
    # the workers inherit it: Ctrl-C is for their starter
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    for worker in workers:
        worker.start()
    signal.signal(signal.SIGINT, heard)
    for _ in seeds:
        while True:
            with contextlib.suppress(queue.Empty):
                yield done.get(timeout=5)
                break
            if any(worker.exitcode for worker in workers):
                raise RuntimeError("a fuzzing process ended; what it said is above")
    for worker in workers:
        worker.join()


def _work(number: int, only: str, seeds: Queue[int | None], done: Queue[Round]) -> None:
    """Fuzz in a process of its own until no seed is left."""
    # takes its database away when the run is ended early
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    os.environ["TILLGATE_FUZZ_PROCESS"] = str(number)
    os.environ["DJANGO_SETTINGS_MODULE"] = "proving.fuzz.settings"
    import django

    django.setup()
    with opened() as fuzzer:
        for seed in iter(seeds.get, None):
            done.put(fuzzer.run(seed, only))
