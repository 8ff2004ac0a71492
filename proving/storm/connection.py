"""Kept-alive connections of raw asyncio, and the tally of their answers."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

__all__ = ["Answer", "Connection", "Tally", "Unexpected", "get", "post", "spread"]

_PATIENCE_SECONDS: Final = 60.0


class Unexpected(Exception):
    """A request did not get its expected answer; the tally has it already."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's answer."""

    status: int
    head: str
    body: bytes

    def header(self, name: str) -> str:
        """Return the value of a header, or nothing."""
        return _header(self.head, name)


def _header(head: str, name: str) -> str:
    found = re.search(rf"^{name}: *(.*?)\r$", head, re.IGNORECASE | re.MULTILINE)
    return found[1] if found else ""


class Tally:
    """How long requests took, by kind, and the wrong answers that came."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.errors: Counter[str] = Counter()

    @property
    def requests(self) -> int:
        """How many were answered."""
        return sum(map(len, self.seconds.values()))

    def fail(self, kind: str, detail: str) -> Unexpected:
        """Note an error, and return the exception to raise."""
        self.errors[f"{kind}: {detail}"] += 1
        return Unexpected(kind, detail)

    def figures(self) -> dict[str, Any]:
        """Return how many requests there were and how long they took, in all and by kind."""
        everything = [seconds for each in self.seconds.values() for seconds in each]
        return {
            **spread(everything),
            "kinds": {kind: spread(each) for kind, each in sorted(self.seconds.items())},
        }


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return the number of samples with their median and 99th percentile in milliseconds, by
    nearest rank.
    """
    ordered = sorted(seconds)
    figures: dict[str, float] = {"requests": len(ordered)}
    for name, rank in (("p50_ms", 0.50), ("p99_ms", 0.99)):
        if ordered:
            figures[name] = round(ordered[math.ceil(rank * len(ordered)) - 1] * 1000, 2)
    return figures


class Connection:
    """One kept-alive connection to a server on loopback, opened when it is needed."""

    def __init__(self, port: int, tally: Tally) -> None:
        self._port, self._tally = port, tally
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, kind: str, request: bytes, expected: int = 200) -> Answer:
        """Send a request and return the answer; raise `Unexpected` when none came, or one with
        another status.
        """
        began = time.perf_counter()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answer = await self._exchange(request)
        except (OSError, EOFError) as error:  # a time-out is an OSError
            self.close()
            raise self._tally.fail(kind, type(error).__name__) from error
        self._tally.seconds[kind].append(time.perf_counter() - began)
        if answer.status != expected:
            raise self._tally.fail(kind, f"answered {answer.status}")
        return answer

    async def _exchange(self, request: bytes) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        body = await reader.readexactly(int(_header(head, "content-length") or 0))
        if _header(head, "connection").lower() == "close":
            self.close()
        return Answer(int(head[9:12]), head, body)

    def close(self) -> None:
        """Close it; the next request opens it again."""
        if self._streams:
            self._streams[1].close()
            self._streams = None


def get(path: str) -> bytes:
    """Return the whole request for a page."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def post(path: str, fields: Mapping[str, str], cookie: str = "") -> bytes:
    """Return the whole request that sends a form."""
    body = urlencode(fields)
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/x-www-form-urlencoded",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"Cookie: {cookie}"] if cookie else []
    return "\r\n".join([*lines, "", body]).encode()
