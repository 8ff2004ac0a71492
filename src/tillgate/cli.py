"""`tillgate ...`, for people at a terminal and for scripts (`--json`).

Exit codes: 0 done, 1 a check failed, 2 wrong use or configuration, 3 refused, 4 no such order, 5
outcome unknown, 6 not sent, 7 answer not understood. After 2 and 6 nothing was sent; after 5 and 7
a pay or refund must not be repeated.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from tillgate import __version__, errors, hooks
from tillgate.configuration import Configured, load_account
from tillgate.hooks.manager import IMPORTED_NAME
from tillgate.wire import signing
from tillgate.wire.dialects import DIALECTS
from tillgate.wire.messages import DEFAULT_TIMEOUT_MINUTES, Goods, PaymentRequest, RefundRequest
from tillgate.wire.references import new_reference
from tillgate.wire.texts import printable

__all__ = ["EXIT_CODES", "main"]

EXIT_CODES: Final[Mapping[type[errors.TillgateError], int]] = {
    errors.InvalidRequest: 2,
    errors.ConfigurationError: 2,
    errors.OrderNotFound: 4,
    errors.Refused: 3,
    errors.OutcomeUnknown: 5,
    errors.NotSent: 6,
    errors.AnswerNotUnderstood: 7,
}
"""The exit code of each error; the first class that fits counts."""

_STEPS: Final = {
    "left_out": "left out: verifySign itself, and empty values",
    "sorted": "the rest, sorted by name",
    "joined": "rendered as name=value and joined with &",
    "with_token": "the MD5 of the token appended (masked here)",
    "signature": "verifySign, the MD5 of that",
}
"""The headings for the steps of `tillgate sign`."""

Command = Callable[..., Any]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tillgate")
def main() -> None:
    """Take, query and refund payments, try them on a sandbox, list the plugins, and begin a new
    plugin.

    An account is read from the options, then from TILLGATE_BASE_URL, TILLGATE_MERCHANT_NO,
    TILLGATE_TOKEN and so on, then from [accounts.default] of tillgate.toml (or --config,
    TILLGATE_CONFIG).

    \b Exit codes: 0 done                 3 refused           6 not sent: may be repeated
                1 a check failed       4 no such order     7 answer not understood
                2 nothing was sent     5 outcome unknown: never repeat a pay or refund
    """  # noqa: D301  # click reads the backslash
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # characters that the terminal lacks must not raise after money has moved
            stream.reconfigure(errors="backslashreplace")


def account_options(command: Command) -> Command:
    """Add the options that select an account, and pass the resulting account to the command as
    `configured`.
    """

    @click.option(
        "--account",
        "account_name",
        help="The table [accounts.NAME] of the TOML file; it then beats the environment.",
        metavar="NAME",
    )
    @click.option(
        "--config",
        "config_file",
        type=click.Path(),
        help="A TOML file with accounts.  [default: tillgate.toml, if there]",
    )
    @click.option("--base-url", help="Address of the gateway, such as https://pay.example.")
    @click.option("--merchant-no", help="The merchant's number.")
    @click.option(
        "--token",
        help="The secret token. Other users of this machine can see options: prefer "
        "TILLGATE_TOKEN or the file.",
    )
    @click.option(
        "--dialect",
        help=f"The gateway's preset ({', '.join(DIALECTS)}), or the name of a gateway plugin.",
    )
    @click.option("--store-no", help="The number of the store, which the dialect v3 needs.")
    @click.option(
        "--sandbox-account/--live-account",
        "sandbox",
        default=None,
        help="Allow http addresses, or do not.",
    )
    @wraps(command)
    def with_account(account_name: str | None, config_file: str | None, **arguments: Any) -> Any:
        options = {
            name: arguments.pop(name)
            for name in ("base_url", "merchant_no", "token", "dialect", "store_no", "sandbox")
        }
        return command(
            configured=load_account(options, name=account_name, file=config_file),
            **arguments,
        )

    return with_account


number_option = click.option(
    "--number",
    "transaction_no",
    metavar="NUMBER",
    help="The gateway's own number of the payment, for a gateway that does not find a reference.",
)


def speaks_json(command: Command) -> Command:
    """Add --json, and turn every error of Tillgate into one line (or one JSON object) and its exit
    code.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for scripts.")
    @wraps(command)
    def speaking(*, as_json: bool, **arguments: Any) -> None:
        try:
            result = command(**arguments)
        except errors.TillgateError as error:
            code = next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)
            if not as_json:
                _end(
                    click.style(printable(f"{type(error).__name__}: {error}"), fg="red"),
                    code,
                    err=True,
                )
            facts = {name: value for name, value in vars(error).items() if name != "value"}
            _end(
                json.dumps(
                    {
                        "error": type(error).__name__,
                        "message": str(error),
                        "exit_code": code,
                        **facts,
                    },
                    default=str,
                ),
                code,
            )
        lines = result.pop("lines", None)  # for people, instead of the fields
        text = json.dumps(result, default=str) if as_json else "\n".join(lines or _aligned(result))
        _end(text, 1 if result.get("healthy") is False else 0)

    return speaking


