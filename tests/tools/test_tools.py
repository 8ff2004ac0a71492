"""The Makefile, the sessions of nox and the proofs: each name leads to something that exists."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import noxfile
from proving import __main__ as proving

ROOT = Path(__file__).parents[2]
SESSIONS = set(
    re.findall(r"^def (\w+)\(session: nox", (ROOT / "noxfile.py").read_text("utf-8"), re.MULTILINE),
)
WORKFLOWS = [
    *(ROOT / ".github/workflows").iterdir(),
    ROOT / "docs/how-to/plugin-workflow.yml",
]
LISTS = {
    "long": noxfile.LONG,
    "provers": noxfile.PROVERS,
    "anywhere": noxfile.ANYWHERE,
    "postgresql": noxfile.ON_POSTGRESQL,
}


def test_make_has_eight_documented_targets() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [phony] = re.findall(r"^\.PHONY: (.+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert [line.split()[0] for line in shown.splitlines()] == phony.split()
    assert len(phony.split()) == 8


@pytest.mark.parametrize(
    "paths",
    [*LISTS.values(), noxfile.ON_OTHER_PYTHONS],
    ids=[*LISTS, "pythons"],
)
def test_every_listed_path_exists(paths: tuple[str, ...]) -> None:
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash(workflow: Path) -> None:
    """Each names its version too, for readers and Dependabot."""
    used = re.findall(r"uses: (.+)", workflow.read_text("utf-8"))
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", one)] == []


def test_dependabot_reads_every_constraints_file() -> None:
    listed = re.findall(r"^ {6}- (/.*)$", (ROOT / ".github/dependabot.yml").read_text(), re.M)
    held = {path for folder in listed for path in ROOT.glob(f"{folder.strip('/')}/*".strip("/"))}
    files = subprocess.run(
        ["git", "ls-files", "*constraints*.txt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(files) > 5
    assert [file for file in files if ROOT / file not in held] == []


def test_no_two_constraints_disagree() -> None:
    """An environment that takes both could not be built."""
    shared = _pins("constraints.txt")
    for file in ("proving/mutation/constraints.txt", "proving/fuzz/constraints.txt"):
        pins = _pins(file)
        assert {name: pins[name] for name in pins.keys() & shared.keys()} == {
            name: shared[name] for name in pins.keys() & shared.keys()
        }, file


def _pins(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text("utf-8").lower().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and line[0] != "#")


@pytest.mark.parametrize(
    "script",
    [".ci/run", *(str(path.relative_to(ROOT)) for path in (ROOT / ".github/workflows").iterdir())],
)
def test_ci_runs_sessions_that_exist(script: str) -> None:
    text = (ROOT / script).read_text("utf-8")
    named = re.findall(r"nox (?:--install-only )?-s ((?:[\w.-]+ ?|\"[\w()]+\" ?)+)", text)
    assert {
        re.split(r"[(-]", word.strip('"'))[0] for words in named for word in words.split()
    } <= SESSIONS
    assert set(re.findall(r"proving ([a-z-]+)", text)) <= set(proving.PROOFS)


@pytest.mark.parametrize("name", proving.PROOFS)
def test_every_proof_has_a_module(name: str) -> None:
    assert importlib.util.find_spec(proving.PROOFS[name].module)


@pytest.mark.parametrize(("arguments", "status"), [((), 0), (("--help",), 0), (("nonsense",), 2)])
def test_proofs_are_listed(arguments: tuple[str, ...], status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proving", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert [name for name in (*proving.PROOFS, "all") if f"  {name} " not in done.stderr] == []


def test_options_follow_the_usual_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[list[str], str]] = []

    def record(command: list[str], **given: dict[str, str]) -> subprocess.CompletedProcess[str]:
        said.append((command, given["env"]["TILLGATE_TEST_DATABASE"]))
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", record)
    monkeypatch.setenv("TILLGATE_TEST_DATABASE", "mariadb")
    assert proving.main(["kill-lines", "--sample", "4"]) == 3
    [(command, database)] = said
    assert (command[-2:], database) == (["--sample", "4"], "mariadb")
    monkeypatch.delenv("TILLGATE_TEST_DATABASE")
    proving.main(["kill-lines"])
    assert sorted(database for _, database in said[1:]) == ["mariadb", "postgresql", "sqlite"]
