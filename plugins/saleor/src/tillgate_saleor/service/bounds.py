"""A bound on request bodies: the server writes a body to disk before a view can check the
sender.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

LARGEST_BODY_BYTES: Final = 1024 * 1024
"""The largest body of any request. The pages accept less: this bound only stops the reading."""


class _TooLarge(Exception):
    """The body is larger than the bound."""


def bounded(application: Application) -> Application:
    """Return an ASGI application that answers 413 to a larger body, however it is sent, and reads
    no more of it.
    """

    async def answer(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        left = LARGEST_BODY_BYTES

        async def take() -> Mapping[str, Any]:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise _TooLarge
            return message

        try:
            await application(scope, take, send)
        except _TooLarge:
            await send(
                {
                    "type": "http.response.start",
                    "status": 413,
                    "headers": [(b"connection", b"close")],
                },
            )
            await send({"type": "http.response.body", "body": b""})

    return answer
