"""How bytes travel: connections, threads, forks, event loops, time-outs and TLS, over all three
transports.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest

from proving.processes import free_port
from tests.scripted_gateway import (
    Cut,
    PastTls,
    Received,
    ScriptedGateway,
    Step,
    always,
    http,
    in_turn,
)
from tests.support import (
    GOOD_BODIES,
    KINDS,
    OPERATIONS,
    REFERENCE,
    NothingMayBeSent,
    account,
    call,
    carry_out,
    envelope,
    everything_shown,
    found,
    payment,
    refund,
    run_async,
    within,
)
from tillgate import (
    AnswerNotUnderstood,
    AsyncGateway,
    ConfigurationError,
    Gateway,
    NotSent,
    OutcomeUnknown,
    Refused,
    client,
    new_reference,
    transport,
)

CERTIFICATES = Path(__file__).parent / "certificates"
FAST: dict[str, Any] = {"sandbox": True, "deadline_seconds": 20.0, "query_attempts": 1}


def good(request: Received) -> list[bytes]:
    """Answer each operation well, a query for the reference that was asked for."""
    if request.operation == "query":
        return [http(envelope(found(reference=request.parameters["reference"])))]
    return [http(GOOD_BODIES[request.operation])]


@pytest.fixture
def server() -> Iterator[ScriptedGateway]:
    with ScriptedGateway(good) as running:
        yield running


# --- connections


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_calls_use_one_connection(server: ScriptedGateway, kind: str) -> None:
    carry_out(kind, account(base_url=server.url, **FAST), *(["pay", "query"] * 10))
    assert (len(server.requests), server.connections) == (20, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_a_gateway_closes_its_connections(server: ScriptedGateway, kind: str) -> None:
    carry_out(kind, account(base_url=server.url, **FAST), "query")
    assert server.wait_until_none_is_open()


def test_closed_gateway_reopens_on_use(server: ScriptedGateway) -> None:
    gateway = Gateway(account(base_url=server.url, **FAST))
    for _ in range(2):
        gateway.query(REFERENCE)
        gateway.close()
    gateway.close()
    assert server.connections == 2


@pytest.mark.parametrize("kind", KINDS[1:])
def test_closed_async_gateway_reopens_on_use(
    server: ScriptedGateway,
    kind: str,
) -> None:
    """The gateway can reopen in another event loop too."""
    gateways: list[AsyncGateway] = []

    async def work(gateway: AsyncGateway) -> list[Any]:
        gateways.append(gateway)
        await gateway.query(REFERENCE)
        await gateway.close()
        return [await gateway.query(REFERENCE)]

    run_async(kind, account(base_url=server.url, **FAST), work)

    async def again() -> None:
        async with gateways[0] as gateway:
            await gateway.query(REFERENCE)

    asyncio.run(again())
    assert (len(server.requests), server.connections) == (3, 3)
    assert server.wait_until_none_is_open()


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_connection_closed_by_server_is_unused(
    server: ScriptedGateway,
    kind: str,
    operation: str,
) -> None:
    server.script = lambda request: [*good(request), Cut.CLOSE]
    at = account(base_url=server.url, **FAST)
    if kind == "sync":
        with Gateway(at) as gateway:
            for _ in range(3):
                call(gateway, operation)
                assert server.wait_until_none_is_open()
    else:

        async def work(gateway: AsyncGateway) -> list[Any]:
            for _ in range(3):
                await call(gateway, operation)
                assert await asyncio.to_thread(server.wait_until_none_is_open)
                await asyncio.sleep(0.05)
            return []

        run_async(kind, at, work)
    assert (len(server.requests), server.connections) == (3, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_no_cookie_is_kept(server: ScriptedGateway, kind: str) -> None:
    server.script = lambda request: [
        http(GOOD_BODIES[request.operation], headers={"Set-Cookie": "session=1; Path=/"}),
    ]
    # a cookie jar may be shy of addresses without a name
    by_name = server.url.replace("127.0.0.1", "localhost")
    carry_out(kind, account(base_url=by_name, **FAST), "query", "query")
    assert not [request for request in server.requests if "cookie" in request.headers]


@pytest.mark.parametrize("kind", KINDS)
def test_environment_gives_no_proxy_or_password(
    server: ScriptedGateway,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    carry_out(kind, account(base_url=server.url, **FAST), "query")
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("kind", KINDS)
def test_unread_answer_prevents_connection_reuse(
    server: ScriptedGateway,
    kind: str,
) -> None:
    server.script = lambda request: (
        [http(b"x" * 20_000_000)] if request.operation == "pay" else good(request)
    )
    at = account(base_url=server.url, **FAST)
    if kind == "sync":
        with Gateway(at) as gateway:
            with pytest.raises(OutcomeUnknown):
                gateway.pay(payment())
            assert gateway.query(REFERENCE).reference == REFERENCE
    else:

        async def work(gateway: AsyncGateway) -> list[Any]:
            with pytest.raises(OutcomeUnknown):
                await gateway.pay(payment())
            return [await gateway.query(REFERENCE)]

        assert run_async(kind, at, work)[0].reference == REFERENCE
    assert server.connections == 2


# --- answers without a request

REFUSED = http(envelope(code="000020", message="no"))
SPURIOUS = http(GOOD_BODIES["refund"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["pay", "query", "refund"])
@pytest.mark.parametrize("pause", [(), (0.1,)])
@pytest.mark.parametrize("over", ["server", "tls_server"])
def test_i6_refund_never_reads_leftover_answer(
    over: str,
    pause: tuple[float, ...],
    first: str,
    kind: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refund never accepts an answer to another request."""
    monkeypatch.setattr(transport, "_ssl_context", trusting)
    server: ScriptedGateway = request.getfixturevalue(over)
    answer = http(GOOD_BODIES[first])
    too_much: list[Step] = [answer, *pause, SPURIOUS] if pause else [answer + SPURIOUS]
    server.script = in_turn(too_much, [REFUSED])
    at = account(**{**FAST, "base_url": server.url})

    async def work(gateway: AsyncGateway) -> list[Any]:
        await call(gateway, first)
        await asyncio.sleep(0.25)
        with pytest.raises(Refused):
            await gateway.refund(refund())
        return []

    if kind == "sync":
        with Gateway(at) as gateway:
            call(gateway, first)
            time.sleep(0.25)
            with pytest.raises(Refused):
                gateway.refund(refund())
    else:
        run_async(kind, at, work)
    assert (len(server.requests), server.connections) == (2, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", ["pay", "query"])
def test_leftover_answer_for_other_reference_refused(
    server: ScriptedGateway,
    kind: str,
    operation: str,
) -> None:
    """A payment or a query may meet it on a kept connection, and knows it by the reference."""
    server.script = lambda _request: [http(GOOD_BODIES[operation]) * 2]
    other = new_reference("OTHER")
    at = account(base_url=server.url, **FAST)

    async def work(gateway: AsyncGateway) -> list[Any]:
        await call(gateway, operation)
        with pytest.raises(
            (AnswerNotUnderstood, OutcomeUnknown),
            match=f"is about the reference .{REFERENCE}. instead of .{other}",
        ):
            await (
                gateway.pay(payment(reference=other))
                if operation == "pay"
                else gateway.query(other)
            )
        return []

    if kind == "sync":
        with Gateway(at) as gateway:
            call(gateway, operation)
            with pytest.raises(
                (AnswerNotUnderstood, OutcomeUnknown),
                match=f"is about the reference .{REFERENCE}. instead of .{other}",
            ):
                _ = (
                    gateway.pay(payment(reference=other))
                    if operation == "pay"
                    else gateway.query(other)
                )
    else:
        run_async(kind, at, work)


@pytest.mark.parametrize("kind", KINDS)
def test_each_refund_uses_own_connection(server: ScriptedGateway, kind: str) -> None:
    """The connection is closed after the refund."""
    at = account(base_url=server.url, **FAST)

    async def work(gateway: AsyncGateway) -> list[Any]:
        for _ in range(3):
            await gateway.refund(refund())
        return [await asyncio.to_thread(server.wait_until_none_is_open)]

    if kind == "sync":
        with Gateway(at) as gateway:
            for _ in range(3):
                gateway.refund(refund())
            assert server.wait_until_none_is_open()
    else:
        assert run_async(kind, at, work) == [True]
    assert (len(server.requests), server.connections) == (3, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_may_come_letter_by_letter(server: ScriptedGateway, kind: str) -> None:
    def slowly(request: Received) -> Iterator[float | bytes]:
        for letter in good(request)[0][:9]:
            yield bytes([letter])
            yield 0.005
        yield good(request)[0][9:]

    server.script = slowly
    carry_out(kind, account(base_url=server.url, **FAST), *OPERATIONS)
    assert len(server.requests) == 3


@pytest.mark.parametrize("kind", KINDS[1:])
def test_cancelled_call_shows_nothing_sent(server: ScriptedGateway, kind: str) -> None:
    """The error of a cancelled call contains nothing of its request."""
    entered = threading.Event()

    def never(_request: Received) -> Iterator[float]:
        entered.set()
        yield 10.0

    server.script = never

    async def work(gateway: AsyncGateway) -> list[Any]:
        waiting = asyncio.create_task(gateway.pay(payment()))
        assert await asyncio.to_thread(entered.wait, 5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await waiting
        return [everything_shown(caught.value)]

    (shown,) = run_async(kind, account(base_url=server.url, **FAST), work)
    assert "handle_async_request" in shown or "aiohttp" in shown, "the frames are there"
    assert "verifySign" not in shown
    assert server.requests[0].parameters["verifySign"] not in shown


# --- many together


def test_threads_get_their_own_answers(
    server: ScriptedGateway,
) -> None:
    """Sixteen threads can share one gateway."""
    start = threading.Barrier(16)

    def work(number: int) -> int:
        start.wait(timeout=10)
        references = [new_reference(str(number)) for _ in range(10)]
        return sum(
            gateway.query(reference).raw["reference"] == reference for reference in references
        )

    with (
        Gateway(account(base_url=server.url, **FAST)) as gateway,
        ThreadPoolExecutor(16) as threads,
    ):
        assert sum(threads.map(work, range(16))) == 160
    assert (
        len({request.parameters["reference"] for request in server.requests})
        == len(server.requests)
        == 160
    )
    assert server.connections <= 16


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("most", [1, 3, 8])
def test_tasks_respect_gateway_connection_limit(
    server: ScriptedGateway,
    kind: str,
    most: int,
) -> None:
    """Many tasks can share one async gateway."""
    references = [new_reference(str(number)) for number in range(50)]

    async def work(gateway: AsyncGateway) -> list[Any]:
        return await asyncio.gather(*(gateway.query(reference) for reference in references))

    answers = run_async(kind, account(base_url=server.url, **FAST, max_connections=most), work)
    assert [answer.raw["reference"] for answer in answers] == references
    assert server.connections <= most


@pytest.mark.parametrize("kind", KINDS)
def test_connection_timeout_means_not_sent(
    server: ScriptedGateway,
    kind: str,
) -> None:
    """A call that waited too long for a connection has sent nothing."""
    entered = threading.Event()

    def slow(request: Received) -> Iterator[float | bytes]:
        entered.set()
        yield 0.8
        yield from good(request)

    server.script = slow
    at = account(base_url=server.url, **FAST, max_connections=1, connect_timeout_seconds=0.3)
    if kind == "sync":
        with Gateway(at) as gateway, ThreadPoolExecutor(1) as threads:
            first = threads.submit(gateway.pay, payment())
            assert entered.wait(5)
            with pytest.raises(NotSent):
                gateway.pay(payment(reference=new_reference("OTHER")))
            assert first.result().reference == REFERENCE
    else:

        async def work(gateway: AsyncGateway) -> list[Any]:
            first = asyncio.create_task(gateway.pay(payment()))
            assert await asyncio.to_thread(entered.wait, 5)
            with pytest.raises(NotSent):
                await gateway.pay(payment(reference=new_reference("OTHER")))
            return [await first]

        assert run_async(kind, at, work)[0].reference == REFERENCE
    assert [request.operation for request in server.requests] == ["pay"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_expired_call_is_not_sent(
    operation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time of the call was up before it began."""
    with Gateway(account(query_attempts=1), transport=NothingMayBeSent()) as gateway:
        monkeypatch.setattr(client, "_deadline", lambda *_: time.monotonic() - 1)
        with pytest.raises(NotSent, match="the deadline passed"):
            call(gateway, operation)


class Endless(httpx.SyncByteStream):
    """The body of an answer that goes on and on, for ten seconds at least."""

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(500):
            time.sleep(0.02)
            yield b" "


def test_deadline_holds_for_injected_transport() -> None:
    """The injected transport knows nothing of the deadline."""
    given = httpx.MockTransport(lambda _request: httpx.Response(200, stream=Endless()))
    with (
        within(5),
        Gateway(account(deadline_seconds=0.3), transport=given) as gateway,
        pytest.raises(OutcomeUnknown, match="the deadline passed"),
    ):
        gateway.pay(payment())


def test_connection_wait_ends_with_deadline(
    server: ScriptedGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, answered = threading.Event(), threading.Event()

    def slow(request: Received) -> Iterator[bytes]:
        entered.set()
        answered.wait(10)
        yield from good(request)

    server.script = slow
    with (
        Gateway(account(base_url=server.url, **FAST, max_connections=1)) as gateway,
        ThreadPoolExecutor(1) as threads,
    ):
        first = threads.submit(gateway.pay, payment())
        assert entered.wait(5)
        monkeypatch.setattr(client, "_deadline", lambda *_: time.monotonic() + 0.3)
        with within(3), pytest.raises(NotSent):
            gateway.pay(payment(reference=new_reference("OTHER")))
        answered.set()
        assert first.result().reference == REFERENCE
    assert len(server.requests) == 1


@contextlib.contextmanager
def silent_addresses(monkeypatch: pytest.MonkeyPatch, *, last: int | None = None) -> Iterator[int]:
    """Give pay.example five addresses that never answer, and then perhaps this machine; yield their
    port.
    """
    with contextlib.ExitStack() as open_sockets:
        # A listener whose queue is full drops new connections: the kernel answers nothing, as a
        # firewall does.
        port = last or free_port()
        for number in range(2, 7):
            address = (f"127.0.0.{number}", port)
            open_sockets.enter_context(socket.create_server(address, backlog=0))
            for _ in range(3):
                waiting = open_sockets.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(address)
        resolve = socket.getaddrinfo
        hosts = [f"127.0.0.{number}" for number in range(2, 7)] + ["127.0.0.1"] * bool(last)

        def resolved(host: str, *arguments: Any, **options: Any) -> Any:
            names = hosts if host == "pay.example" else [host]
            return [found for name in names for found in resolve(name, *arguments, **options)]

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        yield port


@pytest.mark.skipif(
    sys.platform != "linux",
    reason="only Linux has all of 127.0.0.0/8, and drops what a full queue cannot take",
)
def test_many_silent_addresses_keep_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with silent_addresses(monkeypatch) as port:
        at = account(
            base_url=f"http://pay.example:{port}",
            sandbox=True,
            connect_timeout_seconds=1.0,
            deadline_seconds=1.5,
        )
        with within(3), pytest.raises(NotSent):
            carry_out("sync", at, "refund")


@pytest.mark.skipif(sys.platform != "linux", reason="for the same reason")
def test_answering_address_is_found_among_silent(
    server: ScriptedGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with silent_addresses(monkeypatch, last=int(server.url.rpartition(":")[2])) as port:
        carry_out(
            "sync",
            account(base_url=f"http://pay.example:{port}", **FAST, connect_timeout_seconds=0.2),
            "query",
        )
    assert len(server.requests) == 1


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let the name pay.example lead to these addresses."""
    real = socket.getaddrinfo

    def found(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in ("pay.example", b"pay.example"):
            return real(host, port, *args, **kwargs)
        return [
            one for address in addresses for one in real(address, port, type=socket.SOCK_STREAM)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", found)


def guarded(server: ScriptedGateway, **options: Any) -> Any:
    """Return an account that connects to public addresses only, at the server's port."""
    port = server.url.rpartition(":")[2]
    return account(
        base_url=f"http://pay.example:{port}",
        public_addresses_only=True,
        **FAST,
        **options,
    )


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "addresses",
    [("127.0.0.1",), ("127.0.0.1", "127.0.0.1"), ("::ffff:127.0.0.1",)],
)
def test_private_addresses_are_never_connected_to(
    server: ScriptedGateway,
    kind: str,
    operation: str,
    addresses: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolving(monkeypatch, *addresses)
    with pytest.raises(NotSent, match=r"pay\.example.*no public address") as caught:
        carry_out(kind, guarded(server), operation)
    assert server.connections == 0
    assert "127.0.0.1" not in str(caught.value), (
        "an organizer would read how the network is laid out"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_public_one_of_several_addresses_is_tried(
    server: ScriptedGateway,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the second is public, and nothing listens there
    resolving(monkeypatch, "127.0.0.1", "192.88.99.1")
    with pytest.raises((NotSent, OutcomeUnknown)) as caught:
        carry_out(kind, guarded(server, connect_timeout_seconds=0.2), "query")
    assert server.connections == 0
    assert "no public address" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_redirect_to_private_address_not_followed(
    server: ScriptedGateway,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tillgate.transport.is_public_address", lambda address: True)
    monkeypatch.setattr("tillgate.aiohttp_transport.is_public_address", lambda address: True)
    resolving(monkeypatch, "127.0.0.1")
    with ScriptedGateway(good) as internal:
        server.script = always(
            f"HTTP/1.1 307 x\r\nLocation: {internal.url}/\r\nContent-Length: 0\r\n\r\n".encode(),
        )
        with pytest.raises((AnswerNotUnderstood, Refused)):
            carry_out(kind, guarded(server), "query")
        assert (len(server.requests), internal.connections) == (1, 0)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_async_gateway_refuses_other_event_loop(
    server: ScriptedGateway,
    kind: str,
    recwarn: pytest.WarningsRecorder,
) -> None:
    """The call is refused before anything is sent."""

    async def work(gateway: AsyncGateway) -> list[Any]:
        await gateway.query(REFERENCE)
        with pytest.raises(ConfigurationError, match="event loop"):
            await asyncio.to_thread(lambda: asyncio.run(gateway.pay(payment())))
        return [await gateway.query(REFERENCE)]

    run_async(kind, account(base_url=server.url, **FAST), work)
    assert [request.operation for request in server.requests] == ["query", "query"]


FORKING = """
import os, sys, threading
from tillgate import Account, Gateway, new_reference

account = Account(base_url=sys.argv[1], merchant_no="200043", token="not-a-secret", sandbox=True, query_attempts=1)
with Gateway(account) as gateway:
    gateway.query(new_reference("BEFORE"))
    pids = [os.fork() for _ in range(1)]
    name = "CHILD" if 0 in pids else "PARENT"
    for _ in range(30):
        reference = new_reference(name)
        assert gateway.query(reference).raw["reference"] == reference, "an answer to another process"
if name == "CHILD":
    sys.stdout.flush()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]) == 0
with gateway:
    gateway.query(new_reference("AFTER"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="this system cannot fork")
def test_forked_processes_share_gateway_safely(
    server: ScriptedGateway,
) -> None:
    """A forked child and its parent do not mix their answers."""
    finished = subprocess.run(
        [sys.executable, "-c", FORKING, server.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert (
        len({request.parameters["reference"] for request in server.requests})
        == len(server.requests)
        == 62
    )


CLOSING_IN_A_CHILD = """
import os, sys
from tillgate import Account, Gateway, new_reference

gateway = Gateway(Account(base_url=sys.argv[1], merchant_no="200043", token="not-a-secret", sandbox=True, query_attempts=1))
gateway.query(new_reference("BEFORE"))
with gateway._transport._kept._pool._optional_thread_lock:  # as another thread of the parent may hold it while this one forks
    child = os.fork()
    if not child:
        gateway.close()
        os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
gateway.query(new_reference("AFTER"))
gateway.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="this system cannot fork")
def test_forked_close_keeps_parent_connection(
    server: ScriptedGateway,
) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", CLOSING_IN_A_CHILD, server.url],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert (len(server.requests), server.connections) == (2, 1)


# --- which transport


@pytest.mark.parametrize("is_installed", [True, False])
def test_async_gateway_prefers_aiohttp(
    is_installed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gateway uses aiohttp where it is installed."""
    monkeypatch.setattr(transport, "find_spec", lambda name: name if is_installed else None)
    chosen = transport.async_transport(account(), None)
    assert (type(chosen).__name__ == "AiohttpTransport") == is_installed
    assert isinstance(chosen, transport.AsyncTransport) != is_installed


def test_given_transport_is_always_used() -> None:
    """Installed packages make no difference."""
    given = httpx.MockTransport(lambda _request: httpx.Response(200))
    assert isinstance(transport.async_transport(account(), given), transport.AsyncTransport)


def test_httpx_keeps_to_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []

    def pool(**given: Any) -> None:
        limits.append((given["max_connections"], given["max_keepalive_connections"]))

    monkeypatch.setattr(httpcore, "AsyncConnectionPool", pool)
    transport.AsyncTransport(account(max_connections=7), None)
    assert limits == [(7, 7), (7, 0)], (
        "the second is for refunds, which open a connection of their own"
    )


# --- TLS


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATES / "authority.pem")


@pytest.fixture
def tls_server() -> Iterator[ScriptedGateway]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "localhost.pem")
    with ScriptedGateway(good, context) as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_untrusted_certificate_means_not_sent(
    tls_server: ScriptedGateway,
    kind: str,
    operation: str,
) -> None:
    with pytest.raises(NotSent, match=r"(?i)certificate") as caught:
        carry_out(kind, account(base_url=tls_server.url, query_attempts=1), operation)
    assert tls_server.requests == []
    assert "verifySign" not in everything_shown(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_host_certificate_means_not_sent(
    tls_server: ScriptedGateway,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_ssl_context", trusting)
    with pytest.raises(NotSent):
        carry_out(
            kind,
            account(base_url=tls_server.url.replace("127.0.0.1", "127.0.0.2"), query_attempts=1),
            "refund",
        )
    assert tls_server.requests == []


@pytest.mark.parametrize("kind", KINDS)
def test_calls_over_tls_share_a_connection(
    tls_server: ScriptedGateway,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_ssl_context", trusting)
    carry_out(kind, account(base_url=tls_server.url), "pay", "query", "pay")
    assert (len(tls_server.requests), tls_server.connections) == (3, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "steps",
    [
        (Cut.CLOSE,),
        (http(GOOD_BODIES["refund"])[:-1], Cut.CLOSE),
        (Cut.RESET,),
        (PastTls(b"HTTP/1.1 502 Bad Gateway\r\n\r\n"), Cut.CLOSE),
        (1.5, Cut.CLOSE),
    ],
)
def test_cut_tls_answer_leaves_outcome_unknown(
    tls_server: ScriptedGateway,
    kind: str,
    steps: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_ssl_context", trusting)
    tls_server.script = always(*steps)
    at = account(base_url=tls_server.url, deadline_seconds=1.0)

    async def work(gateway: AsyncGateway) -> list[Any]:
        with pytest.raises(OutcomeUnknown):
            await gateway.refund(refund())
        # a loop that ends earlier leaves the TLS farewell unsaid
        await asyncio.to_thread(tls_server.wait_until_none_is_open)
        return []

    if kind == "sync":
        with within(5), pytest.raises(OutcomeUnknown):
            carry_out(kind, at, "refund")
    else:
        with within(5):
            run_async(kind, at, work)
    assert len(tls_server.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_endless_handshake_means_not_sent(kind: str) -> None:
    """The client ends the handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        at = account(
            base_url=f"https://127.0.0.1:{listener.getsockname()[1]}",
            connect_timeout_seconds=0.3,
            deadline_seconds=5,
        )
        with within(5), pytest.raises(NotSent):
            carry_out(kind, at, "pay")


@pytest.mark.parametrize("kind", KINDS)
def test_missing_tls_means_not_sent(
    server: ScriptedGateway,
    kind: str,
) -> None:
    """Nothing is sent to a server that speaks plain HTTP where TLS is expected."""
    with pytest.raises(NotSent):
        carry_out(
            kind,
            account(
                base_url=server.url.replace("http://", "https://"),
                connect_timeout_seconds=0.3,
            ),
            "pay",
        )
    assert server.requests == []
