"""Side by side: many copies of each notification at the same moment, and how often an event is
delivered to the shop.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from tools.benchmarks import databases, processes, server
from tools.benchmarks.measure import Effort
from tools.benchmarks.notifications import NO_PEER, environment, notification
from tools.benchmarks.peer.events import event
from tools.benchmarks.processes import PEER, THREADS, WORKERS, Load
from tools.benchmarks.report import Figure, Section

__all__ = ["run"]

COPIES: Final = 16


def _told(module: str, chosen: dict[str, str], generator: Load, payments: int) -> dict[str, int]:
    """Send the copies to one of the two shops, payment after payment; return how many effects they
    had, on how many orders.
    """
    peer = module == "peer"
    with ExitStack() as stack:
        actor = stack.enter_context(
            processes.acting(
                f"tools.benchmarks.{module}.action",
                chosen,
                *([PEER / "python"] if peer else []),
            ),
        )
        path = actor.do("create")
        stack.callback(actor.do, "destroy")
        keys = {} if peer else actor.do("seed", count=payments, letter="P")
        actor.do("rest")
        web = stack.enter_context(
            processes.serving(
                "django.core.wsgi:get_wsgi_application()",
                chosen,
                *([PEER] if peer else []),
            ),
        )
        if peer:
            requests = [event(f"copied{number}", path) for number in range(payments)]
        else:
            requests = [
                notification(f"/payments/notification/{key}/", reference)
                for reference, key in keys.items()
            ]
        for request in requests:
            generator.send(web.port, [request] * COPIES, COPIES)
        counted: dict[str, int] = actor.do("effects")
        actor.do("rest")
        return counted


def run(effort: Effort) -> Section:
    """Count."""
    payments = effort.pick(300, 10)
    figures, bars = list[Figure](), dict[str, float]()
    kinds = [databases.QUICKEST] if effort.quick else ["postgresql", "mariadb"]
    with server.running() as gateway, processes.load() as generator:
        for kind in kinds:
            what = (
                f"{payments} payments, {COPIES} simultaneous copies of each notification, "
                f"{databases.NAMES[kind]}: effects"
            )
            if detail := databases.why_not(kind):
                figures.append(Figure.missing(what, detail, f"{payments} on {payments} orders"))
                continue
            ours = _told("shop", environment("shop", kind, gateway), generator, payments)
            figures.append(
                Figure.fact(what, _said(ours), _said({"effects": payments, "orders": payments})),
            )
            bars[f"{kind}: Tillgate"] = ours["effects"]
            if not PEER.exists():
                figures.append(Figure.missing(f"{what} with dj-stripe", NO_PEER))
            elif not effort.quick:  # its migrations take longest, and another benchmark tries it
                theirs = _told("peer", environment("peer", kind, gateway), generator, payments)
                figures.append(Figure(f"{what} with dj-stripe", _said(theirs)))
                bars[f"{kind}: dj-stripe"] = theirs["effects"]
    return Section(
        name="effects",
        title="One effect",
        about=f"{COPIES} connections send the same notification at the same moment to gunicorn "
        f"with {WORKERS} workers of {THREADS}\n"
        "threads. An effect is a committed row that the shop's handler inserts for a paid order. "
        "With dj-stripe the handler\n"
        "listens to `payment_intent.succeeded`.",
        repetitions=f"Counted once, over {payments} payments.",
        figures=figures,
        bars=bars,
        unit="effects (should be as many as payments)",
    )


def _said(counted: dict[str, int]) -> str:
    return f"{counted['effects']} on {counted['orders']} orders"
