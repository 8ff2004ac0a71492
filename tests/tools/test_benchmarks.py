"""The benchmarks run and write a page where every figure says how it was made. The tests promise no
figure.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.benchmarks import databases, report
from tools.benchmarks.measure import Effort

ROOT = Path(__file__).parents[2]

FIGURES = {
    "`sign`: time of the leanest Python": "sign",
    "`sign`: speed of the `yuansfer` SDK's signing": "sign",
    "`hooks.pay`: time of a bare `httpx.Client.post`": "pay",
    "`hooks.pay`: speed of the `yuansfer` SDK": "pay",
    "`hooks.pay`: speed of stripe-python": "pay",
    "`AsyncGateway`: rate of stock `httpx.AsyncClient`": "pay_async",
    "`AsyncGateway`: rate of bare aiohttp": "pay_async",
    "`import tillgate; tillgate.Gateway`: CPU time of its dependencies": "imports",
    "`import tillgate`: modules of Django, sandbox or CLI loaded": "imports",
    "repeated notification, PostgreSQL: rate of a bare insert": "notifications",
    "repeated notification, MariaDB: rate of a bare insert": "notifications",
    "repeated notification, SQLite, `synchronous=FULL`: rate of a bare insert": "notifications",
    "repeated notification, SQLite, `synchronous=FULL`: rate of dj-stripe handling an event of a "
    "payment": "notifications",
    "worker run of 400 payments: rate of bare queries": "working",
    "worker run of 400 payments: peak memory of 200": "working",
    "worker run of 200 among 20,000 rows: time among 200": "working",
    "10 payments, 16 simultaneous copies of each notification, SQLite, `synchronous=FULL`: "
    "effects": "effects",
    "16 simultaneous shoppers, 2x4, gateway of 0.1 s: reach the payment page": "sale",
    "list of payments among 3,000 payments, SQLite, `synchronous=FULL`: time among 1,000": "staff",
    "export of a year among 3,000 payments, SQLite, `synchronous=FULL`: peak memory among 1,000": (
        "staff"
    ),
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.benchmarks", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    for peer in ("aiohttp", "gunicorn", "stripe", "yuansfer"):
        pytest.importorskip(peer)
    path = tmp_path_factory.mktemp("benchmarks") / "performance.md"
    finished = run("--quick", "--page", str(path))
    assert finished.returncode == 0, finished.stderr
    return path.read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    table = page.partition("| compared |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


@pytest.mark.provers
@pytest.mark.xdist_group("page")
def test_every_figure_and_generator_is_shown(page: str) -> None:
    assert set(FIGURES) <= {compared for compared, *_ in rows(page)}
    for name in set(FIGURES.values()):
        assert f"Generator: `python -m tools.benchmarks {name}`." in page


@pytest.mark.provers
@pytest.mark.xdist_group("page")
def test_ratios_show_spread_and_target_verdict(page: str) -> None:
    for compared, ratio, judged in rows(page):
        target, _, verdict = judged.partition(": ")
        if ratio.startswith("not measured: needs "):
            assert verdict == ""
        else:
            seconds_or_ratio = r"\*\*\d+\.\d\d( s\*\*|x\*\* \(\d+\.\d\d to \d+\.\d\d\))"
            assert re.fullmatch(seconds_or_ratio, ratio) or any(
                word in compared for word in ("modules", "effects", "reach")
            )
            assert verdict == "" if target == "-" else verdict in ("met", "**not met**")
        if compared in FIGURES:
            assert target != "-"


@pytest.mark.provers
@pytest.mark.xdist_group("page")
@pytest.mark.parametrize(
    "named",
    [
        "date",
        "commit",
        "CPU",
        "seed",
        "python",
        "httpx",
        "aiohttp",
        "pydantic",
        "stripe",
        "yuansfer",
    ],
)
def test_page_names_machine_and_versions(page: str, named: str) -> None:
    run_of_page = page.partition("## The run")[2]
    assert re.search(
        rf"^\| {named}[^|]* \| [^|]+ \|$|^\| packages \|.* {named} [\d.]+",
        run_of_page,
        re.MULTILINE,
    )


@pytest.mark.provers
@pytest.mark.xdist_group("page")
def test_repeated_notifications_tell_shop_once(
    page: str,
) -> None:
    (counted,) = (
        [ratio, judged.partition(": ")[2]]
        for compared, ratio, judged in rows(page)
        if "effects" in compared and "dj-stripe" not in compared
    )
    assert counted == ["10 on 10 orders", "met"]


def test_page_explains_missing_measurements() -> None:
    section = report.Section(
        name="notifications",
        title="Notices",
        about="What is compared.",
        repetitions="None.",
        figures=[report.Figure.missing("ours: rate of theirs", "needs theirs", "at least 6x")],
        bars={},
        unit="requests a second",
    )
    text = report.page([section], Effort(quick=True), drawn=True)
    assert "| ours: rate of theirs | not measured: needs theirs | at least 6x |" in text
    assert "nothing was measured" in text


def test_missing_database_fails_only_in_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elsewhere the page says which database was missing."""
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.delenv("CI", raising=False)
    assert databases.why_not("postgresql") == "needs PostgreSQL at 127.0.0.1:1"
    monkeypatch.setenv("CI", "true")
    with pytest.raises(RuntimeError, match="must have PostgreSQL"):
        databases.why_not("postgresql")


@pytest.mark.provers
@pytest.mark.xdist_group("page")
def test_quick_page_warns_against_quoting(page: str) -> None:
    assert "Do not quote it" in page


def test_an_unknown_benchmark_is_an_error() -> None:
    finished = run("nothing")
    assert finished.returncode == 2
    assert "no benchmark is named nothing" in finished.stderr
