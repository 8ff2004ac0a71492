"""The command line: the output for users and scripts, and the exit status of a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tests.scripted_gateway import ScriptedGateway, always, http
from tests.support import signature
from tillgate import Transaction, TransactionStatus, errors, hooks
from tillgate.cli import EXIT_CODES, main
from tillgate.sandbox import (
    PUBLISHED_MERCHANT_NO,
    PUBLISHED_STORE_NO,
    PUBLISHED_TEST_TOKEN,
    Options,
    Sandbox,
)
from tillgate.wire.dialects import DIALECTS

VECTOR = {
    "amount": "1.00",
    "storeNo": "300014",
    "currency": "USD",
    "merchantNo": "200043",
    "callbackUrl": "https://wx.yuansfer.yunkeguan.com/wx",
    "ipnUrl": "https://wx.yuansfer.yunkeguan.com/wx",
    "terminal": "ONLINE",
    "reference": "seq_1525922323",
    "vendor": "alipay",
    "goodsInfo": '[{"goods_name":"Yuansfer","quantity":"1"}]',
    "timeout": "120",
}
PAY = [
    "pay",
    "--amount",
    "12.50",
    "--method",
    "alipay",
    "--ipn-url",
    "https://shop.example/ipn",
    "--callback-url",
    "https://shop.example/back?a={amount}",
]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Options(notification_on_paid=False, notification_on_refund=False)) as running:
        yield running


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("TILLGATE_")]:
        monkeypatch.delenv(variable)


@pytest.fixture
def account(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILLGATE_BASE_URL", sandbox.base_url)
    monkeypatch.setenv("TILLGATE_MERCHANT_NO", PUBLISHED_MERCHANT_NO)
    monkeypatch.setenv("TILLGATE_TOKEN", PUBLISHED_TEST_TOKEN)
    monkeypatch.setenv("TILLGATE_SANDBOX", "yes")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def answer(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


@pytest.mark.usefixtures("account")
def test_a_payment_is_created_queried_and_refunded(sandbox: Sandbox) -> None:
    created = answer(
        *PAY,
        "--order",
        "100017",
        "--goods",
        "Teapot=2",
        "--description",
        "Order 100017",
    )
    assert created["reference"].startswith("100017-")
    assert created["amount"] == "12.50"
    assert created["payment_url"].startswith(sandbox.base_url)
    assert answer("query", created["reference"])["status"] == "pending"
    sandbox.control.pay(created["reference"])
    found = answer("query", created["reference"])
    assert (found["status"], found["amount"], found["currency"]) == ("paid", "12.50", "USD")
    assert answer("refund", created["reference"], "--amount", "2.50")["amount"] == "2.50"
    refused = run("refund", created["reference"], "--amount", "10.01", "--json")
    assert refused.exit_code == 3
    assert json.loads(refused.stdout)["error"] == "Refused"


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    "reference",
    ["100000123at1605000000", "4711:alipay:1605000000", "123e4567-e89b-12d3-a456-426614174000"],
)
def test_other_plugins_payment_can_be_refunded(
    sandbox: Sandbox,
    reference: str,
) -> None:
    """A payment that another plugin made can also be queried."""
    sent = {
        "merchantNo": PUBLISHED_MERCHANT_NO,
        "currency": "USD",
        "amount": "12.50",
        "vendor": "alipay",
        "reference": reference,
    }
    sent |= {
        "terminal": "ONLINE",
        "ipnUrl": "https://old.example/x",
        "callbackUrl": "https://old.example/x",
    }
    sent["verifySign"] = signature(sent)
    assert (
        httpx.post(f"{sandbox.base_url}/online/v1/secure-pay", json=sent).json()["ret_code"]
        == "000100"
    )
    sandbox.control.pay(reference)
    assert answer("query", reference)["status"] == "paid"
    assert answer("refund", reference, "--amount", "2.50")["outcome"] == "succeeded"


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("asked", ["query", "refund"])
def test_gateways_number_reaches_the_plugin(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some gateways find a payment by their own number only."""
    seen: list[str | None] = []

    def hook(_: Any, asked_for: Any, transaction_no: str | None = None) -> Any:
        seen.append(transaction_no or asked_for.transaction_no)
        raise errors.Refused("not_found", "no such payment")

    monkeypatch.setattr(hooks, asked, hook)
    amount = ["--amount", "2.50"] if asked == "refund" else []
    result = run(asked, "A-1", "--number", "4711", *amount)
    assert (seen, result.exit_code) == (["4711"], 3)
    assert result.output.rstrip().endswith("the gateway refused: not_found 'no such payment'")


