"""The audit of the dependencies reports its knowledge, and its lack of knowledge."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools.audit_dependencies import NO_DATA, judge

SOUND: dict[str, Any] = {"name": "sound", "version": "1.0", "vulns": []}
HOLED: dict[str, Any] = {
    "name": "holed",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}],
}
SKIPPED: dict[str, Any] = {"name": "ours", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("dependencies", "status", "said"),
    [
        ([SOUND], 0, "1 dependencies audited, 0 known holes, 0 not found in the data"),
        ([SOUND, HOLED, SKIPPED], 1, "holed 1.0: PYSEC-1, fixed in 1.1"),
        ([SKIPPED, SKIPPED], 0, NO_DATA),
        ([], 0, NO_DATA),
    ],
)
def test_vulnerability_fails_audit(
    dependencies: list[Any],
    status: int,
    said: str,
) -> None:
    """A package that was not found is not called sound."""
    came, lines = judge(json.dumps({"dependencies": dependencies}), "")
    assert came == status
    assert said in lines


@pytest.mark.parametrize("report", ["", "[]", "{}", "Traceback"])
def test_missing_report_explains_skipped_audit(report: str) -> None:
    assert judge(report, "much\nConnectionError: no route") == (
        0,
        [NO_DATA, "ConnectionError: no route"],
    )
