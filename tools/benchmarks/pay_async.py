"""Payments created with 64 in flight: AsyncGateway against aiohttp, stock httpx.AsyncClient, and
itself without aiohttp.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final
from unittest import mock

import aiohttp
import httpx

import tillgate
from tillgate.wire import exchange
from tools.benchmarks import server
from tools.benchmarks.measure import Effort, expect, take_turns
from tools.benchmarks.pay import account_at, payment_request
from tools.benchmarks.report import Figure, Section

__all__ = ["IN_FLIGHT", "run"]

IN_FLIGHT: Final = 64

AsyncCall = Callable[[], Awaitable[object]]


async def _contenders(address: str, stack: AsyncExitStack) -> dict[str, AsyncCall]:
    account = account_at(address)
    gateway = await stack.enter_async_context(tillgate.AsyncGateway(account))
    # as on a machine without tillgate[async]
    with mock.patch("tillgate.transport.find_spec", return_value=None):
        fallback = await stack.enter_async_context(tillgate.AsyncGateway(account))
    session = await stack.enter_async_context(aiohttp.ClientSession())
    client = await stack.enter_async_context(httpx.AsyncClient())
    sent = exchange.write_pay(account.credentials, payment_request())
    headers = {"Content-Type": sent.content_type}

    async def with_tillgate() -> object:
        return (await gateway.pay(payment_request())).transaction_no

    async def with_fallback() -> object:
        return (await fallback.pay(payment_request())).transaction_no

    async def with_aiohttp() -> object:
        async with session.post(sent.url, data=sent.body, headers=headers) as response:
            await response.read()
            return response.status

    async def with_httpx() -> object:
        return (await client.post(sent.url, content=sent.body, headers=headers)).status_code

    calls: dict[str, AsyncCall] = {
        "AsyncGateway": with_tillgate,
        "AsyncGateway without aiohttp": with_fallback,
        "bare aiohttp": with_aiohttp,
        "stock httpx.AsyncClient": with_httpx,
    }
    for name, wanted in zip(
        calls,
        [server.TRANSACTION_NO, server.TRANSACTION_NO, 200, 200],
        strict=True,
    ):
        expect(name, await calls[name](), wanted)
    return calls


async def _seconds_per_call(call: AsyncCall, each: int) -> float:
    async def worker(repeats: int) -> None:
        for _ in range(repeats):
            await call()

    await asyncio.gather(*(worker(1) for _ in range(IN_FLIGHT)))  # opens the connections
    started = time.perf_counter()
    await asyncio.gather(*(worker(each) for _ in range(IN_FLIGHT)))
    return (time.perf_counter() - started) / (each * IN_FLIGHT)


def run(effort: Effort) -> Section:
    """Measure."""
    rounds, each = effort.pick(50, 2), effort.pick(8, 2)
    with server.running() as address, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        calls = runner.run(_contenders(address, stack))

        def sampled(call: AsyncCall, each: int) -> Callable[[], float]:
            return lambda: runner.run(_seconds_per_call(call, each))

        slow = 2  # a tenth of the rate of the others
        samples = {
            name: sampled(call, slow if "stock" in name else each) for name, call in calls.items()
        }
        series = take_turns("pay_async", samples, rounds, effort)
        runner.run(stack.aclose())
    return Section(
        name="pay_async",
        title=f"Creating payments, {IN_FLIGHT} in flight",
        about=f"{IN_FLIGHT} tasks on one event loop, each creating one payment after the other. "
        "Tillgate does all that it does for a\n"
        "single payment; the others post the same bytes and do not parse the answer.",
        repetitions=f"{rounds} rounds of {IN_FLIGHT} x {each} payments ({IN_FLIGHT} x {slow} for "
        "stock httpx).",
        figures=[
            Figure.speed(
                "`AsyncGateway`: rate of stock `httpx.AsyncClient`",
                series.speed("AsyncGateway", "stock httpx.AsyncClient"),
                at_least=4,
            ),
            Figure.speed(
                "`AsyncGateway`: rate of bare aiohttp",
                series.speed("AsyncGateway", "bare aiohttp"),
                at_least=0.5,
            ),
            Figure.speed(
                "`AsyncGateway` without aiohttp: rate of stock `httpx.AsyncClient`",
                series.speed("AsyncGateway without aiohttp", "stock httpx.AsyncClient"),
            ),
        ],
        bars={name: 1 / series.median(name) for name in calls},
        unit="payments a second (longer is better)",
    )
