"""The simulator: the same seed plays the same world, every planned fault strikes, and broken code
is found.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proving.simulation import together
from proving.simulation.faults import KINDS
from tools.benchmarks import databases

pytestmark = pytest.mark.provers

ROOT = Path(__file__).parents[2]
TELLING = "tests.smallest_shop.telling:TellingDriver"
"""The shop that `python -m proving simulate` plays."""


def simulate(
    *arguments: str,
    settings: str = "proving.project",
    driver: str = "tests.smallest_shop.driver:SmallestShopDriver",
    database: str = "sqlite",
) -> str:
    """Run the command as a user would, in a process of its own; return its output."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": settings,
        "TILLGATE_TEST_DATABASE": database,
    }
    command = [sys.executable, "-m", "proving.simulation", "--driver", driver, *arguments]
    # our own line
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{ran.stdout}{ran.stderr}exit status {ran.returncode}\n"


def test_same_seed_plays_same_world() -> None:
    """Another seed plays another world."""
    said = [
        simulate("--seed", seed, "--payments", "8", driver=TELLING).splitlines()
        for seed in ("8", "8", "7")
    ]
    [first], [again], [other] = ([line for line in lines if len(line) == 64] for lines in said)
    assert first == again != other
    assert "exit status 0" in said[0]


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
def test_seed_plays_alike_on_every_database(
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if detail := databases.why_not(database):
        pytest.skip(detail)
    monkeypatch.setenv("TILLGATE_TEST_NAME", f"tillgate_simulated_{os.getpid()}")
    said = simulate("--seed", "2", "--payments", "12", database=database, driver=TELLING)
    assert "exit status 0" in said
    hashes = [line for line in said.splitlines() if len(line) == 64]
    assert (
        hashes
        == [
            line
            for line in simulate("--seed", "2", "--payments", "12", driver=TELLING).splitlines()
            if len(line) == 64
        ]
        != []
    )


def test_recorded_seed_is_not_simulated_again(
    tmp_path: Path,
) -> None:
    """The hash of the seed is still printed."""
    results = tmp_path / "results.jsonl"
    first = simulate("--seed", "5", "--payments", "2", "--results", str(results)).splitlines()
    again = simulate("--seed", "5", "--payments", "2", "--results", str(results)).splitlines()
    assert first[0].startswith("seed 5: ")
    assert again == ["seed 5 is on file", first[1], "exit status 0"]
    assert len(results.read_text("utf-8").splitlines()) == 1


def test_last_line_hashes_all_seeds(
    tmp_path: Path,
) -> None:
    """The hash includes the seeds that are already on file."""
    results = tmp_path / "results.jsonl"
    few = ("--payments", "2", "--results", str(results))
    simulate("--seed", "5-6", *few)
    some = simulate("--seed", "5-7", *few).splitlines()
    every = simulate("--seed", "5-7", *few).splitlines()
    assert (some[0], some[-3]) == ("seeds 5-6 are on file", "seeds 5-7 together:")
    assert every == ["seeds 5-7 are on file", *some[-3:]]
    assert some[-2] == together(
        json.loads(line)["digest"] for line in results.read_text("utf-8").splitlines()
    )


def test_recorded_outage_is_not_played_again(
    tmp_path: Path,
) -> None:
    """An outage of another length is played."""
    few = ("--payments", "2", "--results", str(tmp_path / "results.jsonl"))
    assert "seed 1: in 1 days" in simulate("--outage", "1", *few)
    assert "seed 1 is on file" in simulate("--outage", "1", *few)
    assert "seed 1: in 2 days" in simulate("--outage", "2", *few)


def test_doubly_paid_shop_yields_smallest_trace() -> None:
    """A shop that is paid twice is found, and the smallest trace replays."""
    said = simulate("--seed", "13", "--payments", "20", driver="proving.broken:PaidTwiceDriver")
    assert "I3: being paid took effect 2 times in the shop" in said
    assert "exit status 1" in said
    [line] = [
        line
        for line in said.splitlines()
        if line.startswith("replay it: python -m proving simulate ")
    ]
    given = line.removeprefix("replay it: python -m proving simulate ").split()
    # none of them was to blame
    assert set(given[given.index("--without") + 1].split(",")) == set(KINDS)
    replayed = simulate(*given, driver="proving.broken:PaidTwiceDriver")
    # a slow machine shows its progress after them
    first, again = (
        [line for line in text.splitlines() if len(line) == 64] for text in (said, replayed)
    )
    assert first == again != []


def test_reported_paid_allows_another_payment() -> None:
    """Its payment page is still open, and no shopper is led on to it."""
    nothing_else = (
        "closings,crashes,credentials,currencies,errors,handlers,outages,sleeps,slow,unusable"
    )
    said = simulate("--seed", "65", "--payments", "840", "--only", "777", "--without", nothing_else)
    assert "seed 65: 2 payments, 1 paid" in said
    assert "no violation" in said


@pytest.mark.parametrize(
    ("driver", "violated"),
    [
        # a remote outbox event that raised is never carried again
        (
            "SilentDriver",
            "I3: elsewhere [",
        ),
        ("PesteringDriver", "seconds after the turn of one mail came that of another"),
    ],
)
def test_reports_over_network_are_judged(driver: str, violated: str) -> None:
    # parts left out already need not be left out to find the smallest trace
    harmless = ",".join(set(KINDS) - {"amounts", "handlers"})
    said = simulate(
        "--seed",
        "5-9",
        "--payments",
        "20",
        "--without",
        harmless,
        driver=f"proving.broken:{driver}",
    )
    assert violated in said
    assert "exit status 1" in said


def test_one_worker_repairs_long_outage() -> None:
    """One worker run repairs all that was lost while the gateway was away for days."""
    said = simulate("--outage", "2", "--payments", "8", driver=TELLING)
    assert "in 2 days without a gateway " in said
    assert "exit status 0" in said
    [line] = [line for line in said.splitlines() if "without a gateway " in line]
    paid, notifications, good = (
        int(line.partition(before)[2].partition(after)[0])
        for before, after in (("gateway ", " of"), ("paid, ", " notifications"), ("made ", " good"))
    )
    assert paid == good > 0
    assert notifications >= paid


@pytest.mark.parametrize("settings", ["tests.django.project"])
def test_a_database_that_cannot_fail_is_refused(settings: str) -> None:
    said = simulate("--payments", "2", settings=settings)
    assert (
        "the simulation needs a database backend of its own: ENGINE is "
        "'django.db.backends.sqlite3', and must be one of proving." in said
    )
    assert "exit status 2" in said


def test_exhaustion_tries_everything_possible() -> None:
    """This covers all that can happen to a payment and its notification."""
    said = simulate("--exhaust", "refunds=0,payments=1,returns=0")
    assert "all explored, no violation" in said
    assert int(said.rpartition(" states, ")[0].split()[-1]) > 50
    assert "exit status 0" in said


@pytest.mark.parametrize(
    ("driver", "scope", "violated"),
    [
        (
            "PaidTwiceDriver",
            "refunds=0,crashes=0,faults=0",
            "I3: being paid took effect 2 times in the shop",
        ),
        # needs a death between sending and hearing
        (
            "CutOffDriver",
            "refunds=1,crashes=1,faults=0",
            "was sent 2 times",
        ),
        # needs a lost answer
        (
            "HopefulDriver",
            "refunds=1,crashes=0,faults=1",
            "was sent 2 times",
        ),
        # needs a death before the creation, and weeks
        (
            "ForgetfulDriver",
            "refunds=0,crashes=1,faults=0",
            "and never given up",
        ),
    ],
)
def test_exhaustion_finds_broken_drivers(
    driver: str,
    scope: str,
    violated: str,
) -> None:
    said = simulate(
        "--exhaust",
        f"payments=1,returns=0,{scope}",
        driver=f"proving.broken:{driver}",
    )
    assert violated in said
    assert "exit status 1" in said


def test_exhaustion_continues_with_unexplored_parts(tmp_path: Path) -> None:
    results = tmp_path / "exhaustion.jsonl"
    scope = "refunds=0,payments=1"
    first = simulate(
        "--exhaust",
        " refunds = 0, payments = 1, dying=shopper, failing=shopper",
        "--results",
        str(results),
    )
    rest = simulate("--exhaust", scope, "--results", str(results))
    lines = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    parts = [line["part"] for line in lines]
    others = ("shopper", "payment notification of paypal")
    assert parts[0] == "shopper dies, shopper fails"
    assert sorted(parts) == sorted(
        f"{dies} dies, {fails} fails" for dies in others for fails in others
    )
    assert {line["parts"] for line in lines} == {4}
    assert "shopper dies, shopper fails" not in rest
    assert "all explored, no violation" in first
    assert "no violation (1 of 4 parts were on file)" in rest
    unknown = simulate("--exhaust", f"{scope},dying=payment page")
    assert (
        "dying=payment page: nobody of that name; whose processes there are: shopper, payment "
        "notification of paypal" in unknown
    )
    assert "exit status 2" in unknown


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (
            "gremlins=1",
            "'gremlins=1' is no part of a scope: give NAME=NUMBER of payments, refunds, "
            "returns, crashes, faults, dying",
        ),
        ("refunds", "'refunds' says no number: give 0 or more"),
        ("refunds=-1", "'refunds=-1' says no number: give 0 or more"),
        ("payments=3", "payments=3: give 1 or 2"),
    ],
)
def test_senseless_scope_is_refused(scope: str, said: str) -> None:
    refused = simulate("--exhaust", scope)
    assert f"argument --exhaust: {said}" in refused
    assert "exit status 2" in refused