@pytest.mark.usefixtures("account")
def test_people_read_aligned_lines_and_no_braces() -> None:
    result = run(*PAY)
    assert result.exit_code == 0
    assert re.search(r"^payment url +http", result.output, re.MULTILINE)
    assert "{" not in result.output


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["query", "NO-SUCH-ORDER"], 4, "OrderNotFound"),
        (["query", "bad reference"], 2, "reference: 'bad reference'"),
        ([*PAY, "--reference", "A", "--order", "B"], 2, "together with --order"),
        ([*PAY, "--reference", ""], 2, "reference: ''"),  # as from a script with an unset variable
        ([*PAY[:2], "1.005", *PAY[3:]], 2, "amount: '1.005'"),
        (["refund", "A", "--amount", "0"], 2, "not above zero"),
        (["query", "A", "--base-url", "http://127.0.0.1:1"], 6, "NotSent"),
        (["query", "A", "--token", "wrong"], 3, "WrongCredentials"),
        ([*PAY, "--goods", "***=1"], 2, "special characters"),
        ([*PAY, "--method", "cash"], 2, "method"),
    ],
)
def test_error_prints_line_and_exit_code(
    arguments: list[str],
    exit_code: int,
    message: str,
) -> None:
    result = run(*arguments)
    assert (result.exit_code, message in result.output) == (exit_code, True), result.output
    assert "Traceback" not in result.output


GAVE_BACK = {
    "ret_code": "000100",
    "ret_msg": "\u9000\u6b3e\u6210\u529f \U0001f600 \x1b[2J\x9b\u202e",
}


