"""The gateway that every client is measured against: a process of its own on 127.0.0.1 that answers
canned bytes.

It reads just enough of a request to know where it ends, to measure the client alone. It checks
nothing: that the clients get the answers they should is checked by each benchmark before the clock
starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["AMOUNT", "REFERENCE", "TRANSACTION_NO", "running", "transaction_no"]

REFERENCE: Final = "100017-7Q2MZK4RXW3DA"
AMOUNT: Final = "12.50"
TRANSACTION_NO: Final = "297245675773350001"

_CREATED = {
    "ret_code": "000100",
    "ret_msg": "prepay success",
    "result": {
        "amount": AMOUNT,
        "currency": "USD",
        "transactionNo": TRANSACTION_NO,
        "reference": REFERENCE,
        "cashierUrl": f"https://pay.example/cashier/{TRANSACTION_NO}",
        "settleCurrency": "USD",
    },
}
_PAYMENT_INTENT = {
    "id": "pi_3QK2aB2eZvKYlo2C1bXg7a1z",
    "object": "payment_intent",
    "amount": 1250,
    "amount_capturable": 0,
    "amount_received": 0,
    "capture_method": "automatic",
    "client_secret": "pi_3QK2aB2eZvKYlo2C1bXg7a1z_secret_x",
    "created": 1700000000,
    "currency": "usd",
    "livemode": False,
    "metadata": {"reference": REFERENCE},
    "payment_method_types": ["alipay"],
    "status": "requires_payment_method",
}


def _answer(message: object) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )


_CREATED_ANSWER = _answer(_CREATED)
_PAYMENT_INTENT_ANSWER = _answer(_PAYMENT_INTENT)
_ASKED_REFERENCE = re.compile(rb'\breference(?:=|": ?")([^&"]+)')  # of a form or of JSON
_STATUSES = {"B": "pending", "P": "success"}


def transaction_no(reference: str) -> str:
    """Return the number that the server gives to a payment with a reference that begins with a
    letter and seven digits.
    """
    return f"29724567{reference[1:8]:0>10}"


def _queried(body: bytes) -> bytes:
    """Answer a query; the reference's first letter tells how the payment stands."""
    found = _ASKED_REFERENCE.search(body)
    assert found
    reference = found[1].decode()
    result = {
        "amount": AMOUNT,
        "currency": "USD",
        "reference": reference,
        "settleCurrency": "USD",
        "status": _STATUSES[reference[0]],
        "transactionNo": transaction_no(reference),
        "vendor": "alipay",
    }
    return _answer({"ret_code": "000100", "ret_msg": "query success", "result": result})


_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class _Connection(asyncio.Protocol):
    """One kept-alive connection: a request in, an answer out."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (body_starts := self._received.find(b"\r\n\r\n") + 4) > 3:
            length = _LENGTH.search(self._received, 0, body_starts)
            ends = body_starts + int(length[1] if length else 0)
            if len(self._received) < ends:
                return
            path, body, self._received = (
                self._received.split(b" ", 2)[1],
                self._received[body_starts:ends],
                self._received[ends:],
            )
            if path.endswith(b"tran-query"):
                self._transport.write(_queried(body))
            elif path.startswith(b"/v1/payment_intents/"):
                intent = path.rpartition(b"/")[2].decode()
                self._transport.write(
                    _answer(
                        {
                            **_PAYMENT_INTENT,
                            "id": intent,
                            "status": "succeeded",
                            "amount_received": 1250,
                        },
                    ),
                )
            else:
                self._transport.write(
                    _PAYMENT_INTENT_ANSWER if path == b"/v1/payment_intents" else _CREATED_ANSWER,
                )


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # until the process that started this one closes the pipe, or dies
    await asyncio.to_thread(sys.stdin.read)
    server.close()


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Start the server in a process of its own and yield its address."""
    command = [sys.executable, "-m", __name__]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command,
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its starter ends it
    asyncio.run(_serve())
