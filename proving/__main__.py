"""Runs a long proof by its name: `python -m proving simulate --seed 7`. `--help` after a name lists
its options.

`python -m proving all` runs them one after the other, for hours, and writes proving/reliability.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = "var/proofs"
_WORLD: Final = {"DJANGO_SETTINGS_MODULE": "proving.project"}
_TELLING: Final = ("--driver", "tests.smallest_shop.telling:TellingDriver")


@dataclass(frozen=True, slots=True)
class Proof:
    """A module, its usual arguments, which those of the command line follow, and the promise that
    it proves.
    """

    about: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    session: str = ""
    """The nox session with the environment that it needs, if not the usual one."""

    databases: tuple[str, ...] = ()
    """The databases that it runs on beside one another, unless TILLGATE_TEST_DATABASE names one."""


PROOFS: Final[Mapping[str, Proof]] = {
    "simulate": Proof(
        "play weeks of a shop in a world where everything goes wrong: --seed 1-100, --payments "
        "1000",
        "proving.simulation",
        (*_TELLING, "--seed", "1", "--payments", "1000"),
        _WORLD,
    ),
    "mutants": Proof(
        "break shop and core on purpose, and count the payments until the simulator notices",
        "proving.biting",
        environment={**_WORLD, "TILLGATE_TEST_DATABASE": "sqlite"},
    ),
    "exhaust": Proof(
        "try everything that can happen to one order, in every order: --exhaust "
        "payments=1,crashes=0 for less",
        "proving.simulation",
        ("--driver", "tests.smallest_shop.driver:SmallestShopDriver", "--exhaust", ""),
        {**_WORLD, "TILLGATE_TEST_DATABASE": "sqlite"},
    ),
    "outage": Proof(
        "take the gateway away for a month while 1,000 payments are open: --outage 30, --payments "
        "1000",
        "proving.simulation",
        (*_TELLING, "--outage", "30", "--seed", "1", "--payments", "1000"),
        _WORLD,
    ),
    "chaos": Proof(
        "sell while kill -9 hits the shop's processes and its database: --minutes 1, --shoppers 3",
        "proving.chaos",
        ("--minutes", "1", "--seed", "1", "--shoppers", "3"),
    ),
    "storm": Proof(
        "send many copies of each notification at once: --payments 1000, --seconds 60, --databases",
        "proving.storm",
        ("--payments", "1000", "--seconds", "60"),
    ),
    "kill-lines": Proof(
        "kill a process at every line of its work: --sample 20 of each act, --seed 1, --part 1/2",
        "proving.killing",
        (*_TELLING, "--package", "tests.smallest_shop"),
        {"DJANGO_SETTINGS_MODULE": "tests.django.project", "TILLGATE_TEST_NAME": "tillgate_killed"},
        databases=("sqlite", "postgresql", "mariadb"),
    ),
    "fuzz": Proof(
        "draw hostile input for every address and parser: --inputs 20000, --seed 1, --target "
        "status",
        "proving.fuzz",
        ("--inputs", "20000", "--seed", "1"),
    ),
    "fuzz-guided": Proof(
        'lead the readers by their own lines, with atheris: "notifications, read" -runs=100000',
        "proving.fuzz.guided",
        session="fuzz",
    ),
    "mutation": Proof(
        "change the code in one place at a time, and see whether a test notices: --only",
        "proving.mutation",
        session="mutation",
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run the proof that the first argument names, and return its exit status."""
    name, *options = arguments or ["--help"]
    if name in ("-h", "--help") or name not in (*PROOFS, "all"):
        known = [
            *PROOFS.items(),
            ("all", Proof("run all of them for hours, and write proving/reliability.md", "")),
        ]
        lines = "\n".join(f"  {key:<12} {proof.about}" for key, proof in known)
        sys.stderr.write(f"{__doc__}\n{lines}\n")
        return 0 if name in ("-h", "--help") else 2
    return _all() if name == "all" else run(name, options)


def run(name: str, options: Sequence[str], **environment: str) -> int:
    """Run one proof, and return its exit status."""
    proof = PROOFS[name]
    surroundings = {**proof.environment, **os.environ, **environment}
    if proof.databases and "TILLGATE_TEST_DATABASE" not in surroundings:
        return _beside(
            [_call(run, name, options, TILLGATE_TEST_DATABASE=one) for one in proof.databases],
        )
    command = [_python(proof), "-m", proof.module, *proof.arguments, *options]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=surroundings,
        check=False,
    ).returncode  # our own modules


def _python(proof: Proof) -> str:
    own = ROOT / ".nox" / proof.session / "bin/python"
    if not proof.session:
        return sys.executable
    if not own.exists():
        raise SystemExit(f"this proof needs an environment of its own: nox -s {proof.session}")
    return str(own)


def _call(work: Callable[..., int], *given: object, **named: str) -> Callable[[], int]:
    return lambda: work(*given, **named)


def _beside(calls: Sequence[Callable[[], int]]) -> int:
    with ThreadPoolExecutor(len(calls)) as pool:
        statuses: list[int] = list(pool.map(lambda call: call(), calls))
    return max(statuses)


def _steps() -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield the steps of `all`. Each proof goes on where its results end."""
    kept = {
        name: ("--results", f"{RESULTS}/{name}.jsonl")
        for name in ("simulation", "mutants", "chaos", "storm", "fuzz")
    }
    tests = (
        "tests/proving",
        "tests/tools/test_benchmarks.py",
        "tests/django/proofs/test_killing.py",
    )
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-m",
        "provers",
        *tests,
    ]
    played = [
        _call(run, "simulate", ("--seed", seeds, "--payments", "840", *kept["simulation"]))
        for seeds in ("1-50", "51-100")
    ]
    databases = [
        _call(
            run,
            "simulate",
            ("--seed", "1-7", "--payments", "840", *kept["simulation"]),
            TILLGATE_TEST_DATABASE=one,
        )
        for one in ("postgresql", "mariadb")
    ]
    yield (
        "the tests of the proofs themselves",
        lambda: subprocess.run(pytest, cwd=ROOT, check=False).returncode,
    )
    yield "60,000 payments on SQLite", lambda: _beside(played)
    yield "4,000 on PostgreSQL, and on MariaDB", lambda: _beside(databases)
    yield "every mutant", _call(run, "mutants", kept["mutants"])
    yield "a sample of the lines to kill at", _call(run, "kill-lines", ("--sample", "6"))
    yield "chaos", _call(run, "chaos", ("--minutes", "5", *kept["chaos"]))
    yield "the storm", _call(run, "storm", ("--peer-payments", "100", *kept["storm"]))
    yield "hostile input", _call(run, "fuzz", ("--inputs", "200000", *kept["fuzz"]))


def _all() -> int:
    steps = list(_steps())
    for number, (about, work) in enumerate(steps, 1):
        sys.stdout.write(f"[{number}/{len(steps)}] {about}\n")
        sys.stdout.flush()
        if status := work():
            return status
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    command = [sys.executable, "-m", "tools.docgen", "reliability", "--proven", head.stdout.strip()]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
