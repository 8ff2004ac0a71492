"""The installation says how far it is, and shows pip's last words when it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pip_progress

SCRIPT = Path(__file__).parents[1] / "pip_progress.py"


@pytest.mark.parametrize(
    ("said", "written", "stage"),
    [
        ("", 0, "0 of about 3 packages fetched"),
        ("Obtaining file:///x\nCollecting a\n  Downloading a.whl\nProcessing /b.whl\n", 0, "3 of about 3 packages fetched"),
        ("Collecting a\n" * 4, 0, "4 of about 4 packages fetched"),
        ("Collecting a\nInstalling collected packages: a, b, c\n", 2, "2 of 3 packages installed"),
    ],
)
def test_the_stage_is_read_from_pips_own_output(said: str, written: int, stage: str) -> None:
    assert pip_progress.stage(said, 3, written) == stage


def test_a_failed_installation_shows_pips_last_words_and_its_status(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True, timeout=120)
    command = [str(tmp_path / "bin" / "python"), str(SCRIPT), "1", "--no-index", "no-such-package-anywhere"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 1
    assert "No matching distribution found for no-such-package-anywhere" in ran.stdout
    assert "ERROR" in (tmp_path / "install.log").read_text("utf-8")
