"""A shop that forked Oscar's checkout, and knows nothing of Tillgate, keeps its own way to pay
beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_forked_checkout_keeps_cash_on_delivery() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/forked_shop.py",
    ]
    environment = os.environ | {
        "TILLGATE_TEST_FORK": "1",
        "TILLGATE_TEST_NAME": os.environ.get("TILLGATE_TEST_NAME", "tillgate_oscar") + "_fork",
    }
    run = subprocess.run(
        command,
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout
