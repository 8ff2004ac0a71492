"""A repeated notification about a settled payment, through gunicorn to the database, against a bare
insert and dj-stripe's endpoint.
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlencode

from tillgate.wire import signing
from tools.benchmarks import databases, processes, server
from tools.benchmarks.measure import Effort, Ratio, Series, take_turns
from tools.benchmarks.peer.events import UNHANDLED, event
from tools.benchmarks.processes import PEER, THREADS, WORKERS, Load, WebServer
from tools.benchmarks.report import Figure, Section

__all__ = ["environment", "notification", "run"]

CONNECTIONS: Final = 16
_PAYMENTS: Final = 200
_TOKEN: Final = "5cbfb079f15b150122261c8537086d77a"
NO_PEER: Final = "needs dj-stripe in .nox/bench: `nox -s bench`"

OURS: Final = "Tillgate, a repeated notification"
BARE: Final = "bare view, one row inserted"
FIRST: Final = "dj-stripe, an event of a payment"
KEPT: Final = "dj-stripe, an event it only keeps"
AGAIN: Final = "dj-stripe, a repeated event"


def environment(project: str, database: str, gateway: str, name: str = "") -> dict[str, str]:
    """Return the environment that gives a project its own database, also apart from other runs at
    the same time, and the gateway's address.
    """
    return {
        "DJANGO_SETTINGS_MODULE": f"tools.benchmarks.{project}.settings",
        "BENCHMARK_DATABASE": database,
        "BENCHMARK_DATABASE_NAME": f"tillgate_benchmark_{name or project}_{os.getpid()}",
        "BENCHMARK_GATEWAY": gateway,
    }


def notification(path: str, reference: str) -> bytes:
    """Return the gateway's whole request about a paid payment, signed."""
    said = {
        "amount": server.AMOUNT,
        "currency": "USD",
        "merchantNo": "200043",
        "reference": reference,
        "settleCurrency": "USD",
        "status": "success",
        "transactionNo": server.transaction_no(reference),
        "vendor": "alipay",
    }
    body = urlencode({**said, "verifySign": signing.sign(said, _TOKEN)})
    kind = "Content-Type: application/x-www-form-urlencoded"
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\nContent-Length: "
        f"{len(body)}\r\n\r\n{body}"
    ).encode()


class _Contender:
    """One address under load, and the CPU time that its workers spent on a request, by round."""

    def __init__(
        self,
        generator: Load,
        web: WebServer,
        requests: Callable[[], list[bytes]],
    ) -> None:
        self._generator, self._web, self._requests = generator, web, requests
        self.cpu: list[float] = []

    def sample(self) -> float:
        """Send a round's requests; return the seconds for one."""
        requests = self._requests()
        before = self._web.cpu_seconds()
        seconds = self._generator.send(self._web.port, requests, CONNECTIONS)
        self.cpu.append((self._web.cpu_seconds() - before) / len(requests))
        return seconds / len(requests)


def _shop(
    stack: ExitStack,
    kind: str,
    gateway: str,
    generator: Load,
    count: int,
) -> dict[str, _Contender]:
    chosen = environment("shop", kind, gateway)
    actor = stack.enter_context(processes.acting("tools.benchmarks.shop.action", chosen))
    actor.do("create")
    stack.callback(actor.do, "destroy")
    keys = actor.do("seed", count=_PAYMENTS, status="paid", letter="P")
    actor.do("tidy")
    actor.do("rest")
    web = stack.enter_context(processes.serving("django.core.wsgi:get_wsgi_application()", chosen))
    notifications = [
        notification(f"/payments/notification/{key}/", reference) for reference, key in keys.items()
    ]
    bare = notification("/bare/", "P0000000-7Q2MZK4RXW3DA")
    return {
        OURS: _Contender(
            generator,
            web,
            lambda: list(itertools.islice(itertools.cycle(notifications), count)),
        ),
        BARE: _Contender(generator, web, lambda: [bare] * count),
    }


