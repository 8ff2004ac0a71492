"""A senseless argument of a proof is an error that names it and the remedy, and Ctrl-C ends a proof
with one line.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proving import arguments
from proving.progress import Progress
from proving.simulation import together
from proving.simulation.__main__ import main as simulation
from tests.smallest_shop.driver import SmallestShopDriver
from tillgate.testing import report


def test_what_makes_sense_is_read(tmp_path: Path) -> None:
    assert arguments.count("20") == 20
    assert arguments.size("0.5") == 0.5
    assert arguments.seeds("7") == range(7, 8)
    assert arguments.seeds("2-5") == range(2, 6)
    assert (
        arguments.results_file(str(tmp_path / "not" / "yet.jsonl"))
        == tmp_path / "not" / "yet.jsonl"
    )
    assert isinstance(
        arguments.driver("tests.smallest_shop.driver:SmallestShopDriver"),
        SmallestShopDriver,
    )


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        *[
            (arguments.count, text, f"{text!r} is no count: give 1 or more")
            for text in ("0", "-1", "1.5", "many", "")
        ],
        *[
            (arguments.size, text, f"{text!r} is too little, or no number")
            for text in ("0", "-1", "nan", "inf", "long")
        ],
        *[
            (arguments.seeds, text, f"{text!r} is no seed: give one such as 5, or")
            for text in ("1-", "-1", "abc", "", "1-2-3")
        ],
        (arguments.seeds, "5-2", "'5-2' ends before it begins: give 2-5"),
        (arguments.driver, "tests.driver", "'tests.driver' names no driver: give module and class"),
        (arguments.driver, "nosuch.driver:X", "there is no module nosuch: check the name"),
        (
            arguments.driver,
            "tests.smallest_shop.nosuch:X",
            "there is no module tests.smallest_shop.nosuch",
        ),
        (
            arguments.driver,
            "tests.smallest_shop.driver:X",
            "tests.smallest_shop.driver has no class X: give one of SmallestShopDriver",
        ),
        (
            arguments.driver,
            "tests.smallest_shop.driver:Decimal",
            "Decimal of tests.smallest_shop.driver is no driver: give one of SmallestShopDriver",
        ),
        (
            arguments.driver,
            "tests.smallest_shop.driver:ShopDriver",
            "ShopDriver of tests.smallest_shop.driver is no driver: give one of SmallestShop",
        ),
        (
            arguments.driver,
            "tests.smallest_shop.driver:annotations",
            "annotations of tests.smallest_shop.driver is no driver: give one of ",
        ),
        (
            arguments.driver,
            "tests.smallest_shop.models:X",
            "has no class X: write a subclass of tillgate.testing.driver.ShopDriver there",
        ),
    ],
)
def test_nonsense_is_refused_with_remedy(
    read: Callable[[str], object],
    text: str,
    said: str,
) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        read(text)
    assert said in str(caught.value)


def test_results_need_a_file_not_folder(tmp_path: Path) -> None:
    with pytest.raises(
        argparse.ArgumentTypeError,
        match=r"is a folder: name a file in it, such as .*results\.jsonl",
    ):
        arguments.results_file(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(
        argparse.ArgumentTypeError,
        match=r"cannot be made: .*/file is a file, and no folder",
    ):
        arguments.results_file(str(tmp_path / "file" / "results.jsonl"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (None, "name those of your tests in DJANGO_SETTINGS_MODULE, such as tests.settings"),
        ("nosuch.settings", "DJANGO_SETTINGS_MODULE is nosuch.settings: there is no module nosuch"),
    ],
)
def test_settings_that_are_not_there_are_named(
    name: str | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    if name:
        monkeypatch.setenv("DJANGO_SETTINGS_MODULE", name)
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        arguments.driver("tests.smallest_shop.driver:SmallestShopDriver")
    assert said in str(caught.value)


def test_failing_import_is_shown_unchanged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver module that lacks another module raises the original error."""
    (tmp_path / "a_driver_of_mine.py").write_text("import nosuch\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'nosuch'"):
        arguments.driver("a_driver_of_mine:Driver")


def test_numbers_are_told_as_ranges_of_seeds() -> None:
    assert arguments.ranges([7, 2, 1, 3]) == "1-3, 7"
    assert arguments.ranges([]) == ""


def test_ctrl_c_ends_with_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit status is that of an interrupt."""
    with pytest.raises(SystemExit) as ended, arguments.ended_by_ctrl_c():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err == "\ninterrupted; what --results has noted stays\n"


def test_progress_suits_terminal_and_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A terminal sees one line that changes, and a file gets a line now and then."""

    def said(*, is_terminal: bool) -> str:
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(time, "monotonic", iter([0.0, 1.0, 11.0, 11.0]).__next__)
        show = Progress()
        show("one")
        show("two")
        show.clear()
        return stream.getvalue()

    assert said(is_terminal=True) == "\r\033[Kone\r\033[Ktwo\r\033[K"
    assert said(is_terminal=False) == "two\n"


# The simulator's ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--seed 5-2", "argument --seed: '5-2' ends before it begins"),
        ("--payments 0", "argument --payments: '0' is no count"),
        ("--outage -1", "argument --outage: '-1' is too little"),
        (
            "--without network,gremlins",
            "argument --without: no kind of fault is named gremlins; the kinds are network, "
            "notifications, ",
        ),
        (
            "--payments 5 --only 99",
            "argument --only: there is no order 99: with --payments 5 give 0 to 4",
        ),
        ("--results x --only 1", "argument --results: a run that was made easier is not noted"),
        (
            "--results x --without network",
            "argument --results: a run that was made easier is not noted",
        ),
        ("--results .", "argument --results: '.' is a folder"),
        ("--exhaust --outage 1", "argument --outage: not allowed with argument --exhaust"),
    ],
)
def test_the_simulator_refuses_nonsense(
    given: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        simulation(["--driver", "tests.smallest_shop.driver:SmallestShopDriver", *given.split()])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_worlds_hash_ignores_playing_order() -> None:
    assert together(["0f", "f0"]) == together(["f0", "0f"]) == f"{0xFF:064x}"
    assert together([f"{5:064x}"]) == f"{5:064x}"


# The commit ---------------------------------------------------------------------------------------


def test_documentation_change_keeps_proven_commit(tmp_path: Path) -> None:
    """Editing only the documentation does not change the code that is proven."""

    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    files = [
        tmp_path / name for name in ("code.py", "README.md", "docs/reference/x.json", "src/deep.md")
    ]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("old", "utf-8")
    git("init")
    git("add", ".")
    git("commit", "--message", "all")
    for file in files[1:]:
        file.write_text("new", "utf-8")
    assert len(report.source_commit(tmp_path)) == len(report.source_commit(tmp_path / "src")) == 12
    files[0].write_text("new", "utf-8")
    assert report.source_commit(tmp_path / "src").endswith(" and uncommitted changes")
