"""The generator of load, a process of its own: raw asyncio, a bounded number of kept-alive
connections, loopback only.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)
_REFRESH = re.compile(rb"\r\nrefresh: *(\d+); *url=(/\S+)\r\n", re.IGNORECASE)
_PATIENCE_SECONDS = 300.0
_PAGE_EVERY_SECONDS = 0.1


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


async def _opened(port: int, path: str) -> tuple[str, float]:
    """Open a path as a browser of its own, and go on where the shop's page does so; return the
    status and the seconds that it took.
    """
    began = time.perf_counter()
    answer = await _answer(port, path)
    while refresh := _REFRESH.search(answer.partition(b"\r\n\r\n")[0] + b"\r\n"):
        await asyncio.sleep(int(refresh[1]))
        answer = await _answer(port, refresh[2].decode())
    return answer[9:12].decode(), time.perf_counter() - began


async def _answer(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


async def _shop(
    port: int,
    paths: list[str],
    within_seconds: float,
    for_seconds: float,
) -> dict[str, Any]:
    async def press(number: int, path: str) -> tuple[str, float]:
        await asyncio.sleep(number * within_seconds / len(paths))
        return await _opened(port, path)

    ends = time.perf_counter() + for_seconds
    async with asyncio.timeout(_PATIENCE_SECONDS):
        presses = [asyncio.create_task(press(*each)) for each in enumerate(paths)]
        pages = list[asyncio.Task[tuple[str, float]]]()
        while time.perf_counter() < ends or not all(one.done() for one in presses):
            pages.append(asyncio.create_task(_opened(port, "/page/")))
            await asyncio.sleep(_PAGE_EVERY_SECONDS)
        answers = [await one for one in presses]
        waits = [(await one)[1] for one in pages]
    return {
        "statuses": Counter(status for status, _ in answers),
        "presses": [wait for _, wait in answers],
        "pages": waits,
    }


def shop(port: int, paths: list[str], within_seconds: float, for_seconds: float) -> dict[str, Any]:
    """Open each path, spread over some seconds, and another page again and again, each on a
    connection of its own.
    """
    return asyncio.run(_shop(port, paths, within_seconds, for_seconds))


ACTIONS: Final[dict[str, Callable[..., Any]]] = {"send": send, "shop": shop}
"""The actions, by name."""
