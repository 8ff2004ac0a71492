"""The emulator as an ASGI application: the three endpoints on a short path, since benchmarks depend
on it, and Starlette.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import cast

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from . import control_api, pages
from .access import Access
from .answers import Answer
from .control import Control
from .requests import MAXIMUM_BODY_BYTES
from .sender import Sender

_ENDPOINTS = ("/online/", "/app-data-search/")


class ConnectionCut(Exception):
    """A fault wants the connection closed, and this server offers no other way than this error."""


def create_app(control: Control, *, public: bool = False, control_public: bool = False) -> ASGIApp:
    """Build the application; `public` says that others can reach it, which closes `/` and
    `/_control/` unless `control_public`.
    """
    return SandboxApp(control, Access(public=public, control_public=control_public))


class SandboxApp:
    """Dispatches between the endpoints and the pages."""

    def __init__(self, control: Control, access: Access) -> None:
        self._control = control
        self._pages = Starlette(
            routes=[*pages.routes(control, access), *control_api.routes(control, access)],
            exception_handlers=pages.EXCEPTION_HANDLERS,
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(Sender(self._control).run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] != "http" or not scope["path"].startswith(_ENDPOINTS):
            await self._pages(scope, receive, send)
        elif scope["method"] != "POST":
            await _send(
                Answer(405, (("allow", "POST"), ("content-type", "text/plain")), b"POST only"),
                send,
            )
        else:
            content_type = next(
                (value for name, value in scope["headers"] if name == b"content-type"),
                b"",
            )
            body = await _read(receive)
            await _deliver(
                self._control.handle(scope["path"], content_type.decode("latin-1"), body),
                scope,
                receive,
                send,
            )


async def _read(receive: Receive) -> bytes:
    message = await receive()
    body = cast("bytes", message.get("body", b""))
    while message.get("more_body") and len(body) <= MAXIMUM_BODY_BYTES:
        message = await receive()
        body += message.get("body", b"")
    return body


async def _deliver(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Deliver the answer according to its fate."""
    if answer.delay_seconds:
        await asyncio.sleep(answer.delay_seconds)
    if answer.fate in ("answer", "drip"):
        await _send(answer, send)
    else:
        transport: asyncio.Transport | None = scope.get("state", {}).get("transport")
        if transport is None:
            raise ConnectionCut(answer.fate)
        if answer.fate == "cut":
            transport.write(answer.raw()[: answer.cut_after])
        transport.close()
        while (await receive())["type"] != "http.disconnect":
            pass


async def _send(answer: Answer, send: Send) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
    headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.http_status, "headers": headers})
    rest = answer.body
    while answer.fate == "drip" and rest:
        await send({"type": "http.response.body", "body": rest[:1], "more_body": True})
        await asyncio.sleep(answer.pause_seconds)
        rest = rest[1:]
    await send({"type": "http.response.body", "body": rest})
