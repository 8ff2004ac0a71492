"""The emulator over real HTTP: fates of answers, notifications to a real receiver, starting and
stopping.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPException, RemoteDisconnected
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import pytest

from tillgate.sandbox import Clock, NotPossible, Options, Sandbox
from tillgate.sandbox.notifications import NotificationAttempt
from tillgate.sandbox.sender import send
from tillgate.sandbox.server import greeting

if TYPE_CHECKING:
    from tests.sandbox.conftest import HttpMerchant, Receiver

REFERENCE = "100017-7Q2MZK4RXW3DA"


# The fate of an answer.


def test_lost_request_does_nothing(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    """The connection is closed."""
    with pytest.raises((RemoteDisconnected, ConnectionError)):
        http.pay(amount="13.01")
    assert http.query()[1]["ret_code"] == "000022"


def test_lost_response_still_does_the_work(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    """The connection is closed afterwards."""
    with pytest.raises((RemoteDisconnected, ConnectionError)):
        http.pay(amount="13.02")
    assert http.query()[1]["result"]["status"] == "pending"


def test_a_delayed_answer_comes_late(sandbox: Sandbox, http: HttpMerchant) -> None:
    started = time.monotonic()
    assert http.pay(amount="13.03")[0] == 200
    assert time.monotonic() - started >= 0.05


@pytest.mark.parametrize("after", [0, 1, 40, 200])
def test_answer_is_cut_at_chosen_byte(
    sandbox: Sandbox,
    http: HttpMerchant,
    after: int,
) -> None:
    sandbox.control.set_options({"cut_after_bytes": after})
    sandbox.control.fault("cut", occasion="pay")
    with pytest.raises((HTTPException, ConnectionError, ValueError)):
        http.pay()
    assert http.query()[1]["result"]["status"] == "pending"


def test_dripping_answer_arrives_whole(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    assert http.pay(amount="13.15")[1]["ret_code"] == "000100"


def test_huge_answer_arrives_whole(sandbox: Sandbox, http: HttpMerchant) -> None:
    assert http.pay(amount="13.14")[1]["ret_code"] == "000100"


def test_normal_answer_keeps_connection_open(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    request = (
        b"POST /online/v1/tran-query HTTP/1.1\r\nHost: x\r\nContent-Type: "
        b"application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=5) as connection:
        for _ in range(3):
            connection.sendall(request)
            answer = connection.recv(4096)
            while b"}" not in answer:  # head and body may arrive apart
                answer += connection.recv(4096)
            assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_the_endpoints_take_post_only(sandbox: Sandbox, http: HttpMerchant, method: str) -> None:
    status, headers, _ = http.request(method, "/online/v1/tran-query")
    assert (status, headers["allow"]) == (405, "POST")


def test_a_body_without_end_is_not_kept(sandbox: Sandbox, http: HttpMerchant) -> None:
    status, _, body = http.request(
        "POST",
        "/online/v1/refund",
        b" " * 2_000_000,
        {"Content-Type": "application/json"},
    )
    assert status == 400
    assert b"longer" in body


# Notifications.


def test_notifications_are_sent_until_they_are_acknowledged(
    sandbox: Sandbox,
    http: HttpMerchant,
    receiver: Receiver,
) -> None:
    receiver.answers = [(500, b"success"), (200, b"later"), (302, b"success"), (200, b"success")]
    http.pay(ipnUrl=f"{receiver.url}/ipn/x?y=1")
    sandbox.control.pay(REFERENCE)
    for sends, seconds_to_next in enumerate((15, 45, 240, 7200), start=1):
        assert sandbox.control.wait_for_notifications()
        assert len(receiver.got) == sends
        sandbox.control.advance(seconds_to_next)
    assert sandbox.control.wait_for_notifications()
    assert len(receiver.got) == 4
    # no redirect was followed
    assert {(method, path) for method, path, _, _ in receiver.got} == {("POST", "/ipn/x?y=1")}
    assert dict(parse_qsl(receiver.got[0][3].decode()))["reference"] == REFERENCE


def test_absent_receiver_is_tried_again(sandbox: Sandbox, http: HttpMerchant) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        http.pay(ipnUrl=f"http://127.0.0.1:{taken.getsockname()[1]}/")
        sandbox.control.pay(REFERENCE)
        assert sandbox.control.wait_for_notifications()
    assert sandbox.service.outbox.next_due() is not None
    assert any("ConnectionRefusedError" in entry.title for entry in sandbox.service.journal.all())


def test_silent_receiver_delays_nothing_else(
    sandbox: Sandbox,
    http: HttpMerchant,
) -> None:
    sandbox.control.set_options({"notification_timeout_seconds": 0.1})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        http.pay(ipnUrl=f"http://127.0.0.1:{silent.getsockname()[1]}/")
        sandbox.control.pay(REFERENCE)
        assert sandbox.control.wait_for_notifications()
    sandbox.control.set_options({"notification_timeout_seconds": 10})
    assert any("TimeoutError" in entry.title for entry in sandbox.service.journal.all())


def test_notifications_can_be_kept_to_some_hosts(
    sandbox: Sandbox,
    http: HttpMerchant,
    receiver: Receiver,
) -> None:
    sandbox.control.set_options({"notification_hosts": ["shop.example"]})
    http.pay(ipnUrl=receiver.url)
    sandbox.control.pay(REFERENCE)
    assert sandbox.control.wait_for_notifications()
    sandbox.control.set_options({"notification_hosts": []})
    assert receiver.got == []


def test_public_sandbox_protects_its_network(
    receiver: Receiver,
    merchant_at: Callable[[str], HttpMerchant],
) -> None:
    """It sends nothing to hosts in its own network."""
    with Sandbox(Options(seed=1), host="0.0.0.0") as sandbox:
        http = merchant_at(sandbox.base_url)
        http.pay(ipnUrl=receiver.url)
        sandbox.control.pay(REFERENCE)
        assert sandbox.control.wait_for_notifications()
        assert receiver.got == []
        assert any(
            "127.0.0.1, which is not public" in entry.title
            for entry in sandbox.service.journal.all()
        )
        sandbox.control.set_options({"notification_hosts": ["127.0.0.1"]})
        sandbox.control.notify(REFERENCE)
        assert sandbox.control.wait_for_notifications()
        assert len(receiver.got) == 1


def attempt_to(url: str) -> NotificationAttempt:
    return NotificationAttempt(1, 1, "payment", "29", "POST", url, "", b"")


def resolving_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let every name have these addresses, and return the list of those that are connected to; none
    answers.
    """
    connected: list[str] = []

    def connect(target: tuple[str, int], _timeout: float) -> socket.socket:
        connected.append(target[0])
        raise ConnectionRefusedError(target[0])

    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *_, **__: [(0, 0, 0, "", (address, 0)) for address in addresses],
    )
    monkeypatch.setattr(socket, "create_connection", connect)
    return connected


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
        ),
        *("::1", "::", "fe80::1%2", "fd00::1", "ff02::1", "::ffff:127.0.0.1"),
    ],
)
def test_one_private_address_refuses_the_host(
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    scheme: str,
) -> None:
    connected = resolving_to(monkeypatch, "93.184.215.14", address)
    assert send(attempt_to(f"{scheme}://shop.example/"), 1, public=True)[2].startswith(
        f"PermissionError: shop.example is at {address},",
    )
    assert connected == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_only_checked_addresses_are_connected(
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
) -> None:
    connected = resolving_to(monkeypatch, "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "93.184.215.14")
    assert send(attempt_to(f"{scheme}://shop.example/"), 1, public=True) == (
        None,
        b"",
        "ConnectionRefusedError: 93.184.215.14",
    )
    assert connected == ["2606:2800:21f:cb07:6820:80da:af6b:8b2c", "93.184.215.14"]


def test_notifications_of_get_and_refunds_arrive(
    sandbox: Sandbox,
    http: HttpMerchant,
    receiver: Receiver,
) -> None:
    sandbox.control.set_options({"notification_method": "GET"})
    http.pay(ipnUrl=f"{receiver.url}/payment")
    sandbox.control.pay(REFERENCE)
    http.refund("2.50", ipnUrl=f"{receiver.url}/refund")
    assert sandbox.control.wait_for_notifications()
    sandbox.control.set_options({"notification_method": "POST"})
    assert sorted((method, path.partition("?")[0]) for method, path, _, _ in receiver.got) == [
        ("GET", "/payment"),
        ("GET", "/refund"),
    ]


def test_moving_clock_expires_payments(
    sandbox: Sandbox,
    http: HttpMerchant,
    receiver: Receiver,
) -> None:
    sandbox.control.set_options({"notification_on_expired": True})
    http.pay(ipnUrl=receiver.url)
    sandbox.control.advance(7200)
    assert sandbox.control.wait_for_notifications()
    sandbox.control.set_options({"notification_on_expired": False})
    assert b"status=closed" in receiver.got[0][3]


# Starting and stopping.


def test_sandbox_reports_its_random_seed() -> None:
    with Sandbox() as first, Sandbox(Options(seed=5)) as second:
        assert first.seed != second.seed == 5
        assert any(str(first.seed) in line for line in greeting(first))
        assert first.base_url != second.base_url


def test_payment_page_gets_public_address() -> None:
    with Sandbox(Options(seed=1, public_url="https://pay.example/")) as sandbox:
        assert sandbox.public_url == "https://pay.example"
        assert sandbox.service.options.public_url == "https://pay.example"
        assert any("https://pay.example/cashier/" in line for line in greeting(sandbox))


@pytest.mark.parametrize(("control_public", "is_told"), [(False, False), (True, True)])
def test_public_sandbox_names_only_visible_ledger(
    control_public: bool,
    is_told: bool,
) -> None:
    with Sandbox(Options(seed=1), host="0.0.0.0", control_public=control_public) as sandbox:
        said = "\n".join(greeting(sandbox))
    assert (f"{sandbox.base_url}/_control/state" in said) == is_told
    assert ("--control-public" in said) != is_told


def test_taken_port_gives_clear_error(sandbox: Sandbox) -> None:
    with pytest.raises(
        NotPossible,
        match=f"port {sandbox.port}: .*; choose another port with --port",
    ):
        Sandbox(port=sandbox.port)


def test_stop_does_not_await_slow_answer() -> None:
    with Sandbox(Options(seed=1, faults={"delay": 1}, delay_seconds=60)) as sandbox:
        connection = socket.create_connection(("127.0.0.1", sandbox.port), timeout=5)
        connection.sendall(
            b"POST /online/v1/refund HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        )
        time.sleep(0.1)
        started = time.monotonic()
    connection.close()
    assert time.monotonic() - started < 5


def test_stop_frees_threads_and_port() -> None:
    before = threading.active_count()
    with Sandbox(clock=Clock.standing()) as sandbox:
        port = sandbox.port
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_foreground_prints_seed_and_address(
    ending: signal.Signals,
) -> None:
    """It ends cleanly at a signal to stop."""
    code = (
        "from tillgate.sandbox import Options, serve; serve(Options(seed=99), port=0, "
        "write=lambda line: print(line, flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline() for _ in range(5)]
        port = int(lines[0].split("http://127.0.0.1:")[1].split()[0])
        _wait_for(port)
        process.send_signal(ending)
        process.wait(10)
        assert (process.returncode if ending is signal.SIGINT else 0, process.stderr.read()) == (
            0,
            "",
        )
    assert "seed       99" in lines[1]


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(
                    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                )
                if connection.recv(12) == b"HTTP/1.1 200":
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError("it does not serve")
