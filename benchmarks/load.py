"""The generator of load, a process of its own: raw asyncio, a bounded number of kept-alive connections, loopback only."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)
_PATIENCE_SECONDS = 300.0


async def _connection(port: int, left: Iterator[bytes], statuses: Counter[str]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in left:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        await reader.readexactly(int(length[1]) if length else 0)
        statuses[head[9:12].decode()] += 1
        if _CLOSES.search(head):
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def _send(port: int, requests: list[bytes], connections: int) -> dict[str, Any]:
    statuses: Counter[str] = Counter()
    left = iter(requests)
    async with asyncio.timeout(_PATIENCE_SECONDS):
        started = time.perf_counter()
        await asyncio.gather(*(_connection(port, left, statuses) for _ in range(connections)))
        return {"seconds": time.perf_counter() - started, "statuses": statuses}


def send(port: int, requests: list[str], connections: int) -> dict[str, Any]:
    """Send requests and return the seconds that it took and the statuses that came."""
    return asyncio.run(_send(port, [text.encode("latin-1") for text in requests], connections))


ACTIONS: Final[dict[str, Callable[..., Any]]] = {"send": send}
"""What can be asked for, by name."""
