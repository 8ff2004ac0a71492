"""The storm: each payment has one effect from any number of requests, shoppers get their answers,
and the command reports lost and doubled payments.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.benchmarks import databases
from tools.benchmarks.notifications import environment
from tools.benchmarks.processes import acting

ROOT = Path(__file__).parents[2]
PAYMENTS, COPIES = 5, 8


@pytest.fixture(scope="module")
def stormed(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the command as a user would, in a process of its own; return its exit status and its
    notes.
    """
    results = tmp_path_factory.mktemp("storm") / "results.jsonl"
    little = [
        "--payments",
        str(PAYMENTS),
        "--copies",
        str(COPIES),
        "--peer-payments",
        "0",
        "--seconds",
        "2",
        "--connections",
        "4",
    ]
    command = [
        sys.executable,
        "-m",
        "proving.storm",
        "--databases",
        "sqlite",
        *little,
        "--results",
        str(results),
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert results.exists(), ran.stderr
    [line] = map(json.loads, results.read_text("utf-8").splitlines())
    return ran, line


@pytest.mark.xdist_group("storm")
def test_i3_each_stormed_payment_has_one_effect(
    stormed: Any,
) -> None:
    """Copies of its notification, returns and workers come at the same time."""
    _, noted = stormed
    told = noted["one_effect"]
    assert (told["effects"], told["orders"], told["lost"], told["doubled"], told["wrong"]) == (
        PAYMENTS,
        PAYMENTS,
        [],
        [],
        [],
    )
    assert told["kinds"]["notification"]["requests"] == PAYMENTS * COPIES
    assert told["kinds"]["return"]["requests"] == PAYMENTS * 4
    assert sum(told["doors"].values()) == PAYMENTS


@pytest.mark.xdist_group("storm")
def test_i2_mixed_traffic_pays_every_order(stormed: Any) -> None:
    _, noted = stormed
    traffic = noted["mixed"]
    assert traffic["payments"] == traffic["effects"] == traffic["orders"] > 0
    assert set(traffic["kinds"]) >= {"checkout", "pay page", "start", "return", "status"}
    assert traffic["notifications"]["requests"] >= traffic["payments"]


@pytest.mark.xdist_group("storm")
def test_faultless_storm_succeeds_and_says_so(stormed: Any) -> None:
    ran, noted = stormed
    assert (noted["errors"], noted["lost"], noted["doubled"], ran.returncode) == (0, 0, 0, 0), (
        ran.stdout + ran.stderr
    )
    assert "sqlite: errors 0, lost 0, doubled 0" in ran.stdout


def test_storm_reports_lost_and_doubled_payments() -> None:
    chosen = environment("shop", "sqlite", "http://127.0.0.1:1", "storm_judged") | {
        "DJANGO_SETTINGS_MODULE": "proving.storm.settings",
        "STORM_LOG": os.devnull,
        "STORM_PUBLIC_URL": "http://127.0.0.1:2",
        "STORM_THROTTLE_SECONDS": "0",
    }
    with acting("proving.storm.actions", chosen) as actor:
        actor.do("create")
        try:
            lost, once, doubled, unpaid = actor.do("seed", count=4, status="paid", letter="P")
            with (
                contextlib.closing(
                    sqlite3.connect(
                        databases.settings("sqlite", chosen["BENCHMARK_DATABASE_NAME"])["NAME"],
                    ),
                ) as rows,
                rows,
            ):
                rows.executemany(
                    "INSERT INTO benchmark_shop_effect (order_key) VALUES (?)",
                    [("1",), ("2",), ("2",), ("3",)],
                )
            compared = actor.do("compare", paid=[lost, once, doubled, "unheard-of"])
        finally:
            actor.do("destroy")
    assert (compared["effects"], compared["orders"]) == (4, 3)
    assert compared["lost"] == [f"{lost}: paid, and no effect", "unheard-of: paid, and no effect"]
    assert compared["doubled"] == ["order 2: 2 effects"]
    assert compared["wrong"] == [
        f"{unpaid}: paid in the shop, and not paid at the gateway",
        "order 3: told to be paid, and it is not",
    ]


def test_missing_database_is_named() -> None:
    """In continuous integration it is an error."""

    def storm(ci: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": "1", "CI": ci}
        command = [sys.executable, "-m", "proving.storm", "--databases", "postgresql"]
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    ran = storm(ci="")
    assert (ran.returncode, ran.stdout) == (
        0,
        "postgresql: not run: needs PostgreSQL at 127.0.0.1:1\n",
    )
    assert "continuous integration must have PostgreSQL" in storm(ci="true").stderr


@pytest.mark.parametrize(
    ("program", "option", "value"),
    [
        ("storm", "--payments", "0"),
        ("storm", "--seconds", "0"),
        ("storm", "--peer-payments", "-1"),
        ("chaos", "--minutes", "0"),
        ("chaos", "--shoppers", "0"),
    ],
)
def test_empty_storm_or_chaos_is_refused(program: str, option: str, value: str) -> None:
    command = [sys.executable, "-m", f"proving.{program}", option, value]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert f"argument {option}: {value!r} is " in ran.stderr