def _end(text: str, code: int, *, err: bool = False) -> NoReturn:
    """Print the result and end. If printing fails, the result is lost, so a call that moved money
    must not be repeated.
    """
    try:
        click.echo(text, err=err)
    except OSError as error:
        with suppress(OSError):
            click.echo(f"The result could not be printed: {error}", err=True)
        for stream in (sys.stdout, sys.stderr):
            # Python flushes once more at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        code = code or EXIT_CODES[errors.OutcomeUnknown]
    sys.exit(code)


def _aligned(fields: Mapping[str, Any]) -> list[str]:
    width = max(map(len, fields), default=0)
    return [
        f"{name.replace('_', ' '):<{width}}  {'-' if value is None else printable(str(value))}"
        for name, value in fields.items()
    ]


@contextmanager
def _interruption_is_unknown(operation: str, reference: str) -> Iterator[None]:
    """Report Ctrl-C during a call that moves money: the request may have arrived."""
    try:
        yield
    except KeyboardInterrupt:
        raise errors.OutcomeUnknown(
            operation,
            reference,
            "interrupted while waiting for the answer",
        ) from None


def _goods(
    context: click.Context,
    parameter: click.Parameter,
    lines: tuple[str, ...],
) -> tuple[Goods, ...]:
    parsed = []
    for line in lines:
        name, _, quantity = line.rpartition("=")
        try:
            parsed.append(Goods(goods_name=name or quantity, quantity=quantity if name else "1"))
        except errors.InvalidRequest as error:
            raise click.BadParameter(str(error)) from None
    return tuple(parsed)


@main.command(short_help="Create a payment.")
@click.option("--amount", required=True, help="Such as 12.50.")
@click.option("--currency", help="The currency of the amount.  [default: the account's first]")
@click.option("--method", required=True, help="The payment method, such as alipay.")
@click.option(
    "--terminal",
    default="ONLINE",
    help="The shopper's device, such as WAP for a phone's browser.",
    show_default=True,
)
@click.option("--ipn-url", required=True, help="Where the gateway sends its notification.")
@click.option(
    "--callback-url",
    required=True,
    help="Where the shopper comes back; may hold macros such as {amount}.",
)
@click.option("--order", help="The order's number: a fresh reference is made from it.")
@click.option("--reference", help="A reference of your own, never used before.")
@click.option("--description", help="Shown on the invoice.")
@click.option(
    "--timeout",
    default=DEFAULT_TIMEOUT_MINUTES,
    type=int,
    show_default=True,
    help="Minutes the payment page stays open.",
)
@click.option(
    "--goods",
    multiple=True,
    callback=_goods,
    metavar="NAME[=QUANTITY]",
    help="A line of goodsInfo; may be repeated.",
)
@speaks_json
@account_options
def pay(
    configured: Configured,
    order: str | None,
    reference: str | None,
    goods: tuple[Goods, ...],
    **fields: Any,
) -> dict[str, Any]:
    """Create a payment and print the address of its payment page."""
    if order and reference:
        raise errors.InvalidRequest("reference", reference, "cannot be given together with --order")
    if reference is None:
        reference = new_reference(order or "ORDER")
    fields["currency"] = fields["currency"] or configured.account.taken_currencies[0]
    request = PaymentRequest(reference=reference, goods_info=goods, **fields)
    # printed before the call, so that the reference is known after any outcome
    click.echo(f"reference {request.reference}", err=True)
    with _interruption_is_unknown("pay", request.reference):
        created = hooks.pay(configured.account, request)
    return {
        "reference": created.reference,
        "transaction_no": created.transaction_no,
        "amount": request.amount,
        "currency": request.currency,
        "payment_url": created.payment_url,
    }


