"""`manage.py tillgate`: the worker as a process, the audit, and the doctor."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, CommandParser, call_command
from django.db import OperationalError, connection, connections
from django.utils import timezone

from tests.django import bookings, project
from tests.django.conftest import World
from tests.django.gateway import make_due, many
from tests.test_docs import headings, read, rows, section
from tillgate import hooks
from tillgate.account import Account
from tillgate.django.accounting.differences import DifferenceKind
from tillgate.django.management.commands.tillgate import SUBCOMMANDS, Command
from tillgate.django.management.subcommands import audit as audit_subcommand
from tillgate.django.management.subcommands import worker as subcommand
from tillgate.django.management.terminal import Stop, Voice
from tillgate.django.models import Order, Payment, Review
from tillgate.django.refunds import queueing
from tillgate.django.reviews.opening import ACCOUNT_REASONS, UNAPPLIED_REASONS
from tillgate.django.worker.runner import WorkDone
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_STORE_NO, PUBLISHED_TEST_TOKEN


class Terminal(io.StringIO):
    """The output as a user sees it; no terminal unless the test says so."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def run(*words: str, is_terminal: bool = False) -> tuple[str, int]:
    """Run the command as typed, and return its output and its exit code."""
    out = Terminal(is_terminal=is_terminal)
    try:
        call_command("tillgate", *words, stdout=out, stderr=out, no_color=True)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


def kill_when(monkeypatch: pytest.MonkeyPatch, queries: int, number: int) -> None:
    """Send this process a signal at so many queries."""
    real, seen, lock = hooks.query, [0], threading.Lock()

    def query(account: Account, reference: str, **bounds: Any) -> Any:
        with lock:
            seen[0] += 1
            if seen[0] == queries:
                os.kill(os.getpid(), number)
        return real(account, reference, **bounds)

    monkeypatch.setattr("tillgate.hooks.query", query)


# worker run ---------------------------------------------------------------------------------------


def test_a_worker_says_what_it_did(world: World) -> None:
    payment = world.start(world.order())
    world.shopper_pays(payment)
    make_due(payment)
    assert run("worker", "--once") == ("payments 1, events 1, changed 1\n", 0)
    assert run("worker", "--once") == ("payments 0\n", 0)
    assert world.shop.is_paid(payment.order.key)


@pytest.mark.parametrize(
    "words",
    [("worker", "--once", "-v", "0"), ("-v", "0", "worker", "--once")],
)
def test_a_quiet_worker_says_nothing(world: World, words: tuple[str, ...]) -> None:
    many(world, 1)
    assert run(*words, is_terminal=True) == ("", 0)
    assert world.queries() == 1


def test_only_terminal_sees_progress(world: World) -> None:
    many(world, 1)
    text, _ = run("worker", "--once", is_terminal=True)
    assert text == "... payments 1\npayments 1\n"
    many(world, 1)
    assert run("worker", "--once")[0] == "payments 1\n"


@pytest.mark.parametrize("given", ["0", "86400", "many"])
def test_senseless_interval_is_refused(world: World, given: str) -> None:
    with pytest.raises(CommandError):
        run("worker", "--once", "--interval", given)


@pytest.mark.parametrize(
    ("option", "given", "remedy"),
    [
        ("--interval", "5s", "'5s' is not a number of seconds above 0 and at most 3600, such as 5"),
        (
            "--interval",
            "nan",
            "'nan' is not a number of seconds above 0 and at most 3600, such as 5",
        ),
    ],
)
def test_unusable_number_names_remedy(
    world: World,
    option: str,
    given: str,
    remedy: str,
) -> None:
    with pytest.raises(CommandError) as caught:
        run("worker", option, given)
    assert str(caught.value).startswith(f"Error: argument {option}: ")
    assert str(caught.value).endswith(remedy)