def _peer(
    stack: ExitStack,
    kind: str,
    gateway: str,
    generator: Load,
    count: int,
) -> dict[str, _Contender]:
    chosen = environment("peer", kind, gateway)
    actor = stack.enter_context(
        processes.acting("tools.benchmarks.peer.action", chosen, PEER / "python"),
    )
    path = actor.do("create")
    stack.callback(actor.do, "destroy")
    actor.do("rest")
    web = stack.enter_context(
        processes.serving("django.core.wsgi:get_wsgi_application()", chosen, PEER),
    )
    numbers = itertools.count()

    def fresh(**chosen: str) -> Callable[[], list[bytes]]:
        return lambda: [event(str(next(numbers)), path, **chosen) for _ in range(count)]

    known = [f"known{number}" for number in range(min(_PAYMENTS, count))]
    generator.send(web.port, [event(name, path) for name in known], CONNECTIONS)
    return {
        FIRST: _Contender(generator, web, fresh()),
        KEPT: _Contender(generator, web, fresh(kind=UNHANDLED)),
        AGAIN: _Contender(
            generator,
            web,
            lambda: [event(name, path) for name in itertools.islice(itertools.cycle(known), count)],
        ),
    }


def _measured(kind: str, effort: Effort) -> tuple[Series, dict[str, float]]:
    """Measure on one database; return the seconds, and the median CPU time of one request by
    contender.
    """
    rounds, count = effort.pick(10, 1), effort.pick(600, 40)
    with ExitStack() as stack:
        gateway = stack.enter_context(server.running())
        generator = stack.enter_context(processes.load())
        contenders = _shop(stack, kind, gateway, generator, count)
        # its migrations take longest
        if PEER.exists() and (not effort.quick or kind == databases.QUICKEST):
            contenders |= _peer(stack, kind, gateway, generator, count // 4)
        series = take_turns(
            f"notifications {kind}",
            {name: each.sample for name, each in contenders.items()},
            rounds,
            effort,
        )
    return series, {name: statistics.median(each.cpu[1:]) for name, each in contenders.items()}


def _figures(kind: str, series: Series, cpu: dict[str, float]) -> Iterator[Figure]:
    where = databases.NAMES[kind]
    yield Figure.speed(
        f"repeated notification, {where}: rate of a bare insert",
        series.speed(OURS, BARE),
        at_least=0.5,
    )
    spent = cpu[BARE] / cpu[OURS]
    yield Figure.speed(
        f"repeated notification, {where}: requests for the CPU time of a bare insert",
        Ratio(spent, spent, spent),
    )
    what = f"repeated notification, {where}: rate of dj-stripe handling "
    if FIRST not in cpu:
        yield Figure.missing(f"{what}an event of a payment", NO_PEER, "at least 6x")
        return
    yield Figure.speed(f"{what}an event of a payment", series.speed(OURS, FIRST), at_least=6)
    yield Figure.speed(f"{what}an event that it only keeps", series.speed(OURS, KEPT))
    yield Figure.speed(f"{what}a repeated event", series.speed(OURS, AGAIN))


def run(effort: Effort) -> Section:
    """Measure."""
    figures, bars = list[Figure](), dict[str, float]()
    for kind in databases.NAMES:
        if detail := databases.why_not(kind):
            figures.append(
                Figure.missing(
                    f"repeated notification, {databases.NAMES[kind]}: rate of a bare insert",
                    detail,
                    "at least 0.5x",
                ),
            )
            continue
        series, cpu = _measured(kind, effort)
        figures += _figures(kind, series, cpu)
        bars |= {f"{kind}: {name}": 1 / series.median(name) for name in cpu}
    return Section(
        name="notifications",
        title="Notifications repeated",
        about=f"gunicorn with {WORKERS} workers of {THREADS} threads and persistent connections; "
        f"{CONNECTIONS} kept-alive connections\n"
        f"send requests without a pause. A signed notification about one of {_PAYMENTS} settled "
        "payments is found, verified,\n"
        "compared with the last, counted and answered. The bare view inserts one row of the same "
        "bytes. dj-stripe verifies\n"
        "Stripe's signature of three kinds of event: of a payment, for which it fetches the "
        "payment intent; of a kind that it\n"
        "only keeps; and a repeated one. CPU time is that of gunicorn's workers.",
        repetitions=f"{effort.pick(10, 1)} rounds of {effort.pick(600, 40)} requests each (a "
        "quarter as many to dj-stripe).",
        figures=figures,
        bars=bars,
        unit="requests a second (longer is better)",
    )
