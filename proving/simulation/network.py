"""The network of the simulation: the emulator's service, called in process, behind everything that
a network does to a message.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

import httpx
from django.db import connection

from proving.simulation.database import Interposer
from proving.simulation.scheduler import Scheduler
from tillgate.sandbox.answers import Answer
from tillgate.sandbox.faults import FAULTS
from tillgate.sandbox.service import Service
from tillgate.testing.crashes import Crash

__all__ = ["CALL_FAULTS", "CREATED_FAULTS", "NOTIFICATION_FAULTS", "Network", "Violated", "key_of"]

_OPERATIONS: Final = {"secure-pay": "pay", "tran-query": "query", "refund": "refund"}
_TOO_SLOW: Final = ("huge_body", "slow_drip")
"""Answers that cost real time or memory to play, and have tests of their own."""
CALL_FAULTS: Final = {
    operation: tuple(
        name
        for name, fault in FAULTS.items()
        if operation in fault.occasions and name not in _TOO_SLOW
    )
    for operation in ("pay", "query", "refund")
}

_ON_ITS_WAY_SECONDS: Final = 1.0
"""How much longer one query may take than another from the moment that it is allowed to the
network.
"""
NOTIFICATION_FAULTS: Final = tuple(
    name for name, fault in FAULTS.items() if "notification" in fault.occasions
)
CREATED_FAULTS: Final = tuple(
    name for name, fault in FAULTS.items() if "created" in fault.occasions
)
_FOLLOWED: Final = {
    "pay": ("created", CREATED_FAULTS),
    "refund": ("notification", NOTIFICATION_FAULTS),
}
"""The effects of a call besides its answer, and the faults of those; a query has none."""


class Violated(AssertionError):
    """An invariant does not hold; `order_key` names the order, where it is one order's."""

    order_key = ""


class Network(httpx.BaseTransport):
    """Carries the calls of one account to the gateway; remembers the requests, for the judge."""

    def __init__(
        self,
        service: Service,
        scheduler: Scheduler,
        interposer: Interposer,
        throttle_seconds: float = 0.0,
    ) -> None:
        self.service, self._scheduler, self._interposer = service, scheduler, interposer
        self.throttle_seconds = throttle_seconds
        """How long no outsider can cause a second query of a payment."""
        self.creations: Counter[str] = Counter()
        """How often each reference was sent in a creation."""
        self.refunds: Counter[str] = Counter()
        """How often each refund was sent, by the key in the address of its notifications."""
        self.heard: list[Violated] = []
        """Broken invariants on the network; raised here, one would be one more error that the
        shop's code bears.
        """
        self._caused = defaultdict[tuple[str, bool], deque[float]](deque)
        """When outsiders caused queries of each reference, by returns and otherwise."""
        self.denied: set[str] = set()
        """The references that the gateway once called unknown."""
        self.unusable: set[str] = set()
        """The references about which no answer can be used."""
        self.dark_until = 0.0
        """Until when no gateway answers."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Carry one call, unless something happens to it on the way."""
        scheduler, actor = self._scheduler, self._scheduler.actor
        assert actor, "only actors use the network"
        if actor.is_dead:
            raise Crash("a dead process reaches no network")
        if connection.in_atomic_block:
            self.heard.append(Violated("I12: the network is used while a transaction is open"))
        body, path = bytes(request.read()), request.url.path
        operation = _OPERATIONS[path.rpartition("/")[2]]
        sent = _fields(body, request.headers["content-type"])
        reference = sent.get("reference", "")
        if operation == "query" and actor.path and self.throttle_seconds:
            self._throttled(reference, is_return="/return/" in actor.path)
        if scheduler.seconds < self.dark_until:
            scheduler.pause(actor.chance.uniform(0, 1))
            raise httpx.ConnectError("the gateway is away")
        if self._interposer.strikes("unreachable"):
            scheduler.tell(f"{operation} {reference} cannot connect")
            raise httpx.ConnectTimeout("no connection came about")
        self._interposer.dies(f"before the gateway received the {operation}")
        scheduler.pause(actor.chance.uniform(0.01, 0.4))
        fault = self._interposer.strikes(
            *(f"{operation}.{name}" for name in CALL_FAULTS[operation]),
        )
        if operation == "query" and reference in self.unusable:
            fault = "query.broken_json"
        occasion, follow_up_faults = _FOLLOWED.get(operation, ("", ()))
        follow_up = self._interposer.draws(*follow_up_faults) if occasion else ""

        def arrive() -> Answer:
            self._count(operation, reference, sent)
            if fault:
                self.service.faults.plan(
                    fault.partition(".")[2],
                    occasion=operation,
                    reference=reference,
                )
            planned = (
                self.service.faults.plan(follow_up, occasion=occasion, reference=reference)
                if follow_up
                else None
            )
            if fault == "query.denied":
                self.denied.add(reference)
            answered = self.service.handle(path, request.headers["content-type"], body)
            if planned and not planned.times:
                self._interposer.note(follow_up)
            self.service.faults.planned.clear()
            return answered

        answer = scheduler.hear(arrive)
        scheduler.tell(f"{operation} {reference} -> {fault.partition('.')[2] or _said(answer)}")
        self._interposer.dies(f"before it heard the answer to the {operation}")
        return self._back(answer, request, slow=self._interposer.strikes("late_answer"))

    def _count(self, operation: str, reference: str, sent: Mapping[str, str]) -> None:
        if operation == "pay":
            self.creations[reference] += 1
        elif operation == "refund":
            self.refunds[key_of(sent.get("ipnUrl", ""))] += 1

    def _throttled(self, reference: str, *, is_return: bool) -> None:
        """Hold a query that an outsider causes against the last ones of the same payment. A return
        may cause one more after its own.
        """
        now, earlier = self._scheduler.seconds, self._caused[reference, is_return]
        before = earlier.popleft() if len(earlier) > is_return else -math.inf
        earlier.append(now)
        if now - before < self.throttle_seconds - _ON_ITS_WAY_SECONDS:
            self.heard.append(
                Violated(
                    f"I7: {reference} was asked about too often in {now - before:.1f} seconds, for "
                    "notifications or returns",
                ),
            )

    def _back(self, answer: Answer, request: httpx.Request, *, slow: str) -> httpx.Response:
        chance = self._scheduler.actor.chance if self._scheduler.actor else None
        assert chance
        timeout = request.extensions["timeout"]["read"]
        wait = (
            timeout + chance.uniform(0, 120)
            if slow or answer.delay_seconds > timeout
            else chance.uniform(0.01, 0.4) + answer.delay_seconds
        )
        self._scheduler.pause(min(wait, timeout))
        if wait > timeout:
            raise httpx.ReadTimeout("no answer came in time")
        if answer.fate in ("lose_request", "lose_response"):
            raise httpx.RemoteProtocolError("the connection closed without an answer")
        if answer.fate == "cut":
            raise httpx.RemoteProtocolError("the connection closed in the middle of the answer")
        return httpx.Response(answer.http_status, headers=list(answer.headers), content=answer.body)


def key_of(address: str) -> str:
    """Return the unguessable part of an address that notifications are sent to."""
    return address.rstrip("/").rpartition("/")[2]


def _fields(body: bytes, content_type: str) -> dict[str, str]:
    if "json" in content_type:
        return {
            name: str(value) for name, value in httpx.Response(200, content=body).json().items()
        }
    return {name: values[0] for name, values in parse_qs(body.decode()).items()}


def _said(answer: Answer) -> str:
    return f"HTTP {answer.http_status}"
