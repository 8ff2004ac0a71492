"""The worker run of many pending payments, against the same queries sent bare; its memory, and its
cost in a large table.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from tools.benchmarks import databases, processes, server
from tools.benchmarks.measure import Effort, Ratio, Series, take_turns
from tools.benchmarks.notifications import environment
from tools.benchmarks.processes import Actor
from tools.benchmarks.report import Figure, Section

__all__ = ["run"]

WORKER: Final = "worker"
BARE: Final = "bare httpx.Client"
SMALL: Final = "worker run, small table"
LARGE: Final = "worker run, large table"


def _shop(
    stack: ExitStack,
    kind: str,
    gateway: str,
    name: str,
    rows: int,
) -> tuple[Actor, dict[str, str]]:
    chosen = environment("shop", kind, gateway, name)
    actor = stack.enter_context(processes.acting("tools.benchmarks.shop.action", chosen))
    actor.do("create")
    stack.callback(actor.do, "destroy")
    actor.do("seed", count=rows)
    actor.do("tidy")
    return actor, chosen


def _peak(chosen: dict[str, str], count: int) -> int:
    """Return the most memory that a fresh process holds when it worker runs so many."""
    with processes.acting("tools.benchmarks.shop.action", chosen) as actor:
        actor.do("run_worker", count=count)
        return int(actor.do("peak"))


def run(effort: Effort) -> Section:
    """Measure."""
    kind = "postgresql"
    if detail := databases.why_not(kind):
        if not effort.quick:
            figures = [Figure.missing("worker run: rate of bare queries", detail, "at least 0.4x")]
            return _section(effort, kind, figures, {})
        kind = databases.QUICKEST
    most, few = effort.pick(20_000, 400), effort.pick(2_000, 200)
    rounds, processes_each = effort.pick(3, 1), effort.pick(3, 1)
    cpu: dict[str, list[float]] = {}

    def sampled(name: str, actor: Actor, action: str, count: int) -> Callable[[], float]:
        def sample() -> float:
            took = actor.do(action, count=count)
            cpu.setdefault(name, []).append(took["cpu"])
            return float(took["seconds"])

        return sample

    with ExitStack() as stack:
        gateway = stack.enter_context(server.running())
        shop, chosen = _shop(stack, kind, gateway, "worker", most)
        bounds = {
            WORKER: sampled(WORKER, shop, "run_worker", most),
            BARE: sampled(BARE, shop, "ask", most),
        }
        rate = take_turns("working", bounds, rounds, effort)
        peaks = {
            count: statistics.median(_peak(chosen, count) for _ in range(processes_each))
            for count in (few, most)
        }
    with ExitStack() as stack:
        gateway = stack.enter_context(server.running())
        small, _ = _shop(stack, kind, gateway, "small", few)
        large, _ = _shop(stack, kind, gateway, "large", few * 100)
        bounds = {
            SMALL: sampled(SMALL, small, "run_worker", few),
            LARGE: sampled(LARGE, large, "run_worker", few),
        }
        cost = take_turns("working, tables", bounds, effort.pick(10, 1), effort)
    kept = {name: samples[1:] for name, samples in cpu.items()}  # without the warming up
    memory = peaks[most] / peaks[few]
    figures = [
        Figure.speed(
            f"worker run of {most:,} payments: rate of bare queries",
            rate.speed(WORKER, BARE),
            at_least=0.4,
        ),
        Figure.cost(
            f"worker run of {most:,} payments: CPU time of bare queries",
            Series(kept).cost(WORKER, BARE),
        ),
        Figure.cost(
            f"worker run of {most:,} payments: peak memory of {few:,}",
            Ratio(memory, memory, memory),
            at_most=1.1,
        ),
        Figure.cost(
            f"worker run of {few:,} among {few * 100:,} rows: time among {few:,}",
            cost.cost(LARGE, SMALL),
            at_most=1.1,
        ),
        Figure.cost(
            f"worker run of {few:,} among {few * 100:,} rows: CPU time among {few:,}",
            Series(kept).cost(LARGE, SMALL),
        ),
    ]
    bars = {name: 1 / series.median(name) for series in (rate, cost) for name in series.seconds}
    return _section(effort, kind, figures, bars)


def _section(effort: Effort, kind: str, figures: list[Figure], bars: dict[str, float]) -> Section:
    return Section(
        name="working",
        title="A run of the worker",
        about=f"On {databases.NAMES[kind]}. Every payment is pending and due, and stays pending. "
        "`QUERIES_PER_SECOND` is 0, so the\n"
        "worker does not wait. The bare queries are the same bytes, posted with one "
        "`httpx.Client` by as many threads as the\n"
        "worker has (8). Memory is the peak of a fresh process.",
        repetitions=f"{effort.pick(3, 1)} rounds; each number of payments polled by "
        f"{effort.pick(3, 1)} fresh processes for the memory; "
        f"{effort.pick(10, 1)} rounds with the two tables.",
        figures=figures,
        bars=bars,
        unit="payments a second (longer is better)",
    )
