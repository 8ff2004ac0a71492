"""The start of a sale: many shoppers press Pay within two seconds, at a gateway that takes its
time.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any, Final

from tillgate.sandbox import Options, Sandbox
from tools.benchmarks import databases, processes
from tools.benchmarks.measure import Effort
from tools.benchmarks.notifications import environment
from tools.benchmarks.report import Figure, Section

__all__ = ["run", "sales"]

SHOPPERS: Final = 50
WITHIN_SECONDS: Final = 2.0
SERVERS: Final = ((2, 4), (2, 8), (1, 16))
"""Processes and the threads of each."""
GATEWAY_SECONDS: Final = (0.1, 0.5, 1.0, 2.0)


def sales(
    kind: str,
    server: tuple[int, int],
    gateway_seconds: Sequence[float],
    shoppers: int,
    *,
    for_seconds: float = 0,
) -> list[dict[str, Any]]:
    """Hold a sale at each speed of the gateway; return the answers to the presses, and the waits of
    other pages.

    Pages are asked for until all presses are answered, and at least `for_seconds`.
    """
    workers, threads = server
    found = list[dict[str, Any]]()
    with (
        Sandbox(Options(faults={"delay": 1.0})) as sandbox,
        processes.load() as generator,
        ExitStack() as stack,
    ):
        chosen = environment("shop", kind, sandbox.base_url, f"sale_{workers}_{threads}")
        actor = stack.enter_context(processes.acting("tools.benchmarks.shop.action", chosen))
        actor.do("create")
        stack.callback(actor.do, "destroy")
        orders = iter(actor.do("place", count=shoppers * len(gateway_seconds)))
        actor.do("rest")
        web = stack.enter_context(
            processes.serving(
                "django.core.wsgi:get_wsgi_application()",
                chosen,
                workers=workers,
                threads=threads,
            ),
        )
        for seconds in gateway_seconds:
            sandbox.control.set_options({"delay_seconds": seconds})
            paths = list(islice(orders, shoppers))
            found.append(
                generator.shop(
                    web.port,
                    paths,
                    within_seconds=WITHIN_SECONDS,
                    for_seconds=for_seconds,
                ),
            )
    return found


def run(effort: Effort) -> Section:
    """Count the shoppers that reach the payment page at the first press."""
    shoppers = effort.pick(SHOPPERS, 16)
    servers, delays = (
        (SERVERS[:1], GATEWAY_SECONDS[:1]) if effort.quick else (SERVERS, GATEWAY_SECONDS)
    )
    kind = databases.QUICKEST if databases.why_not("postgresql") or effort.quick else "postgresql"
    figures, bars = list[Figure](), dict[str, float]()
    for workers, threads in servers:
        for seconds, found in zip(
            delays,
            sales(kind, (workers, threads), delays, shoppers),
            strict=True,
        ):
            name = f"{workers}x{threads}, gateway of {seconds:g} s"
            what = f"{shoppers} simultaneous shoppers, {name}: reach the payment page"
            reached = found["statuses"].get("200", 0)
            figures.append(Figure.fact(what, str(reached), str(shoppers)))
            bars[name] = statistics.median(found["pages"])
    return Section(
        name="sale",
        title="The start of a sale",
        about=f"The shoppers press Pay within {WITHIN_SECONDS:g} s, each for an order of their "
        "own. gunicorn serves the shop with so\n"
        f"many processes x threads ({databases.NAMES[kind]}), and the sandbox is the gateway, "
        "whose every answer takes its\n"
        "time. A shopper who reads that the payment could not be started has not reached the "
        "payment page.",
        repetitions="Counted once.",
        figures=figures,
        bars=bars,
        unit="seconds that another page waits meanwhile, the median (shorter is better)",
    )
