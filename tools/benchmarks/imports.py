"""The cost of `import tillgate` in a fresh process, against its own dependencies alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from tools.benchmarks.measure import Effort, expect, take_turns
from tools.benchmarks.report import Figure, Section

__all__ = ["run"]

PROGRAMS: Final = {
    "tillgate, Gateway resolved": "import tillgate; tillgate.Gateway",
    "its dependencies": "import httpx, pluggy; from pydantic import BaseModel, SecretStr",
    "its dependencies, an httpx.Client opened": "import httpx, pluggy; from pydantic import "
    "BaseModel, SecretStr; httpx.Client()",
    "tillgate, a Gateway opened": "import tillgate\n"
    "account = tillgate.Account(base_url='https://pay.example', merchant_no='1', token='x')\n"
    "tillgate.Gateway(account)",
    "tillgate.hooks": "import tillgate.hooks",
    "python alone": "pass",
}
_UNWANTED = (
    "django",
    "tillgate.django",
    "tillgate.sandbox",
    "tillgate.cli",
    "tillgate.testing",
    "click",
    "starlette",
    "uvicorn",
    "jinja2",
)


def _cpu_seconds(program: str) -> Callable[[], float]:
    def sample() -> float:
        process = os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ)
        _, status, usage = os.wait4(process, 0)
        expect(program, os.waitstatus_to_exitcode(status), 0)
        return usage.ru_utime + usage.ru_stime

    return sample


def _unwanted_modules(program: str) -> str:
    listing = f"{program}\nimport sys\nprint('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", listing],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    found = sorted(
        {
            unwanted
            for unwanted in _UNWANTED
            for name in loaded
            if f"{name}.".startswith(f"{unwanted}.")
        },
    )
    return ", ".join(found) or "none"


def run(effort: Effort) -> Section:
    """Measure."""
    rounds = effort.pick(30, 2)
    series = take_turns(
        "imports",
        {name: _cpu_seconds(program) for name, program in PROGRAMS.items()},
        rounds,
        effort,
    )
    ours, floor = "tillgate, Gateway resolved", "its dependencies"
    return Section(
        name="imports",
        title="Importing",
        about="CPU time, user and system, of a whole fresh process. The floor is "
        f"`{PROGRAMS[floor]}`.",
        repetitions=f"{rounds} rounds of one process each.",
        figures=[
            Figure.cost(
                "`import tillgate; tillgate.Gateway`: CPU time of its dependencies",
                series.cost(ours, floor),
                at_most=1.1,
            ),
            Figure.cost(
                "`import tillgate` and a `Gateway` opened: CPU time of its dependencies and an "
                "`httpx.Client` opened",
                series.cost(
                    "tillgate, a Gateway opened",
                    "its dependencies, an httpx.Client opened",
                ),
            ),
            Figure.cost(
                "`import tillgate.hooks`: CPU time of its dependencies",
                series.cost("tillgate.hooks", floor),
            ),
            Figure.fact(
                "`import tillgate`: modules of Django, sandbox or CLI loaded",
                _unwanted_modules(PROGRAMS[ours]),
                "none",
            ),
        ],
        bars={name: series.median(name) * 1000 for name in PROGRAMS},
        unit="milliseconds of CPU for one process (shorter is better)",
    )
