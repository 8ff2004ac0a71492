"""Runs `pip install` and shows how far it is: in one line on a terminal, else a line now and then. Needs Python and pip alone.

    python pip_progress.py ABOUT ARGUMENTS...

ABOUT is the number of packages that it usually installs, or 0. The whole output is in the environment's install.log; after an error its
last lines are shown.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Final

_LAST_WORDS: Final = 30
_QUIET_SECONDS: Final = 15.0
_FOUND: Final = re.compile(r"^(?:Collecting|Processing|Obtaining) ", re.MULTILINE)
_WRITING: Final = re.compile(r"^Installing collected packages: (.+)", re.MULTILINE)


def main(about: int, arguments: list[str]) -> int:
    """Run pip with progress, and return its exit status."""
    log, packages, began = Path(sys.prefix, "install.log"), Path(sysconfig.get_path("purelib")), time.monotonic()
    before, shown_at, terminal = _count(packages), began, sys.stdout.isatty()
    with log.open("w", encoding="utf-8") as output:
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *arguments]
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603  # the Makefile's own command
    while child.poll() is None:
        time.sleep(0.5)
        said, now = stage(log.read_text("utf-8", errors="replace"), about, _count(packages) - before), time.monotonic()
        if terminal:
            _write(f"\r\033[K  {said}, {now - began:.0f} s")
        elif now - shown_at >= _QUIET_SECONDS:
            shown_at = now
            _write(f"  {said}, {now - began:.0f} s\n")
    _write("\r\033[K" if terminal else "")
    if child.returncode:
        lines = log.read_text("utf-8", errors="replace").splitlines()
        _write("\n".join([*lines[-_LAST_WORDS:], f"pip could not install this; its whole output is in {log}", ""]))
    else:
        _write(f"  installed in {time.monotonic() - began:.0f} s\n")
    return child.returncode


def stage(said: str, about: int, written: int) -> str:
    """Return how far pip is, by its output and the number of packages that it has written."""
    if writing := _WRITING.search(said):
        return f"{written} of {writing[1].count(',') + 1} packages installed"
    found = len(_FOUND.findall(said))
    return f"{found} of about {max(about, found)} packages fetched" if about else f"{found} packages fetched"


def _count(packages: Path) -> int:
    return sum(1 for _ in packages.glob("*.dist-info"))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
