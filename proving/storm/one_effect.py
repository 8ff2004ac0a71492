"""One effect: many copies of each notification at the same moment, while its return pages are
opened and workers want the same payment.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

from proving.storm.connection import Connection, Tally, Unexpected, get, post
from proving.storm.shop import open_shop
from tools.benchmarks import processes, server
from tools.benchmarks.notifications import environment, notification
from tools.benchmarks.peer.events import event
from tools.benchmarks.processes import PEER

__all__ = ["one_effect", "peers_effects"]

_RETURNS: Final = 4
"""So many browsers open the return page of each payment at the same moment, half of them by
POST.
"""
_APART_SECONDS: Final = 0.1
"""A payment is due immediately, and its notifications and returns come at moments within this time:
each of the three doors is often the first.
"""
_WORKER_SECONDS: Final = 0.15
"""Between two worker runs: much less than a worker of a real shop waits, for the same reason."""
_REPORT_SECONDS: Final = 5.0

Say = Callable[[str], None]


class _Progress:
    """Says now and then how far it is."""

    def __init__(self, say: Say, payments: int, tally: Tally) -> None:
        self._say, self._payments, self._tally = say, payments, tally
        self._due = time.monotonic() + _REPORT_SECONDS

    def show(self, number: int) -> None:
        if time.monotonic() >= self._due or number == self._payments:
            self._say(
                f"{number:,} of {self._payments:,} payments, {self._tally.requests:,} requests, "
                f"{self._tally.errors.total()} errors",
            )
            self._due = time.monotonic() + _REPORT_SECONDS


def one_effect(
    database: str,
    folder: Path,
    payments: int,
    copies: int,
    seed: int,
    say: Say,
) -> dict[str, Any]:
    """Send the copies for one payment after the other, and return the cost and the effects."""
    tally = Tally()
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(server.running())
        # No throttle: every caller before the payment is paid may query the gateway, so many apply
        # the same answer at the same time.
        shop = stack.enter_context(
            open_shop(
                database, gateway, folder, throttle_seconds=0, worker_seconds=_WORKER_SECONDS
            ),
        )
        shop.actor.do("seed", count=payments, letter="P")
        addresses = shop.actor.do("addresses")
        chance = Random(f"{seed} one effect")  # repeatable on purpose

        async def press() -> None:
            notifications = [Connection(shop.port, tally) for _ in range(copies)]
            returns = [Connection(shop.port, tally) for _ in range(_RETURNS)]
            progress = _Progress(say, payments, tally)
            for number, (reference, (notification_key, return_key)) in enumerate(
                addresses.items(),
                1,
            ):
                copy = notification(f"/payments/notification/{notification_key}/", reference)
                page = f"/payments/return/{return_key}/"
                visits = [get(page), post(page, {"reference": reference, "status": "success"})]
                shop.actor.do("make_due", reference=reference)
                await asyncio.gather(
                    _together(
                        (_sent(connection, "notification", copy) for connection in notifications),
                        chance,
                    ),
                    _together(
                        (
                            _sent(connection, "return", visits[at % 2])
                            for at, connection in enumerate(returns)
                        ),
                        chance,
                    ),
                )
                progress.show(number)
            for connection in (*notifications, *returns):
                connection.close()

        began = time.perf_counter()
        asyncio.run(press())
        seconds = time.perf_counter() - began
        compared = shop.settle(addresses)
    return {
        "payments": payments,
        "seconds": round(seconds, 2),
        **tally.figures(),
        **compared,
        "errors": tally.errors + shop.errors(),
        "log": shop.log(),
    }


async def _sent(connection: Connection, kind: str, request: bytes) -> None:
    with contextlib.suppress(Unexpected):  # the tally has it
        await connection.ask(kind, request)


async def _together(requests: Iterable[Coroutine[Any, Any, None]], chance: Random) -> None:
    await asyncio.sleep(chance.uniform(0, _APART_SECONDS))
    await asyncio.gather(*requests)


def peers_effects(database: str, payments: int, copies: int, say: Say) -> dict[str, Any]:
    """Send as many copies of each event to dj-stripe, and return their effects. Its own errors are
    shown, and are not ours.
    """
    tally = Tally()
    with contextlib.ExitStack() as stack:
        chosen = environment("peer", database, stack.enter_context(server.running()), "storm_peer")
        actor = stack.enter_context(
            processes.acting("tools.benchmarks.peer.action", chosen, PEER / "python"),
        )
        path = actor.do("create")
        stack.callback(actor.do, "destroy")
        actor.do("rest")
        web = stack.enter_context(
            processes.serving("django.core.wsgi:get_wsgi_application()", chosen, PEER),
        )

        async def press() -> None:
            connections = [Connection(web.port, tally) for _ in range(copies)]
            progress = _Progress(say, payments, tally)
            for number in range(1, payments + 1):
                copy = event(f"copied{number}", path)
                await asyncio.gather(
                    *(_sent(connection, "event", copy) for connection in connections),
                )
                progress.show(number)
            for connection in connections:
                connection.close()

        began = time.perf_counter()
        asyncio.run(press())
        seconds = time.perf_counter() - began
        effects = actor.do("effects")
        actor.do("rest")
    return {
        "payments": payments,
        "seconds": round(seconds, 2),
        **tally.figures(),
        **effects,
        "errors": tally.errors,
    }