def refunding(
    gateway: ScriptedGateway,
    *options: str,
    stdout: int | IO[bytes] = subprocess.PIPE,
    **environment: str,
) -> Any:
    """Give money back in a process of its own."""
    command = [sys.executable, "-m", "tillgate", "refund", "A-1", "--amount", "2.50", *options]
    own = {
        "TILLGATE_BASE_URL": gateway.url,
        "TILLGATE_MERCHANT_NO": "200043",
        "TILLGATE_TOKEN": "t",
        "TILLGATE_SANDBOX": "yes",
    }
    return subprocess.run(
        command,
        env={**os.environ, **own, **environment},
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii", "cp1252"])
def test_refund_exits_0_on_any_terminal(
    encoding: str,
) -> None:
    """The terminal may lack letters of the output."""
    with ScriptedGateway(always(http(GAVE_BACK))) as gateway:
        plain, as_json = (
            refunding(gateway, *options, PYTHONIOENCODING=encoding) for options in ([], ["--json"])
        )
    assert (plain.returncode, as_json.returncode) == (0, 0), plain.stderr + as_json.stderr
    assert json.loads(as_json.stdout)["message"] == GAVE_BACK["ret_msg"]
    assert b"\\x1b[2J\\x9b\\u202e" in plain.stdout
    for said in (plain.stdout, as_json.stdout):
        assert not set(said.decode(encoding, "replace")) & {"\x1b", "\x9b", "\u202e"}


@pytest.mark.skipif(
    not Path("/dev/full").exists(),
    reason="this system has no device that is always full",
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_unprinted_refund_exits_5(
    options: tuple[str, ...],
) -> None:
    """The code keeps callers from repeating a refund that was made."""
    with ScriptedGateway(always(http(GAVE_BACK))) as gateway, open("/dev/full", "wb") as full:
        done = refunding(gateway, *options, stdout=full)
        assert len(gateway.requests) == 1
    assert (done.returncode, b"Traceback" in done.stderr) == (5, False)
    assert b"could not be printed: [Errno 28]" in done.stderr
    with (
        ScriptedGateway(always(http({"ret_code": "000020", "ret_msg": "no"}, 400))) as gateway,
        open("/dev/full", "wb") as full,
    ):
        assert refunding(gateway, "--json", stdout=full).returncode == 3


@pytest.mark.usefixtures("account")
def test_lost_answer_exits_5_as_unknown(sandbox: Sandbox) -> None:
    sandbox.control.fault("lost_response", occasion="pay")
    result = run(*PAY, "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]) == (5, "OutcomeUnknown")


def test_help_names_every_errors_exit_code() -> None:
    for name in errors.__all__:
        if name not in ("TillgateError", "GatewayError"):
            assert any(issubclass(getattr(errors, name), kind) for kind in EXIT_CODES), name
    help_text = run("--help").output
    for code in {0, 1, *EXIT_CODES.values()}:
        assert re.search(rf"\b{code} \w", help_text)


def test_missing_account_error_names_every_place() -> None:
    """The error names every place where an account can be set."""
    result = run("query", "A")
    assert result.exit_code == 2
    for place in ("--base-url", "TILLGATE_BASE_URL", "[accounts.default]"):
        assert place in result.output


def test_precedence_is_options_environment_file(
    sandbox: Sandbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Options win over the environment, and the environment over the file."""
    file = tmp_path / "tillgate.toml"
    file.write_text(
        f'[accounts.default]\nbase_url="{sandbox.base_url}"\nmerchant_no="file"\ntoken="file"\nsandbox=true\n',
    )
    monkeypatch.setenv("TILLGATE_MERCHANT_NO", PUBLISHED_MERCHANT_NO)
    monkeypatch.setenv("TILLGATE_TOKEN", "environment")
    found = {
        check["name"]: check["finding"]
        for check in answer("doctor", "--token", PUBLISHED_TEST_TOKEN)["checks"]
    }
    assert "tillgate.toml" in found["base_url"]
    assert "TILLGATE_MERCHANT_NO" in found["merchant_no"]
    assert "--token" in found["token"]


def test_a_second_account_is_chosen_by_name(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "shops.toml"
    file.write_text(
        f'[accounts.asia]\nbase_url="{sandbox.base_url}"\nmerchant_no="{PUBLISHED_MERCHANT_NO}"\ntoken="{PUBLISHED_TEST_TOKEN}"\nsandbox=true\n',
    )
    assert answer("doctor", "--config", str(file), "--account", "asia")["healthy"]
    assert "has: asia" in run("doctor", "--config", str(file), "--account", "europe").output


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        ('[accounts.default]\nbasurl = "https://a.example"', "did you mean base_url"),
        ('[account.default]\nbase_url = "https://a.example"', "'account'"),
        ("[accounts.default]\nread_timout_seconds = 3", "did you mean read_timeout_seconds"),
    ],
)
def test_misspelt_setting_is_an_error(
    content: str,
    finding: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "tillgate.toml").write_text(content)
    result = run("query", "A")
    assert (result.exit_code, finding in result.output) == (2, True), result.output


@pytest.mark.usefixtures("account")
def test_misspelt_variable_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable that belongs to another program is ignored."""
    monkeypatch.setenv("TILLGATE_SHOP_COLOUR", "blue")
    assert run("doctor").exit_code == 0
    monkeypatch.setenv("TILLGATE_BASEURL", "https://a.example")
    assert "did you mean TILLGATE_BASE_URL" in run("doctor").output


def test_named_account_beats_environment(
    sandbox: Sandbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "tillgate.toml").write_text(
        f'[accounts.live]\nbase_url="{sandbox.base_url}"\nmerchant_no="{PUBLISHED_MERCHANT_NO}"\ntoken="{PUBLISHED_TEST_TOKEN}"\nsandbox=true\n',
    )
    monkeypatch.setenv("TILLGATE_MERCHANT_NO", "another")
    assert answer("doctor", "--account", "live")["healthy"]
    (tmp_path / "tillgate.toml").unlink()
    assert "cannot be found" in run("doctor", "--account", "live").output


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("command", [PAY, ["refund", "A-1", "--amount", "1.00"]])
def test_interrupted_call_is_unknown_with_reference(
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interrupted call that moves money names its reference."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"tillgate.hooks.{command[0]}", interrupt)
    result = run(*command, "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, said["error"], bool(said["reference"])) == (5, "OutcomeUnknown", True)


@pytest.mark.parametrize(
    "content",
    [
        "not toml at all [",
        'accounts = "none"',
        "[accounts.default]\ntokn = "
        '"s3cret"\nbase_url="https://a.example"\nmerchant_no="1"\ntoken="s3cret"',
    ],
)
def test_broken_file_is_named_without_secrets(content: str, tmp_path: Path) -> None:
    (tmp_path / "tillgate.toml").write_text(content)
    result = run("query", "A")
    assert result.exit_code == 2
    assert "s3cret" not in result.output


@pytest.mark.usefixtures("account")
def test_doctor_proves_credentials_without_moving_money(sandbox: Sandbox) -> None:
    before = sandbox.service.transactions()
    report = answer("doctor")
    assert report["healthy"]
    assert "000022" in report["checks"][-1]["finding"]
    assert sandbox.service.transactions() == before


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["--token", "wrong"], "check merchant_no and token"),
        (["--merchant-no", "999"], "check merchant_no, and its rights"),
        (["--base-url", "http://127.0.0.1:1"], "check base_url and the network"),
    ],
)
def test_doctor_exits_1_with_advice(
    arguments: list[str],
    finding: str,
    dialect: str,
) -> None:
    """It names the things to check."""
    result = run("doctor", "--dialect", dialect, "--store-no", PUBLISHED_STORE_NO, *arguments)
    assert (result.exit_code, finding in result.output) == (1, True), result.output
    assert "FAIL" in result.output


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("paths", "used", "named"),
    [
        ("examples", "reference", "examples"),
        ("online", "examples", "reference"),
        ("v3", "reference", "v3"),
        ("v3", "examples", "v3"),
        ("online", "v3", "reference"),
    ],
)
def test_doctor_suggests_dialect_gateway_knows(
    paths: str,
    used: str,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The paths that the gateway knows tell which dialect it is."""
    with Sandbox(Options(prefixes=paths)) as gateway:
        monkeypatch.setenv("TILLGATE_BASE_URL", gateway.base_url)
        if used == "v3":
            monkeypatch.setenv("TILLGATE_STORE_NO", PUBLISHED_STORE_NO)
        result = run("doctor", "--dialect", used)
        assert (result.exit_code, f"set dialect to '{named}'" in result.output) == (1, True), (
            result.output
        )
        assert run("doctor", "--dialect", named, "--store-no", PUBLISHED_STORE_NO).exit_code == 0


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("arguments", "exit_code", "finding"),
    [
        (["--store-no", "999"], 1, "check store_no"),
        ([], 2, "store_no is missing"),
        (["--store-no", PUBLISHED_STORE_NO], 0, "000022"),
    ],
)
def test_doctor_names_version_3_store(
    arguments: list[str],
    exit_code: int,
    finding: str,
) -> None:
    result = run("doctor", "--dialect", "v3", *arguments)
    assert (result.exit_code, finding in result.output) == (exit_code, True), result.output


@pytest.mark.usefixtures("account")
def test_environment_can_describe_version_3_account(
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "DIALECT": "v3",
        "STORE_NO": PUBLISHED_STORE_NO,
        "CURRENCIES": "KRW, PHP",
        "SETTLE_CURRENCY": "GBP",
    }.items():
        monkeypatch.setenv(f"TILLGATE_{name}", value)
    monkeypatch.setenv("TILLGATE_METHODS", "kakaopay,gcash")
    addresses = ["--ipn-url", "http://127.0.0.1:9/ipn", "--callback-url", "http://127.0.0.1:9/back"]
    paid = answer("pay", "--amount", "1250", "--method", "kakaopay", *addresses)
    assert (paid["amount"], paid["currency"]) == ("1250", "KRW")
    assert answer("query", paid["reference"])["settle_currency"] == "GBP"
    assert (
        run(
            "pay",
            "--amount",
            "12.50",
            "--currency",
            "USD",
            "--method",
            "kakaopay",
            *addresses,
        ).exit_code
        == 2
    )
    sandbox.control.pay(paid["reference"])
    assert answer("refund", paid["reference"], "--amount", "250")["outcome"] == "succeeded"


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("status", "finding"),
    [
        (429, "look again later; if"),
        (503, "look again later; if"),
        (418, "look again later, and check base_url and dialect"),
    ],
)
def test_doctor_blames_no_setting_for_outage(
    status: int,
    finding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def out_of_order(gateway: object, reference: str, **bounds: object) -> None:
        raise errors.AnswerNotUnderstood(f"HTTP {status}", status)

    monkeypatch.setattr("tillgate.client.Gateway.query", out_of_order)
    result = run("doctor")
    assert (result.exit_code, finding in result.output) == (1, True), result.output


@pytest.mark.usefixtures("account")
def test_doctor_notices_gateway_that_finds_everything(
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(_gateway: object, reference: str, **_bounds: object) -> Transaction:
        return Transaction(
            reference=reference,
            status=TransactionStatus.PENDING,
            status_text="pending",
            transaction_no="T-1",
            amount=None,
            currency=None,
            settle_currency=None,
            raw={},
        )

    monkeypatch.setattr("tillgate.client.Gateway.query", find)
    assert "cannot exist" in run("doctor").output


@pytest.mark.usefixtures("account")
def test_doctor_names_plugin_error_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(gateway: object, reference: str, **bounds: object) -> None:
        raise KeyError("region")

    monkeypatch.setattr("tillgate.client.Gateway.query", faulty)
    result = run("doctor")
    assert re.search(
        r"^FAIL +credentials +a plugin raised KeyError: 'region': correct",
        result.output,
        re.MULTILINE,
    )
    assert (result.exit_code, "Traceback" in result.output) == (1, False)


@pytest.mark.usefixtures("account")
def test_sign_shows_steps_but_no_token() -> None:
    arguments = [f"{name}={value}" for name, value in VECTOR.items()]
    result = run("sign", *arguments, "empty=", "--token", PUBLISHED_TEST_TOKEN)
    assert "b6bfd66531ae7c9499115c7480a2c8aa" in result.output
    assert "amount=1.00&callbackUrl=" in result.output
    assert PUBLISHED_TEST_TOKEN not in result.output
    assert "186abea4b8610d7ff03768255588597a" not in result.output


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("arguments", [["amount"], ["a=1", "a=2"]])
def test_sign_refuses_what_is_not_a_parameter(arguments: list[str]) -> None:
    assert run("sign", *arguments).exit_code == 2


def test_plugins_lists_the_adapter_and_its_hooks() -> None:
    assert answer("plugins")["plugins"]["gateway"] == [
        "tillgate_pay",
        "tillgate_query",
        "tillgate_query_refund",
        "tillgate_refund",
    ]
    assert "tillgate_refund" in run("plugins").output


def test_unknown_sandbox_switch_suggests_nearest_name() -> None:
    result = run("sandbox", "--set", "query_amuont=text")
    assert result.exit_code == 2
    assert "query_amount" in result.output


def test_sandbox_says_address_and_stops_cleanly() -> None:
    """It ends cleanly on an interrupt."""
    command = [sys.executable, "-u", "-m", "tillgate", "sandbox", "--port", "0", "--seed", "7"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while "control" not in process.stdout.readline():
            pass
        # the greeting is printed before the server has put its signal handlers in place
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=10)
    assert "127.0.0.1" in line
    assert "Traceback" not in complaints


@pytest.mark.parametrize(
    ("dialect", "part", "rest"),
    [
        ("reference", "USD 2.50", "USD 10.00"),
        ("examples", "USD 2.50", "USD 10.00"),
        ("v3", "KRW 250", "KRW 1000"),
    ],
)
def test_demo_completes_payment_and_exits_0(dialect: str, part: str, rest: str) -> None:
    command = [sys.executable, "-m", "tillgate", "demo", "--once", "--dialect", dialect]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [
        "created transaction",
        "presses Pay",
        "comes back",
        "notification",
        "query: paid",
        f"{part}: succeeded",
        f"{rest}: succeeded",
        "refused",
    ]
    for step in steps:
        assert step in done.stdout