def test_single_worker_run_ends_soon(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the loop, the worker ends within minutes and says if work is left."""
    many(world, 2)
    monkeypatch.setattr(subcommand, "_LONGEST_SECONDS", 0.0)
    assert run("worker", "--once") == ("payments 0; the rest is for the next worker run\n", 0)
    monkeypatch.undo()
    assert run("worker", "--once") == ("payments 2\n", 0)


def test_missing_tables_name_next_command(world: World) -> None:
    """Without tables, the worker and the audit say which command to run."""
    call_command("migrate", "tillgate", "zero", verbosity=0)
    try:
        for words in (("worker", "--once"), ("worker",), ("audit",)):
            with pytest.raises(
                CommandError,
                match=r"no tables of Tillgate yet: run `manage\.py migrate`",
            ):
                run(*words)
    finally:
        call_command("migrate", "tillgate", verbosity=0)


def test_worker_faults_end_with_1(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The output names the faults."""
    monkeypatch.setattr(
        subcommand,
        "run_worker",
        lambda *_, **__: WorkDone(faults=["outbox events of order 3: RuntimeError: no"]),
    )
    assert run("worker", "--once") == (
        "payments 0, faults 1\noutbox events of order 3: RuntimeError: no\n",
        1,
    )


def test_wrong_settings_are_one_line(world: World, settings: Any) -> None:
    settings.TILLGATE = {}
    with pytest.raises(CommandError, match=r"^ConfigurationError: TILLGATE\['PUBLIC_URL'\]"):
        run("worker", "--once")


def test_unreachable_database_is_one_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> WorkDone:
        raise OperationalError("connection refused")

    monkeypatch.setattr(subcommand, "run_worker", away)
    with pytest.raises(CommandError, match="connection refused"):
        run("worker", "--once")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_loop_without_loss(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """The loop ends cleanly."""
    before = signal.getsignal(number)
    payments = many(world, 30)
    for payment in payments:
        world.shopper_pays(payment)
    kill_when(monkeypatch, 5, number)
    text, code = run("worker")
    assert code == 0
    assert signal.getsignal(number) is before
    polled = world.queries()
    assert 5 <= polled < 30
    assert Payment.objects.filter(status="paid").count() == polled, "every answer is written"
    assert f"changed {polled}" in text
    assert re.search(r"^\d\d:\d\d:\d\d payments \d+", text, re.MULTILINE)
    assert run("worker", "--once")[0].startswith(f"payments {30 - polled}")
    assert [world.shop.times_paid(payment.order.key) for payment in payments] == [1] * 30, (
        "also of what was written before the signal"
    )


def test_loop_waits_interval_between_runs(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began: list[float] = []

    def run_worker(*_: object, **__: object) -> WorkDone:
        began.append(time.monotonic())
        if len(began) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return WorkDone()

    monkeypatch.setattr(subcommand, "run_worker", run_worker)
    text, code = run("worker", "--interval", "0.3")
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d The worker runs, every 0\.3 s, until SIGINT or SIGTERM\.\n",
        text,
    )
    assert code == 0
    assert len(began) == 3
    assert 0.3 <= began[2] - began[1] < 2


def test_quiet_loop_starts_silently(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_worker(*_: object, **__: object) -> WorkDone:
        os.kill(os.getpid(), signal.SIGTERM)
        return WorkDone()

    monkeypatch.setattr(subcommand, "run_worker", run_worker)
    assert run("worker", "-v", "0") == ("", 0)


def test_loop_survives_any_worker_error(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes: list[Exception | None] = [
        OperationalError("connection refused"),
        RuntimeError("a bug"),
        None,
    ]
    waited: list[float] = []

    def run_worker(*_: object, **__: object) -> WorkDone:
        outcome = outcomes.pop(0)
        if outcome:
            raise outcome
        os.kill(os.getpid(), signal.SIGTERM)
        return WorkDone()

    monkeypatch.setattr(subcommand, "run_worker", run_worker)
    monkeypatch.setattr(Stop, "wait", lambda _, seconds: waited.append(seconds))
    with caplog.at_level(logging.WARNING, "tillgate"):
        assert run("worker")[1] == 0
    assert waited[:2] == [subcommand._PAUSE_SECONDS] * 2
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "connection refused" in caplog.text


def drop_connections() -> int:
    """Let the server end every connection to the tests' database but this thread's, as when it
    restarts; return how many there were.
    """
    with connections["default"].cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
                "current_database() AND pid <> pg_backend_pid()",
            )
            return len(cursor.fetchall())
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> "
            "CONNECTION_ID()",
        )
        others = [number for (number,) in cursor.fetchall()]
        for number in others:
            cursor.execute(f"KILL {number}")
        return len(others)


@pytest.mark.skipif(
    project.DATABASE == "sqlite",
    reason="SQLite has no connection that could be dropped",
)
def test_loop_survives_dropped_connections(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are dropped in the middle of a worker run, and the payment is still found."""
    order = world.order()
    payment = world.start(order)
    world.shopper_pays(payment)
    make_due(payment)
    real = hooks.query
    dropped: list[int] = []

    def query(account: Account, reference: str, **bounds: Any) -> Any:
        if not dropped:
            dropped.append(drop_connections())
        return real(account, reference, **bounds)

    def wait_until_paid() -> None:
        try:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                time.sleep(0.1)
                if dropped:
                    make_due(payment)  # its lease is over
                if world.shop.is_paid(order):
                    return
        finally:
            connections.close_all()

    def watch() -> None:
        while not dropped:
            time.sleep(0.05)
        wait_until_paid()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("tillgate.hooks.query", query)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        run("worker", "--interval", "0.2")
    finally:
        thread.join()
    assert dropped[0] >= 1
    assert world.shop.times_paid(order) == 1


def test_failing_check_does_not_stop_worker() -> None:
    assert not Command.requires_system_checks


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_says_what_it_is_for(
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        Command().create_parser("manage.py", "tillgate").parse_args([name, "--help"])
    about = " ".join((SUBCOMMANDS[name].__doc__ or "").split())
    summary = about.partition(".")[0].partition(";")[0]
    assert summary
    assert summary in " ".join(capsys.readouterr().out.split())


def options_of(name: str) -> set[str]:
    """Return the options that a subcommand has of its own."""
    parser = CommandParser()
    SUBCOMMANDS[name].add_arguments(parser)
    return {
        option
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    } - {"--help"}


def test_all_subcommands_and_options_are_explained() -> None:
    """The page explains nothing that does not exist."""
    page = read("docs/reference/manage.md")
    named = [
        heading.removeprefix("manage.py tillgate ")
        for heading in headings(page)
        if heading.startswith("manage.py tillgate ")
    ]
    assert named == list(SUBCOMMANDS)
    for name in SUBCOMMANDS:
        explained = rows(section(page, f"manage.py tillgate {name}"))
        assert {option for option in explained if option.startswith("--")} == options_of(name), name


def test_all_kinds_of_difference_are_explained() -> None:
    """The page explains no other kind."""
    explained = rows(section(read("docs/reference/manage.md"), "Differences"))
    shown_to_a_person = {
        *UNAPPLIED_REASONS,
        *(ACCOUNT_REASONS - {"gateway-silent", "creations-refused"}),
        "changed-after-paid",
        "refund-unknown",
        "refund-contradicted",
        "refund-returned",
        "refund-late",
        "cancelled-held",
        "duplicate-transaction-no",
    }
    # unknown-there, not asked, or no difference
    otherwise = {
        "manual-review",
        "wrong-credentials",
        "signature-mismatch",
        "account-gone",
        "payment-unknown",
        "payment-unanswered",
    }
    assert set(explained) - {"kind"} == {*DifferenceKind, *(shown_to_a_person - otherwise)}


# audit --------------------------------------------------------------------------------------------


def test_books_that_agree_end_with_0(world: World) -> None:
    payment = world.paid_payment("12.50")
    queueing.refund(payment.pk, "2.50")
    text, code = run("audit")
    assert code == 0
    assert re.fullmatch(
        r"1 of 1 payment compared, started from \d{4}-\d\d-\d\d \d\d:\d\d C[DS]T until "
        r"\d{4}-\d\d-\d\d \d\d:\d\d C[DS]T: no difference\n"
        r"paid here: 1 with USD 12\.50; at the gateway: 1 with USD 12\.50\n"
        r"refunded here: 1 refund with USD 2\.50; compare them with the gateway's back office\n",
        text,
    )
    assert run("audit", "-v", "0") == ("", 0)


def test_one_difference_ends_with_1(world: World) -> None:
    """The difference takes one line."""
    payment = world.start(world.order())
    world.shopper_pays(payment)
    text, code = run("audit")
    assert code == 1
    line, summary, totals = text.splitlines()
    assert re.fullmatch(
        rf"paid-there {payment.reference} of order {payment.order}: pending, USD 12\.50, "
        r"transaction \d+ \| "
        r"the gateway says 'success', USD 12\.50, transaction \d+ \| “Poll now” in the admin; the "
        r"worker looks next at .*",
        line,
    )
    assert summary.endswith(": 1 difference")
    assert totals == "paid here: 0 with no money; at the gateway: 1 with USD 12.50"
    assert run("audit", "-v", "0") == (f"{line}\n", 1)


def test_unanswered_query_ends_with_2(
    world: World,
    settings: Any,
) -> None:
    """The exit code is 2 even if there are differences too."""
    world.shopper_pays(world.start(world.order()))
    Payment.objects.filter(pk=world.start(world.order()).pk).update(account="gone")
    text, code = run("audit")
    assert code == 2
    assert text.startswith("paid-there ")
    assert "\nnot-asked: 1 payment: S" in text
    assert ": 1 difference\n" in text
    assert text.endswith("some queries failed: see not-asked\n")


def test_json_audit_has_exact_money(world: World) -> None:
    """The audit as JSON is a single object."""
    world.paid_payment("0.10")
    world.shopper_pays(world.start(world.order()))
    text, code = run("audit", "--json", is_terminal=True)
    told = json.loads(text)
    assert code == 1
    assert list(told) == [
        *(
            "since",
            "until",
            "total",
            "payments",
            "compared",
            "paid_here",
            "paid_here_amounts",
            "paid_there",
            "paid_there_amounts",
        ),
        *("refunds", "refunded_amounts", "differences"),
    ]
    assert (told["paid_here_amounts"], told["paid_there_amounts"]) == (
        {"USD": "0.10"},
        {"USD": "12.60"},
    )
    assert [set(one) for one in told["differences"]] == [
        {"kind", "reference", "order", "here", "there", "remedy", "told"},
    ]
    assert told["differences"][0]["kind"] == "paid-there"


def test_audit_data_cannot_control_terminal(world: World) -> None:
    """A terminal sees the progress, and control characters in the data are escaped."""
    many(world, 3)
    Order.objects.filter(pk=Payment.objects.earliest("pk").order_id).update(key="\x1b[2J")
    world.shopper_pays(Payment.objects.earliest("pk"))
    text, _ = run("audit", is_terminal=True)
    assert "\x1b" not in text
    assert "of order smallest-shop:\\x1b[2J: " in text
    assert text.count("... 3 of 3 payments compared, 1 difference\n") == 1


@pytest.mark.parametrize(
    ("words", "since", "until"),
    [
        ((), timedelta(days=30), timedelta(0)),
        (("--since", "7d", "--until", "3h"), timedelta(days=7), timedelta(hours=3)),
        (("--since", "90m"), timedelta(minutes=90), timedelta(0)),
        (
            ("--since", "2026-03-01", "--until", "2026-03-31"),
            "2026-03-01T00:00:00-06:00",
            "2026-04-01T00:00:00-05:00",
        ),
        (
            ("--since", "2026-03-01T12:30", "--until", "2026-03-01T20:00+00:00"),
            "2026-03-01T12:30:00-06:00",
            "2026-03-01T20:00:00+00:00",
        ),
    ],
)
def test_period_accepts_days_and_moments(
    world: World,
    settings: Any,
    words: tuple[str, ...],
    since: timedelta | str,
    until: timedelta | str,
) -> None:
    """A period can also be given as a time ago."""
    settings.TIME_ZONE = "America/Chicago"  # where March has two offsets
    told = json.loads(run("audit", "--json", *words)[0])
    for name, wanted in (("since", since), ("until", until)):
        moment = datetime.fromisoformat(told[name])
        if isinstance(wanted, str):
            assert moment == datetime.fromisoformat(wanted)
        else:
            assert abs(timezone.now() - wanted - moment) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "words",
    [
        *(("--since", "yesterday"), ("--since", "7w"), ("--until", "2026-02-30")),
        *(
            ("--since", "1d", "--until", "2d"),
            ("--since", "0m"),
            ("--since", "3h", "--until", "3h"),
        ),
    ],
)
def test_senseless_period_is_refused(world: World, words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=r"is not a day|is not before"):
        run("audit", *words)


@pytest.mark.parametrize(
    ("option", "year"),
    [("--until", "9999-12-31"), ("--since", "0001-01-01T00:00+14:00"), ("--since", "0001-01-01")],
)
def test_calendar_limits_are_refused_by_option(
    world: World,
    option: str,
    year: str,
) -> None:
    """The error for a moment at the ends of the calendar names the option."""
    with pytest.raises(
        CommandError,
        match=re.escape(
            f"argument {option}: {year!r} is out of range: give a year from 1900 to 9998",
        ),
    ):
        run("audit", option, year)
    run("audit", "--since", "1900-01-01", "--until", "9998-12-31")


@pytest.mark.skipif(
    connection.vendor == "mysql",
    reason="MySQL keeps no time with a zone where USE_TZ is off, and the test's rows have one",
)
def test_commands_run_without_time_zones(world: World, settings: Any) -> None:
    settings.USE_TZ = False
    world.paid_payment()
    for words in (
        (),
        ("--since", "2020-01-01"),
        ("--since", "2020-01-01T12:00"),
        ("--since", "2020-01-01T12:00+02:00"),
    ):
        text, code = run("audit", *words)
        assert re.search(r": no difference$", text.splitlines()[0]), text
        assert code == 0
    out = Terminal()
    Voice(Command(stdout=out), 1, tells_time=True).done("1 payment polled")  # as the loop says it
    assert re.fullmatch(r"\d\d:\d\d:\d\d 1 payment polled\n", out.getvalue())


def test_an_account_can_be_chosen(world: World) -> None:
    world.shopper_pays(world.start(world.order()))
    assert run("audit", "--account", "default")[1] == 1
    assert run("audit", "--account", "default", "--until", "1d")[1] == 0
    with pytest.raises(
        CommandError,
        match=r"^--account defualt: there is no such account; give one of default$",
    ) as caught:
        run("audit", "--account", "defualt")
    assert caught.value.returncode == 2
    with pytest.raises(
        CommandError,
        match=r"^--account '': there is no such account; give one of default$",
    ) as caught:
        run("audit", "--account", "")  # as from a script with an unset variable
    assert caught.value.returncode == 2


def test_empty_period_is_not_agreement(world: World) -> None:
    """Books without a payment in the period are not said to agree."""
    world.paid_payment()
    text, code = run("audit", "--until", "1d")
    assert text.splitlines()[0].endswith(": nothing was compared")
    assert "no difference" not in text
    assert code == 0


def test_failed_audit_start_ends_with_2(
    world: World,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: object, **__: object) -> Any:
        raise OperationalError("connection refused")

    monkeypatch.setattr(audit_subcommand, "audit", away)
    with pytest.raises(
        CommandError,
        match=r"The database cannot be used \(django\S*, NAME '.+'\): connection refused",
    ) as caught:
        run("audit")
    assert caught.value.returncode == 2
    settings.TILLGATE = {}
    with pytest.raises(
        CommandError,
        match=r"^ConfigurationError: TILLGATE\['PUBLIC_URL'\]",
    ) as caught:
        run("audit")
    assert caught.value.returncode == 2


def test_interrupted_audit_names_unreached_part(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many(world, 30)
    kill_when(monkeypatch, 5, signal.SIGINT)
    text, code = run("audit")
    assert code == 2
    assert "could not be asked: the audit was ended" in text
    assert 5 <= world.queries() < 30


# doctor -------------------------------------------------------------------------------------------


@pytest.fixture
def healthy(world: World, configure: Callable[..., None], settings: Any) -> World:
    """A project in which the doctor finds nothing wrong, but for how the tests' own database is set
    up.
    """
    configure(REVIEW_MAIL_TO=["owner@shop.example"])
    settings.SILENCED_SYSTEM_CHECKS = ["tillgate.E003", "tillgate.W005", "tillgate.W007"]
    world.run_worker()
    return world


def findings() -> tuple[dict[str, str], dict[str, str]]:
    """Return the doctor's findings, good and bad, by name."""
    text, code = run("doctor", "--json")
    found = json.loads(text)
    assert found["healthy"] is (code == 0)
    assert PUBLISHED_TEST_TOKEN not in text
    right = {check["name"]: check["finding"] for check in found["checks"] if check["passed"]}
    return right, {
        check["name"]: check["finding"] for check in found["checks"] if not check["passed"]
    }


def test_a_healthy_project(healthy: World) -> None:
    right, wrong = findings()
    assert wrong == {}
    assert right["default: credentials"].startswith("a signed query was understood")
    assert right["worker"].startswith("ran last ")
    assert (right["migrations"], right["reviews"]) == ("all applied", "nothing needs review")
    text, code = run("doctor")
    assert code == 0
    assert "FAIL" not in text
    assert run("doctor", "-v", "0") == ("", 0)


def test_the_accounts_are_proven_without_moving_money(
    healthy: World,
    configure: Callable[..., None],
) -> None:
    configure({"TOKEN": "another token"}, REVIEW_MAIL_TO=["owner@shop.example"])
    _, wrong = findings()
    assert set(wrong) == {"default: credentials"}
    assert "check merchant_no and token" in wrong["default: credentials"]
    assert not healthy.sandbox.service.transactions()


@pytest.mark.parametrize("dialect", ["reference", "examples", "v3"])
@pytest.mark.parametrize(
    ("change", "prefixes", "said"),
    [
        ({"TOKEN": "another token"}, "all", "check merchant_no and token"),
        ({"MERCHANT_NO": "999"}, "all", "check merchant_no, and its rights"),
        ({"BASE_URL": "http://127.0.0.1:1"}, "all", "check base_url and the network"),
        ({"STORE_NO": "999"}, "all", "check store_no"),
        ({}, "elsewhere", "set dialect to"),
    ],
)
def test_each_wrong_setting_has_own_remedy(
    healthy: World,
    configure: Callable[..., None],
    change: dict[str, str],
    prefixes: str,
    said: str,
    dialect: str,
) -> None:
    other = {"reference": "examples", "examples": "v3", "v3": "online"}[dialect]
    healthy.sandbox.control.set_options(
        {"prefixes": other if prefixes == "elsewhere" else prefixes},
    )
    configure(
        {"DIALECT": dialect, "STORE_NO": PUBLISHED_STORE_NO, **change},
        REVIEW_MAIL_TO=["owner@shop.example"],
    )
    _, wrong = findings()
    if dialect == "v3" or "STORE_NO" not in change:
        assert set(wrong) == {"default: credentials"}
        assert said in wrong["default: credentials"]
    else:
        assert wrong == {}


def test_version_3_account_needs_store(
    healthy: World,
    configure: Callable[..., None],
) -> None:
    """The doctor names an account of version 3 without a store."""
    configure({"DIALECT": "v3"}, REVIEW_MAIL_TO=["owner@shop.example"])
    _, wrong = findings()
    assert any("STORE_NO" in finding for finding in wrong.values())


def test_plugin_account_is_examined_while_used(
    healthy: World,
    settings: Any,
) -> None:
    """The doctor examines an account of a plugin while its payments are watched."""

    class Keeper:
        @hooks.hookimpl
        def tillgate_account(self, alias: str) -> Account | None:
            if alias != "event-7":
                return None
            return Account(
                base_url=healthy.sandbox.base_url,
                merchant_no=PUBLISHED_MERCHANT_NO,
                token=PUBLISHED_TEST_TOKEN,
                sandbox=True,
            )

    keeper = Keeper()
    hooks.plugin_manager().register(keeper)
    try:
        many(healthy, 1, "event-7")
        right, wrong = findings()
    finally:
        hooks.plugin_manager().unregister(keeper)
    assert wrong == {}
    assert "kept by a plugin" in right["event-7: token"]
    _, wrong = findings()
    assert set(wrong) == {"account event-7", "watched payments"}


def test_raising_plugin_does_not_end_doctor(healthy: World) -> None:
    class Faulty:
        @hooks.hookimpl
        def tillgate_account(self, alias: str) -> Account:
            raise KeyError(alias)

        @hooks.hookimpl(wrapper=True)
        def tillgate_query(self) -> Iterator[None]:
            yield from ()
            raise ZeroDivisionError

    faulty = Faulty()
    many(healthy, 1)
    Payment.objects.update(account="event-7")
    hooks.plugin_manager().register(faulty)
    try:
        right, wrong = findings()
    finally:
        hooks.plugin_manager().unregister(faulty)
    assert wrong["default: credentials"].startswith("a plugin raised ZeroDivisionError: correct it")
    assert wrong["account event-7"].startswith(
        "a plugin that was asked for it raised KeyError: 'event-7': correct it",
    )
    assert "reviews" in right


def test_wrong_settings_do_not_end_the_doctor(healthy: World, settings: Any) -> None:
    settings.TILLGATE = {**settings.TILLGATE, "METHOD": ["alipay"]}
    right, wrong = findings()
    assert set(wrong) == {"settings"}
    assert "'METHOD' is not a setting" in wrong["settings"]
    assert "worker" in right


def test_absent_worker_and_reviews_are_reported(healthy: World) -> None:
    healthy.time.advance(hours=2)
    Review.objects.create(
        reason="underpaid",
        facts={"detail": "It was underpaid."},
        open_key="1",
        opened_at=timezone.now(),
    )
    _, wrong = findings()
    assert set(wrong) == {"worker", "reviews"}
    assert "2 h ago" in wrong["worker"]
    text, code = run("doctor")
    assert code == 1
    assert (text.count("WARN"), text.count("FAIL")) == (1, 1)
    assert run("doctor", "-v", "0")[0].count("\n") == 2


def test_what_is_due_is_counted(healthy: World) -> None:
    many(healthy, 3)
    right, _ = findings()
    assert re.fullmatch(r"payments 3, since \d+ s", right["due work"])


def test_unapplied_migrations_are_reported(
    healthy: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The doctor reads no table in this case."""
    from django.db.migrations.executor import MigrationExecutor

    class Pending:
        name = "0002_more"

    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *_: [(Pending, False)])
    right, wrong = findings()
    assert wrong == {"migrations": "not applied: 0002_more. Run `manage.py migrate`."}
    assert "worker" not in right


def test_unreadable_database_is_reported(
    healthy: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from django.db.migrations.executor import MigrationExecutor

    def away(*_: object, **__: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(MigrationExecutor, "migration_plan", away)
    _, wrong = findings()
    assert wrong == {"migrations": "the database 'default' cannot be read: OperationalError"}


def test_early_reader_gets_no_traceback(
    world: World,
) -> None:
    """The doctor keeps its exit code when its output is closed early."""
    reading, writing = os.pipe()
    os.close(reading)
    doctor = [sys.executable, "-m", "django", "tillgate", "doctor"]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.django.project"}
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            doctor,
            stdout=pipe,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            check=False,
        )
    # 1, since the tests' own database has no tables
    assert (done.stderr, done.returncode) == (
        "",
        1,
    )


# Figures.


def test_export_is_limited_to_period() -> None:
    """An export holds the payments or the refunds of the period and nothing else."""
    paid = bookings.payment("A", "10.00", "2026-03-02T10:00+00:00")
    bookings.payment("B", "10.00", "2026-04-01T12:00+00:00")
    bookings.refund(paid, "4.00", "2026-03-03T10:00+00:00")
    period = ("--since", "2026-03-01", "--until", "2026-03-31")
    for options, names in (
        ((), ["reference", "A"]),
        (("--refunds",), ["refund_id", paid.refunds.get().refund_id]),
    ):
        out, code = run("export-payments", *period, *options)
        assert code == 0
        assert [row[0] for row in csv.reader(out.splitlines())] == names


def test_settlement_differences_end_with_1(
    tmp_path: Path,
) -> None:
    """The check prints each difference and each wrong line."""
    for reference in "AB":
        bookings.payment(reference, "10.00", "2026-03-02T10:00+00:00")
    file = tmp_path / "march.csv"
    file.write_text("Beleg,amount,fee\nA,10.00,0.10\nZ,\x1b[2J,\n")
    out, code = run(
        "check-settlement",
        str(file),
        "--reference-column",
        "Beleg",
        "--since",
        "2026-03-01",
        "--until",
        "2026-03-31",
    )
    assert code == 1
    assert re.search(r"^line 3: amount ", out, re.MULTILINE)
    assert re.search(r"^missing-in-file payment B: USD 10.00, paid here", out, re.MULTILINE)
    assert "fees 0.10" in out
    assert "\x1b" not in out
    file.write_text("reference,amount\nA,10.00\nB,10.00\n")
    assert run("check-settlement", str(file))[1] == 0


def test_settlement_refuses_unknown_account_or_file(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no such account"):
        run("check-settlement", str(tmp_path), "--account", "nobody")
    with pytest.raises(CommandError, match="cannot be read"):
        run("check-settlement", str(tmp_path / "none.csv"))
