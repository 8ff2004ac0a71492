"""The demonstration: its starts, its ends, and its messages when something is in its way. The whole
walk is `make demo ONCE=1`.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from example_shop import demo
from example_shop.browser import Browser, PageProblem
from tillgate.sandbox import Options, Sandbox

SLEEPER = [sys.executable, "-c", "import time; print('up'); time.sleep(600)"]


def test_taken_port_is_reported_and_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = demo._free_port(port)
    assert found != port
    assert f"port {port} is taken; using {found} instead" in capsys.readouterr().out


def test_demo_end_stops_every_process() -> None:
    with demo._running({"a": SLEEPER, "b": SLEEPER}, quiet=True) as processes:
        assert [process.ended() for process in processes.values()] == [None, None]
    assert all(process.ended() is not None for process in processes.values())


def test_demo_failure_stops_every_process() -> None:
    with pytest.raises(KeyboardInterrupt), demo._running({"a": SLEEPER}, quiet=True) as processes:
        raise KeyboardInterrupt
    assert processes["a"].ended() is not None


def test_early_end_names_the_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error shows the last output of a process that dies at the start."""
    dying = [sys.executable, "-c", "print('no such table'); raise SystemExit(3)"]
    with (
        demo._running({"shop": dying}, quiet=True) as processes,
        pytest.raises(demo.NotReady, match="The shop ended with status 3"),
    ):
        demo._wait_for(processes, {"shop": "http://127.0.0.1:9"})
    assert "shop | no such table" in capsys.readouterr().out


def sandbox_at(port: int) -> list[str]:
    return demo._commands({"shop": 0, "gateway": port})["gateway"]


def test_foreign_program_is_not_mistaken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another program that answers at the address is not taken for our process."""
    with Sandbox(Options()) as other:
        mine = {"gateway": sandbox_at(int(other.base_url.rpartition(":")[2]))}
        with (
            demo._running(mine, quiet=True) as processes,
            pytest.raises(demo.NotReady, match="The gateway ended"),
        ):
            demo._wait_for(processes, {"gateway": other.base_url})
    assert "gateway | " in capsys.readouterr().out


def test_port_taken_meanwhile_is_replaced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Sandbox(Options()) as other:
        found = [int(other.base_url.rpartition(":")[2]), demo._free_port()]

        def ports(_gateway: str, *, once: bool) -> dict[str, int]:
            return {"gateway": found.pop(0)}

        made = {port: {"gateway": sandbox_at(port)} for port in found}
        walked: list[str] = []
        monkeypatch.setattr(demo, "_prepare", lambda _password: None)
        monkeypatch.setattr(demo, "_ports", ports)
        monkeypatch.setattr(demo, "_commands", lambda ports, _gateway: made[ports["gateway"]])
        monkeypatch.setattr(
            demo,
            "_walk",
            lambda _processes, addresses, *_: walked.append(addresses["gateway"]),
        )
        for name in ("DJANGO_SETTINGS_MODULE", "SHOP_VAR"):
            monkeypatch.setenv(name, "x")
        assert demo._run(tmp_path, "sandbox", once=True) == 0
    assert walked != [other.base_url]
    assert "another program took a port in that moment; trying again" in capsys.readouterr().out


def test_demo_needs_its_shop_not_worker(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its worker the demo goes on and says how to start another."""
    for name in ("SHOP_VAR", "SHOP_PUBLIC_URL", "SHOP_GATEWAY_URL"):
        monkeypatch.setenv(name, "x")
    commands = {
        "worker": [sys.executable, "-c", "print('killed by hand')"],
        "shop": [sys.executable, "-c", "import time; time.sleep(2)"],
    }
    with (
        demo._running(commands, quiet=True) as processes,
        pytest.raises(demo.DemoProblem, match="The shop ended with status 0"),
    ):
        demo._watch(processes, commands)
    out = capsys.readouterr().out
    assert "The worker is gone. Start another" in out
    assert "worker | killed by hand" in out


def test_local_addresses_ignore_environment_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo, "_START_SECONDS", 5.0)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Sandbox(Options()) as sandbox:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # nothing listens there
        with demo._running(
            {"gateway": sandbox_at(port := demo._free_port())},
            quiet=True,
        ) as processes:
            demo._wait_for(processes, {"gateway": f"http://127.0.0.1:{port}"})
        with Browser(sandbox.base_url) as browser:
            assert browser.open("/").status == 200


def test_windowless_browser_acts_like_browser() -> None:
    """Forms and redirects work as in a browser."""
    with Sandbox(Options()) as sandbox, Browser(sandbox.base_url) as browser:
        page = browser.open("/")
        assert page.status == 200
        assert page.heading
        with pytest.raises(PageProblem, match="has no link 'Nowhere'"):
            page.link("Nowhere")
        with pytest.raises(PageProblem, match="has no form with method"):
            page.form("method")


@pytest.mark.parametrize(
    ("key", "once", "said"),
    [
        ("sk_live_mine", False, "sk_test_"),
        ("pk_test_mine", False, "sk_test_"),
        ("sk_test_mine", True, "ONCE=1"),
    ],
)
def test_stripe_demo_says_what_is_missing(
    key: str,
    once: bool,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message takes one line."""
    monkeypatch.setenv("STRIPE_TEST_KEY", key)
    monkeypatch.setattr(
        sys,
        "argv",
        ["make demo", "--gateway", "stripe", *(["--once"] if once else [])],
    )
    assert demo.main() == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) == 1
    assert said in lines[0]
    assert "mine" not in lines[0]


def test_stripe_demo_without_key_has_imitation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers at its address, as a process of its own, and shows that it is no Stripe."""
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", "whsec_demo")
    monkeypatch.setattr(demo, "_START_SECONDS", 20.0)
    ports = {"shop": 9, "gateway": demo._free_port()}
    address = f"http://127.0.0.1:{ports['gateway']}"
    command = demo._commands(ports, demo._IMITATION)["gateway"]
    with demo._running({"gateway": command}, quiet=True) as processes:
        demo._wait_for(processes, {"gateway": address})
        with Browser(address) as browser:
            page = browser.open("/")
    assert page.heading == "Payments"
    assert "This is not Stripe" in page.text
