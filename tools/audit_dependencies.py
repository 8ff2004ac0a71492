"""`python tools/audit_dependencies.py`: have pip-audit look for known holes in the installed
packages, and say when it could not look.

pip-audit counts a package that it cannot find as no fault, so on a machine that reaches a mirror
without its data it would report that all is well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

__all__ = ["judge"]

NO_DATA = (
    "The dependencies were not audited: pip-audit's data cannot be reached from here. Run "
    "this where it can be."
)


def judge(report: str, errors: str) -> tuple[int, list[str]]:
    """Return an exit status and the lines with the meaning of pip-audit's report: 1 only when it
    knows of a hole.
    """
    try:
        dependencies: list[dict[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return 0, [NO_DATA, *errors.strip().splitlines()[-1:]]
    audited = [one for one in dependencies if "skip_reason" not in one]
    holes = [
        f"{one['name']} {one['version']}: {hole['id']}, fixed in "
        f"{', '.join(hole['fix_versions']) or 'no version'}"
        for one in audited
        for hole in one["vulns"]
    ]
    if not audited:
        return 0, [NO_DATA]
    skipped = len(dependencies) - len(audited)
    return int(bool(holes)), [
        *holes,
        f"{len(audited)} dependencies audited, {len(holes)} known holes, {skipped} not found in "
        "the data",
    ]


def main(pip_audit: str, folder: str) -> int:
    """Audit the packages in a folder."""
    command = [pip_audit, "--format", "json", "--progress-spinner", "off", "--path", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    status, lines = judge(done.stdout, done.stderr)
    sys.stdout.write("\n".join([*lines, ""]))
    return status


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1])), sysconfig.get_path("purelib")))