def test_interrupt_ends_simulation_with_one_line() -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "proving.project",
        "TILLGATE_TEST_DATABASE": "sqlite",
    }
    # a test in the background hears nothing
    hearing = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = (
        f"{hearing}; from proving.simulation.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    few = [
        "--driver",
        "tests.smallest_shop.driver:SmallestShopDriver",
        "--seed",
        "1-9",
        "--payments",
        "2",
    ]
    command, pipe = [sys.executable, "-c", program, *few], subprocess.PIPE
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
    ) as ran:
        assert ran.stdout
        assert ran.stderr
        ran.stdout.readline()  # the first world was played, and others are
        ran.send_signal(signal.SIGINT)
        ran.stdout.read()
        assert ran.stderr.read() == "\ninterrupted; what --results has noted stays\n"
    assert ran.returncode == 130


@pytest.mark.parametrize("program", ["compiled", "replayed"])
def test_remembered_results_match_repeated_work(program: str) -> None:
    """A query that was compiled, and a step that was played, where it could be played as well."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "proving.project",
        "TILLGATE_TEST_DATABASE": "sqlite",
    }
    command = [sys.executable, "-m", f"proving.{program}"]
    # our own line
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def seen_over_http() -> list[str]:
    """Return the events that a driver over HTTP has lived through, a line each."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "proving.project",
        "TILLGATE_TEST_DATABASE": "sqlite",
    }
    command = [sys.executable, "-m", "proving.over_http"]
    # our own line
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.xdist_group("over_http")
def test_content_types_allow_several_worlds(
    seen_over_http: list[str],
) -> None:
    """A framework with content types plays one world after another."""
    assert "worlds: [2, 2]" in seen_over_http


@pytest.mark.xdist_group("over_http")
def test_failed_session_write_ends_only_request(
    seen_over_http: list[str],
) -> None:
    """The world goes on if the database fails while the driver writes a session."""
    failed = [
        line.partition(": ")[2] for line in seen_over_http if line.startswith("write that fails")
    ]
    assert "('UpdateError after a fault, None', 'cancelled')" in failed
    assert set(failed) <= {
        "('UpdateError after a fault, None', 'cancelled')",
        "('deadlock detected, None', 'cancelled')",
    }


@pytest.mark.xdist_group("over_http")
def test_staff_cannot_close_paid_order(
    seen_over_http: list[str],
) -> None:
    """A shop may refuse with an error of its own."""
    assert "paid: ('not to be closed', 'paid')" in seen_over_http
    assert "paid meanwhile: ('refused: ValidationError', 'paid')" in seen_over_http


def test_http_driver_handles_every_fault() -> None:
    """A driver over HTTP plays a world with all kinds of fault."""
    said = simulate("--seed", "8", "--payments", "6", driver="proving.through_admin:AdminDriver")
    assert "no violation" in said
    assert "exit status 0" in said
