"""The simulator bites: a shop that is broken on purpose is noticed, one that is not noticed is said
not to be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("mutant", "status", "said"),
    [
        ("says applied and does nothing", 0, "I3: being paid took effect 0 times"),
        ("logs a payment page's key", 0, "I11: a secret or a signature is logged"),
        ("logs a payer's name", 0, "personal data: a payer's name is logged"),
        pytest.param(
            "logs the token",
            0,
            "I11: a secret or a signature is logged",
            marks=pytest.mark.provers,
        ),
        pytest.param(
            "stores a payer's name",
            0,
            "personal data: a payer's name is stored in evidence of notification",
            marks=pytest.mark.provers,
        ),
        pytest.param(
            "starts without looking at open payments",
            1,
            "not noticed",
            marks=pytest.mark.provers,
        ),
    ],
)
def test_each_mutant_is_noticed_or_reported(
    mutant: str,
    status: int,
    said: str,
    tmp_path: Path,
) -> None:
    results = tmp_path / "results.jsonl"
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "proving.project",
        "TILLGATE_TEST_DATABASE": "sqlite",
    }
    few = ["--payments", "20", "--orders", "10"]
    command = [
        sys.executable,
        "-m",
        "proving.biting",
        *few,
        "--only",
        mutant,
        "--results",
        str(results),
    ]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status, ran.stderr
    assert f"{mutant}: {said}" in ran.stdout
    [line] = map(json.loads, results.read_text("utf-8").splitlines())
    assert (line["mutant"], bool(line["noticed"])) == (mutant, status == 0)


def test_unknown_mutant_refusal_lists_known_ones() -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "proving.project",
        "TILLGATE_TEST_DATABASE": "sqlite",
    }
    command = [sys.executable, "-m", "proving.biting", "--only", "nosuchmutant"]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "argument --only: no mutant has 'nosuchmutant' in its name; they are: " in ran.stderr
    assert "logs the token" in ran.stderr