@main.command(short_help="Query the state of a payment.")
@click.argument("reference")
@number_option
@speaks_json
@account_options
def query(
    configured: Configured,
    reference: str,
    transaction_no: str | None,
) -> dict[str, Any]:
    """Query the payment of REFERENCE."""
    found = hooks.query(configured.account, reference, transaction_no=transaction_no)
    return {
        "reference": found.reference,
        "status": found.status,
        "status_text": found.status_text,
        "transaction_no": found.transaction_no,
        "amount": found.amount,
        "currency": found.currency,
        "settle_currency": found.settle_currency,
    }


@main.command(short_help="Refund part or all of a payment.")
@click.argument("reference")
@click.option("--amount", required=True, help="Such as 2.50.")
@click.option("--currency", help="The currency of the payment.  [default: the account's first]")
@click.option("--ipn-url", help="Where the gateway sends the refund's notification.")
@number_option
@speaks_json
@account_options
def refund(configured: Configured, **fields: Any) -> dict[str, Any]:
    """Refund part or all of the payment of REFERENCE."""
    fields["currency"] = fields["currency"] or configured.account.taken_currencies[0]
    request = RefundRequest(refund_id=new_reference("R"), **fields)
    with _interruption_is_unknown("refund", request.reference):
        done = hooks.refund(configured.account, request)
    return {
        "reference": done.reference,
        "amount": done.amount,
        "currency": request.currency,
        "outcome": done.outcome,
        "message": done.ret_msg,
    }


@main.command(short_help="Show how a signature comes about.")
@click.argument("parameters", nargs=-1, required=True, metavar="NAME=VALUE...")
@speaks_json
@account_options
def sign(configured: Configured, parameters: tuple[str, ...]) -> dict[str, Any]:
    """Show step by step how Tillgate computes the verifySign of the parameters, the token
    masked.
    """
    pairs: dict[str, str] = {}
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if not equals:
            raise errors.InvalidRequest("parameters", parameter, "is not NAME=VALUE")
        if name in pairs:
            raise errors.InvalidRequest("parameters", parameter, f"gives {name} a second time")
        pairs[name] = value
    steps = signing.steps(pairs, configured.account.token.get_secret_value())
    lines = [
        f"{number}. {_STEPS[step]}\n    {text}"
        for number, (step, text) in enumerate(steps.items(), 1)
    ]
    return {**steps, "lines": lines}


@main.command(short_help="Check configuration and credentials.")
@speaks_json
@account_options
def doctor(configured: Configured) -> dict[str, Any]:
    """Check the configuration, and prove the credentials without moving money.

    The proof is a signed query for a reference that cannot exist: the gateway must answer 000022,
    order not found.
    """
    from tillgate.account_checks import examine

    checks = examine(configured)
    marks = {True: click.style("ok  ", fg="green"), False: click.style("FAIL", fg="red")}
    lines = [
        f"{marks[check.passed]}  {check.name:<12} {printable(check.finding)}" for check in checks
    ]
    healthy = all(check.passed for check in checks)
    found = [
        {"name": check.name, "passed": check.passed, "finding": check.finding} for check in checks
    ]
    return {"healthy": healthy, "checks": found, "lines": lines}


