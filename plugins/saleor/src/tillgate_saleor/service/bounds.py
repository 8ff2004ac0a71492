"""A bound on what is read: a body is written to the disk before any view can ask who sends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

__all__ = ["LARGEST_BODY_BYTES", "bounded"]

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

LARGEST_BODY_BYTES: Final = 1024 * 1024
"""Of any request. What the pages take is less: this is only where reading ends."""


class _TooLarge(Exception):
    """There is more than anybody may send."""


def bounded(application: Application) -> Application:
    """Return an ASGI application that answers 413 to a larger body, however it is sent, and reads no more of it."""

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
            await send({"type": "http.response.start", "status": 413, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b""})

    return answer
