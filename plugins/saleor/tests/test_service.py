"""The service, as an owner runs it: one command in a process of its own, the double of a Saleor and
the emulator beside it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.double import SaleorDouble
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN, Sandbox

COMMAND = [
    sys.executable,
    "-c",
    "from tillgate_saleor.cli import main; main(prog_name='tillgate-saleor')",
]
STOREFRONT = "http://storefront.example"
README = Path(__file__).parents[1] / "README.md"
DOCS = Path(__file__).parents[3] / "docs" / "saleor.md"


def over_http(method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
    answer = httpx.request(method, url, headers=dict(headers), content=body, timeout=18)
    return answer.status_code, answer.json()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def environment(gateway: str, saleor: str, port: int, **more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "HOME", "LANG", "PYTHONPATH")
    }
    return {
        **kept,
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "SECRET_KEY": "only for tests, and long enough to be a key of the vault",
        "TILLGATE_BASE_URL": gateway,
        "TILLGATE_MERCHANT_NO": PUBLISHED_MERCHANT_NO,
        "TILLGATE_TOKEN": PUBLISHED_TEST_TOKEN,
        "TILLGATE_SANDBOX": "true",
        "SALEOR_ORIGINS": saleor,
        "SALEOR_STOREFRONTS": STOREFRONT,
        "REVIEW_MAIL_TO": "owner@shop.example",
        **more,
    }


@contextmanager
def serving(folder: Path, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    port = variables["PUBLIC_URL"].rpartition(":")[2]
    with (folder / "serve.log").open("ab") as log:
        service = subprocess.Popen(
            [*COMMAND, "serve", "--port", port],
            cwd=folder,
            env=dict(variables),
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: service.poll() is not None or is_answering(variables["PUBLIC_URL"]), 60)
        assert service.poll() is None, (folder / "serve.log").read_text("utf-8")
        yield service
    finally:
        service.kill()
        service.wait()


def is_answering(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/manifest").status_code == 200
    except httpx.HTTPError:
        return False


def until(look: Callable[[], object], seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.1)


def test_killed_service_loses_no_money(tmp_path: Path) -> None:
    """Install, begin, kill the service, pay, start it again: no shopper returns, and Saleor still
    hears of the money.
    """
    double = SaleorDouble(over_http)
    try:
        with Sandbox() as gateway:
            variables = environment(gateway.base_url, double.origin, free_port())
            with serving(tmp_path, variables) as service:
                assert double.install(variables["PUBLIC_URL"]) == (200, {"success": True})
                health = httpx.get(f"{variables['PUBLIC_URL']}/health/")
                assert (health.status_code, health.json()) == (200, {"healthy": True})
                transaction, said = double.initialize(
                    double.checkout(Decimal("19.90")),
                    "key",
                    {"method": "alipay", "returnUrl": f"{STOREFRONT}/thanks"},
                )
                assert said["data"]["cashierUrl"].startswith(gateway.base_url)
                page = httpx.get(
                    f"{variables['PUBLIC_URL']}/app/",
                    params={"saleorApiUrl": double.api_url},
                )
                assert f"frame-ancestors {double.origin}" in page.headers["content-security-policy"]
                assert (
                    httpx.get(f"{variables['PUBLIC_URL']}/static/admin/css/base.css").status_code
                    == 200
                )
                service.kill()
            gateway.control.pay(said["pspReference"])
            with serving(tmp_path, variables) as service:
                until(lambda: transaction.charged == Decimal("19.90"))
                _, refunded = double.request_refund(transaction, Decimal("5.00"))
                assert refunded["result"] == "REFUND_SUCCESS"
                service.send_signal(signal.SIGTERM)
                assert service.wait(timeout=20) in (0, -signal.SIGTERM), (
                    "it ends when it is told to"
                )
        assert double.faults == []
        log = (tmp_path / "serve.log").read_text("utf-8")
        assert f"installs the App from {variables['PUBLIC_URL']}/api/manifest" in log
        assert "StreamingHttpResponse" not in log, (
            "the admin's own files are served without a warning"
        )
    finally:
        double.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"PUBLIC_URL": ""}, "PUBLIC_URL"),
        ({"SECRET_KEY": ""}, "SECRET_KEY"),
        ({"TILLGATE_TOKEN": ""}, "TILLGATE_TOKEN"),
        ({"SALEOR_ORIGINS": "shop.example"}, "shop.example"),
        ({"PAYMENT_METHODS": "gold"}, "gold"),
        ({"TILLGATE_SANDBOX": ""}, "variables TILLGATE_..."),
        ({"TILLGATE_SANDBOX": "maybe"}, "TILLGATE_SANDBOX"),
        (
            {"TILLGATE_DIALECT": "gold"},
            "TILLGATE_DIALECT: 'gold' is not one of reference, examples, v3",
        ),
        ({"TILLGATE_DIALECT": "v3"}, "TILLGATE_STORE_NO: the dialect v3 needs it"),
        ({"PUBLIC_URL": "https://pay.shop.example/app"}, "without a path"),
        ({"SECRET_KEY": "short"}, "at least 50"),
        ({"DATABASE_URL": "nonsense"}, "DATABASE_URL"),
        ({"DATABASE_URL": "sqlite:////nowhere/at/all.sqlite3"}, "DATABASE_URL"),
        ({"EMAIL_PORT": "smtp"}, "EMAIL_PORT"),
        ({"LANGUAGE_CODE": "xx"}, "LANGUAGE_CODE"),
        ({"TIME_ZONE": "Mars/Base"}, "TIME_ZONE"),
    ],
    ids=str,
)
def test_wrong_setting_is_named_without_serving(
    change: dict[str, str],
    named: str,
    tmp_path: Path,
) -> None:
    variables = {**environment("http://127.0.0.1:1", "http://127.0.0.1:2", 1), **change}
    done = subprocess.run(
        [*COMMAND, "serve", "--port", "0"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        timeout=60,
        check=False,
    )
    told = done.stderr.decode() + done.stdout.decode()
    assert done.returncode != 0
    assert named in told
    assert "Traceback" not in told
    assert PUBLISHED_TEST_TOKEN not in told


def run(folder: Path, variables: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=dict(variables),
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def test_all_missing_settings_are_reported_together(tmp_path: Path) -> None:
    required = (
        "PUBLIC_URL",
        "SECRET_KEY",
        "TILLGATE_BASE_URL",
        "TILLGATE_MERCHANT_NO",
        "TILLGATE_TOKEN",
    )
    variables = environment("http://127.0.0.1:1", "http://127.0.0.1:2", 1)
    code, told = run(
        tmp_path,
        {name: value for name, value in variables.items() if name not in required},
        "serve",
    )
    assert code != 0
    for name in required:
        assert name in told


def test_readme_trial_ends_with_passing_doctor(tmp_path: Path) -> None:
    trial = (
        README.read_text("utf-8").partition("## Try it without an account")[2].partition("\n## ")[0]
    )
    variables = dict(
        re.findall(
            r"(?:export | )([A-Z_]+)=(\S+)",
            trial.partition("```bash")[2].partition("```")[0],
        ),
    )
    with Sandbox() as gateway:
        port = free_port()
        kept = {
            name: value
            for name, value in environment("", "", port).items()
            if name in ("PATH", "HOME", "LANG", "PYTHONPATH")
        }
        variables = {
            **kept,
            **variables,
            "PUBLIC_URL": f"http://127.0.0.1:{port}",
            "TILLGATE_BASE_URL": gateway.base_url,
        }
        with serving(tmp_path, variables):
            until(lambda: run(tmp_path, variables, "manage", "tillgate", "doctor")[0] == 0)
        assert run(tmp_path, variables, "manage", "tillgate", "doctor")[0] == 0


def test_health_without_database(tmp_path: Path) -> None:
    port = free_port()
    variables = environment("http://127.0.0.1:1", "http://127.0.0.1:2", port)
    with serving(tmp_path, variables):
        (tmp_path / "tillgate-saleor.sqlite3").unlink()
        until(lambda: httpx.get(f"http://127.0.0.1:{port}/health/").status_code == 503)


def installed_gateway(folder: Path) -> str:
    """Install a gateway plugin whose accounts need a token alone, and return the folder to import
    it from.
    """
    (folder / "toy.py").write_text(
        "from tillgate import GatewayProfile\n"
        "TOY = GatewayProfile(name='toy', base_url='https://toy.example', "
        "currencies=('USD',), methods=('beads', 'shells'))\n",
    )
    (folder / "toy-1.dist-info").mkdir()
    (folder / "toy-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toy\nVersion: 1\n",
    )
    (folder / "toy-1.dist-info" / "entry_points.txt").write_text(
        "[tillgate]\ntoy = toy\n\n[tillgate.profiles]\ntoy = toy:TOY\n",
    )
    return str(folder)


def test_dialect_decides_required_account_variables(tmp_path: Path) -> None:
    more = {
        "TILLGATE_DIALECT": "toy",
        "TILLGATE_WEBHOOK_SECRETS": "whsec-one, whsec-two",
        "TILLGATE_METHODS": "shells",
    }
    variables = environment("", "http://127.0.0.1:2", 1, TILLGATE_MERCHANT_NO="", **more)
    variables["PYTHONPATH"] = os.pathsep.join(
        [installed_gateway(tmp_path), variables.get("PYTHONPATH", "")],
    )
    script = (
        "from tillgate_saleor.service import settings; from tillgate.django.conf import _accounts\n"
        "[found] = _accounts(settings.TILLGATE['ACCOUNTS']).values()\n"
        "print(found.dialect.name, found.base_url, [one.get_secret_value() for one in "
        "found.webhook_secrets], found.methods[0].code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (
        done.stdout.decode().strip() == "toy https://toy.example ['whsec-one', 'whsec-two'] shells"
    ), done.stderr.decode()
    code, told = run(tmp_path, variables, "manage", "check")
    assert code == 0, told
    code, told = run(tmp_path, variables | {"TILLGATE_TOKEN": ""}, "serve")
    assert code != 0
    assert "TILLGATE_TOKEN" in told
    assert "TILLGATE_BASE_URL" not in told
    assert "whsec" not in told


def test_an_empty_variable_counts_as_not_given(tmp_path: Path) -> None:
    empty = dict.fromkeys(
        (
            "DATABASE_URL",
            "EMAIL_HOST",
            "EMAIL_PORT",
            "EMAIL_FROM",
            "LANGUAGE_CODE",
            "TIME_ZONE",
            "MONITOR_TOKEN",
            "SALEOR_PARTS",
        ),
        "",
    )
    code, told = run(
        tmp_path,
        environment("http://127.0.0.1:1", "http://127.0.0.1:2", 1, **empty),
        "manage",
        "check",
    )
    assert code == 0, told


def test_monitor_reads_health_with_its_token(tmp_path: Path) -> None:
    asked = (
        "from django.test import Client\n"
        "print('answers', *[Client(SERVER_NAME='127.0.0.1', headers=headers).get('/payments/health/').status_code"
        " for headers in ({}, {'Authorization': 'Bearer a-token-of-a-monitor'})])"
    )
    variables = environment(
        "http://127.0.0.1:1", "http://127.0.0.1:2", 1, MONITOR_TOKEN="a-token-of-a-monitor"
    )
    code, told = run(tmp_path, variables, "manage", "migrate", "--verbosity", "0")
    assert code == 0, told
    code, told = run(tmp_path, variables, "manage", "shell", "-v", "0", "-c", asked)
    assert code == 0, told
    assert re.search(r"^answers 404 (200|503)$", told, re.MULTILINE), told


def test_taken_port_is_reported_before_listening(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, told = run(
            tmp_path,
            environment("http://127.0.0.1:1", "http://127.0.0.1:2", 1),
            "serve",
            "--port",
            port,
        )
    assert code != 0
    assert port in told
    assert "Listening" not in told


def test_service_without_worker_does_not_serve(tmp_path: Path) -> None:
    """Without tables the worker ends immediately. Money would be missed, and no one would see
    it.
    """
    variables = environment("http://127.0.0.1:1", "http://127.0.0.1:2", 1)
    code, told = run(tmp_path, variables, "serve", "--port", "0", "--no-migrate")
    assert code != 0
    assert "The worker has ended" in told
    assert "Traceback" not in told


def test_current_folders_settings_module_is_found(tmp_path: Path) -> None:
    module = (
        'from tillgate_saleor.service.settings import *\n\nTILLGATE_SALEOR["APP_NAME"] = '
        '"Wallets and cards"\n'
    )
    (tmp_path / "pay_settings.py").write_text(module, "utf-8")
    variables = environment(
        "http://127.0.0.1:1",
        "http://127.0.0.1:2",
        1,
        DJANGO_SETTINGS_MODULE="pay_settings",
    )
    # `python -c` would look in the folder unasked
    installed = Path(sys.executable).with_name("tillgate-saleor")
    done = subprocess.run(
        [installed, "manage", "diffsettings"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert "Wallets and cards" in done.stdout.decode(), done.stderr.decode()


def test_the_other_commands_are_there(tmp_path: Path) -> None:
    variables = environment("http://127.0.0.1:1", "http://127.0.0.1:2", 1)
    for arguments, expected in (
        (["manage", "migrate", "-v0"], ""),
        (["manage", "tillgate_saleor", "rotate"], "0 encrypted"),
        (["--help"], "serve"),
    ):
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert expected in done.stdout.decode()


def test_every_option_is_in_the_documentation() -> None:
    from tillgate_saleor.cli import main

    text = DOCS.read_text("utf-8")
    for name, command in main.commands.items():
        assert f"tillgate-saleor {name}" in text
        for option in (
            spelling
            for parameter in command.params
            for spelling in parameter.opts
            if spelling.startswith("--")
        ):
            assert re.search(rf"`{option}\b", text), option


def test_postgresql_is_chosen_by_its_address(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    script = "from tillgate_saleor.service import settings; print(settings.DATABASES['default'])"
    address = "postgresql://ann:secret@db.example:5433/payments?sslmode=require"
    variables = environment("http://127.0.0.1:1", "http://127.0.0.1:2", 1, DATABASE_URL=address)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        timeout=60,
        check=True,
    )
    for expected in ("django.db.backends.postgresql", "db.example", "5433", "payments", "sslmode"):
        assert expected in done.stdout.decode()