@main.command(short_help="List the plugins and their hooks.")
@speaks_json
def plugins() -> dict[str, Any]:
    """List the installed gateway plugins and observers, and the hooks that each implements.

    Shop plugins are loaded with their Django project: `manage.py tillgate doctor` lists them.
    """
    manager = hooks.plugin_manager()
    found = {
        name: sorted(caller.name for caller in manager.get_hookcallers(plugin) or ())
        for name, plugin in manager.list_name_plugin()
        if plugin and name != IMPORTED_NAME
    }
    lines = [
        f"{click.style(name, bold=True)}\n    {', '.join(implemented) or 'no hooks'}"
        for name, implemented in found.items()
    ]
    lines.append("Shop plugins: see manage.py tillgate doctor.")
    return {"plugins": found, "lines": lines}


@main.command(short_help="Write a plugin to start from.")
@click.argument("name")
@click.option(
    "--into",
    default=".",
    type=click.Path(path_type=Path),
    help="Where the folder tillgate-NAME is made.  [default: here]",
)
@click.option("--gateway", is_flag=True, help="For the gateway NAME, in place of a framework.")
@speaks_json
def new_plugin(name: str, into: Path, *, gateway: bool) -> dict[str, Any]:
    """Write a plugin for the shop framework NAME to a new folder, with tests that pass, to be
    changed step by step.
    """
    from tillgate.scaffold import write_plugin

    written = write_plugin(name, into, is_gateway=gateway)
    commands = [
        f"cd {shlex.quote(str(written.folder))}",
        "python -m pip install --editable '.[testing]'",
        "python -m pytest",
    ]
    toy = "gateway" if gateway else "shop"
    lines = [
        f"Wrote {click.style(str(written.folder), bold=True)}:",
        *(f"    {file}" for file in written.files),
        "",
        f"Its toy {toy} passes the conformance kit as it stands. See it do so:",
        *(f"    {command}" for command in commands),
        "",
        f"Then README.md there leads through an afternoon, from the toy {toy} to yours.",
    ]
    return {
        "folder": str(written.folder),
        "files": written.files,
        "commands": commands,
        "lines": lines,
    }


@main.command(short_help="Run the emulator of the gateway.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on; the control API stays off a public one.",
)
@click.option(
    "--port",
    default=8181,
    type=click.IntRange(0, 65535),
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option("--seed", type=int, help="Repeat the faults of an earlier run.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A switch or the probability of a fault; may be repeated.",
)
@click.option(
    "--control-public",
    is_flag=True,
    help="Serve the ledger and the control API on a public address too.",
)
def sandbox(
    host: str,
    port: int,
    seed: int | None,
    settings: tuple[str, ...],
    *,
    control_public: bool,
) -> None:
    """Run the emulator of the gateway until Ctrl-C: its payment page, its ledger and every fault on
    demand.
    """
    emulator = _sandbox_module()
    given: dict[str, Any] = {"seed": seed} if seed is not None else {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting} is not NAME=VALUE", param_hint="--set")
        given[name] = value
    try:
        emulator.serve(
            emulator.Options.read(given),
            host=host,
            port=port,
            control_public=control_public,
            write=click.echo,
        )
    except emulator.SandboxError as error:
        raise click.UsageError(str(error)) from None


@main.command(short_help="Watch a payment go round.")
@click.option(
    "--once",
    is_flag=True,
    help="End when the payment has gone round, instead of leaving the sandbox up.",
)
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Port of the sandbox.  [default: a free one]",
)
@click.option(
    "--dialect",
    type=click.Choice(sorted(DIALECTS)),
    default="reference",
    show_default=True,
    help="v3 pays in KRW.",
)
def demo(port: int, dialect: str, *, once: bool) -> None:
    """Run a payment round: create, pay, notification, return, query, refund part, refund the rest,
    see a further refund refused.
    """
    emulator = _sandbox_module()
    from tillgate.demo import run

    try:
        sys.exit(run(port=port, once=once, write=click.echo, dialect=dialect))
    except emulator.SandboxError as error:
        raise click.UsageError(str(error)) from None


def _sandbox_module() -> Any:
    try:
        import tillgate.sandbox as emulator

        emulator.Sandbox  # noqa: B018  # the first use imports its dependencies
    except ImportError as error:
        raise click.UsageError(
            f"{error.name} is missing: install Tillgate with its extra, tillgate[sandbox]",
        ) from None
    return emulator
