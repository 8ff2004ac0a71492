"""Mixed traffic: shoppers check out, pay, pay again, come back or do not, and wait, all at the same
time, at the emulator of the gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from proving.processes import Supervised, free_port, wait_for_port
from proving.storm.connection import Answer, Connection, Tally, Unexpected, get, post, spread
from proving.storm.shop import open_shop

__all__ = ["mixed"]

_METHODS: Final = ("alipay", "wechatpay", "paypal", "creditcard")
_AGAIN: Final = 0.25
"""So many choose another payment method at the payment page's, and pay with that."""
_CLOSED: Final = 0.25
"""So many close the tab when they have paid."""
_POLL_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 30.0
"""So long a shopper waits for a payment that was made to be known."""
_REPORT_SECONDS: Final = 5.0
_CALM_SECONDS: Final = 60.0

Say = Callable[[str], None]


class _Shopper:
    """Buys one thing after the other."""

    def __init__(self, shop: Connection, gateway: Connection, tally: Tally, chance: Random) -> None:
        self._shop, self._gateway, self._tally, self._chance = shop, gateway, tally, chance
        self.bought = 0

    async def buy(self, order_key: str) -> None:
        """Pay for an order; raise `Unexpected` where the shop or the gateway answers otherwise than
        it should.
        """
        pay = _target(
            (await self._shop.ask("checkout", get(f"/checkout/{order_key}/"), 302)).header(
                "location",
            ),
        )
        method, other = self._chance.sample(_METHODS, 2)
        page = await self._shop.ask("pay page", get(pay))
        payment_page = await self._choose("start", pay, page, method)
        if self._chance.random() < _AGAIN:
            page = await self._shop.ask("pay page", get(pay))
            payment_page = await self._choose("pay again", pay, page, other)
        way_back = (
            await self._gateway.ask("cashier", post(payment_page, {"decision": "pay"}), 303)
        ).header("location")
        self.bought += 1
        if self._chance.random() >= _CLOSED:
            await self._come_back(_target(way_back))

    async def _choose(self, kind: str, pay: str, page: Answer, method: str) -> str:
        token = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page.body)
        if token is None:
            raise self._tally.fail(kind, "the page has no form")
        cookie = page.header("set-cookie").partition(";")[0]
        answer = await self._shop.ask(
            kind,
            post(pay, {"csrfmiddlewaretoken": token[1].decode(), "method": method}, cookie),
        )
        payment_page = answer.header("refresh").partition("url=")[2]
        if not payment_page:
            raise self._tally.fail(kind, "the page does not lead to the payment page")
        return _target(payment_page)

    async def _come_back(self, return_page: str) -> None:
        await self._shop.ask("return", get(return_page))
        status = get(urlsplit(return_page).path.replace("/return/", "/status/"))
        until = time.monotonic() + _PATIENCE_SECONDS
        while b'"paid"' not in (await self._shop.ask("status", status)).body:
            if time.monotonic() > until:
                raise self._tally.fail("status", f"not paid after {_PATIENCE_SECONDS:.0f} s")
            await asyncio.sleep(_POLL_SECONDS)


def _target(url: str) -> str:
    """Return the path and query that a request uses for an address."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def mixed(
    database: str,
    folder: Path,
    seconds: float,
    connections: int,
    seed: int,
    say: Say,
) -> dict[str, Any]:
    """Let shoppers buy for so many seconds, and return the cost and the ledger's comparison
    afterwards.
    """
    tally, at_gateway = Tally(), Tally()
    with contextlib.ExitStack() as stack:
        port, emulator = stack.enter_context(_emulator(folder, seed))
        # the defaults
        shop = stack.enter_context(
            open_shop(database, emulator, folder / "mixed", throttle_seconds=5, worker_seconds=5),
        )
        shoppers = [
            _Shopper(
                Connection(shop.port, tally),
                Connection(port, at_gateway),
                tally,
                Random(f"{seed} shopper {number}"),
            )
            for number in range(connections)
        ]
        began = time.perf_counter()
        asyncio.run(_trade(shoppers, seconds, tally, say))
        took = time.perf_counter() - began
        compared = shop.settle(_paid(emulator))
    notifications = shop.served("/payments/notification/")
    errors = tally.errors + at_gateway.errors + shop.errors()
    errors["notification: not acknowledged"] = sum(status != "200" for status, _ in notifications)
    bought = sum(shopper.bought for shopper in shoppers)
    return {
        "seconds": round(took, 2),
        "payments": bought,
        "payments_per_second": round(bought / took, 1),
        "per_second": round(tally.requests / took, 1),
        **tally.figures(),
        "notifications": spread([spent for _, spent in notifications]),
        **compared,
        "errors": +errors,
        "log": shop.log(),
    }


@contextlib.contextmanager
def _emulator(folder: Path, seed: int) -> Iterator[tuple[int, str]]:
    """Start the gateway's emulator, without faults; yield its port and its address."""
    port = free_port()
    command = [
        str(Path(sys.executable).parent / "tillgate"),
        "sandbox",
        "--port",
        str(port),
        "--seed",
        str(seed),
    ]
    gateway = Supervised("gateway", command, os.environ, folder / "gateway.log")
    try:
        wait_for_port(port)
        yield port, f"http://127.0.0.1:{port}"
    finally:
        gateway.stop()


async def _trade(shoppers: list[_Shopper], seconds: float, tally: Tally, say: Say) -> None:
    numbers, ends = itertools.count(1), time.monotonic() + seconds

    async def shop(shopper: _Shopper) -> None:
        while time.monotonic() < ends:
            with contextlib.suppress(Unexpected):  # the tally has it
                await shopper.buy(f"M{next(numbers)}")

    async def report() -> None:
        while (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _REPORT_SECONDS))
            left, bought = (
                max(0.0, ends - time.monotonic()),
                sum(shopper.bought for shopper in shoppers),
            )
            say(
                f"{left:.0f} s left, {bought:,} payments, {tally.requests:,} requests, "
                f"{tally.errors.total()} errors",
            )

    await asyncio.gather(report(), *map(shop, shoppers))


def _paid(emulator: str) -> list[str]:
    """Return the references of payments paid at the gateway, after its last notification; or after
    a while, if some never go out.
    """
    until = time.monotonic() + _CALM_SECONDS
    while True:
        state = (
            httpx.get(f"{emulator}/_control/state", timeout=60, trust_env=False)
            .raise_for_status()
            .json()
        )
        if (
            state["notifications"] == {"waiting_until": None, "sending": 0}
            or time.monotonic() > until
        ):
            return [each["reference"] for each in state["transactions"] if each["status"] == "paid"]
        time.sleep(0.2)
