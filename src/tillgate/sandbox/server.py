"""The emulator behind a real HTTP server: in a thread for tests, or in the foreground for
people.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import secrets
import socket
import threading
import time
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from .access import is_loopback
from .app import create_app
from .clock import Clock
from .control import Control
from .errors import NotPossible
from .options import Options
from .service import Service

_START_SECONDS = 10.0
_KEEP_ALIVE_SECONDS = (
    75  # longer than a client's pool keeps a connection, so that the client always closes first
)


class Sandbox:
    """A running emulator: `with Sandbox(Options(query_amount="text")) as sandbox:
    sandbox.base_url`.

    It listens on a free port of loopback by default. Without a seed it draws one; `sandbox.seed`
    repeats the run.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        control_public: bool = False,
    ) -> None:
        self.control_public = control_public
        self._options = options or Options()
        self.seed: int = secrets.randbits(64) if self._options.seed is None else self._options.seed
        self.clock = clock or Clock(time.time)
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.base_url = f"http://{_reachable(host)}:{self.port}"
        self.public_url = (self._options.public_url or self.base_url).rstrip("/")
        self.options = dataclasses.replace(
            self._options,
            seed=self.seed,
            public_url=self.public_url,
        )
        self.service = Service(self.options, clock=self.clock, random=Random(self.seed))  # noqa: S311  repeatable on purpose
        self.control = Control(self.service, self.clock, public=not is_loopback(host))
        config = uvicorn.Config(
            create_app(
                self.control,
                public=self.control.public,
                control_public=self.control_public,
            ),
            http=_protocol(),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="sandbox", daemon=True)

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def start(self) -> Sandbox:
        """Serve in a separate thread, and return once it is ready."""
        self._thread.start()
        until = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise NotPossible("the sandbox could not start to serve")
            time.sleep(0.005)
        return self

    def stop(self) -> None:
        """Stop serving and close the waiting connections."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_START_SECONDS)
        self._socket.close()

    def run(self) -> None:
        """Serve in this thread until SIGINT or SIGTERM."""
        try:
            self._serve()
        except KeyboardInterrupt:
            pass  # the server has shut down cleanly and raises the signal again for the caller
        finally:
            self._socket.close()

    def __enter__(self) -> Sandbox:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def serve(
    options: Options | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8181,
    control_public: bool = False,
    write: Callable[[str], object] = print,
) -> None:
    """Serve in the foreground until interrupted; `write` gets lines with the address and the
    seed.
    """
    sandbox = Sandbox(options, host=host, port=port, control_public=control_public)
    for line in greeting(sandbox):
        write(line)
    sandbox.run()


def greeting(sandbox: Sandbox) -> list[str]:
    """Return the facts that a user needs about a sandbox that starts."""
    merchants = ", ".join(sandbox.options.merchants)
    developers = [
        f"  ledger     {sandbox.base_url}/",
        f"  control    {sandbox.base_url}/_control/state",
    ]
    if sandbox.control.public and not sandbox.control_public:
        developers = [
            "  ledger     off, and the control API, since others can reach this address: "
            "--control-public turns them on",
        ]
    return [
        f"Sandbox of the payment gateway at {sandbox.base_url} (no real money moves)",
        *(
            [f"  payment page    {sandbox.public_url}/cashier/…"]
            if sandbox.public_url != sandbox.base_url
            else []
        ),
        f"  seed       {sandbox.seed}",
        f"  merchants  {merchants}",
        *developers,
    ]


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY on accepted connections; without, each
    # answer waits 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        remedy = "; choose another port with --port" if error.errno == errno.EADDRINUSE else ""
        raise NotPossible(
            f"cannot listen on {host} port {port}: {error.strerror}{remedy}",
        ) from error
    return listener


def _reachable(host: str) -> str:
    """Return the name under which this machine reaches a server that listens on `host`."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  this only names them
    name = everywhere.get(host, host)
    return f"[{name}]" if ":" in name else name


def _protocol() -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol, the fast one if installed, changed so that the application
    can reach the connection.

    Faults must close a connection without an answer or in the middle of one, for which ASGI has no
    message.
    """
    base: Any = AutoHTTPProtocol

    class WithTransport(base):  # type: ignore[misc]  # the base is chosen at run time
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.app_state: dict[str, Any] = {**self.app_state, "transport": transport}

    return WithTransport
