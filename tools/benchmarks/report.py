"""The page: measurements, contenders, commands and machine."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

from tools.benchmarks import databases
from tools.benchmarks.measure import Effort, Ratio
from tools.benchmarks.processes import PEER

__all__ = ["Figure", "Section", "page"]

_PACKAGES = (
    "tillgate",
    "pydantic",
    "pydantic-core",
    "pluggy",
    "httpx",
    "httpcore",
    "anyio",
    "sniffio",  # httpcore looks for it in every request, and looking in vain is slow
    "aiohttp",
    "yarl",
    "yuansfer",
    "requests",
    "stripe",
    "Django",
    "gunicorn",
    "psycopg",
    "PyMySQL",
)
_PEERS_PACKAGES: Final = ("dj-stripe", "stripe", "Django", "gunicorn", "psycopg", "PyMySQL")
_BAR_WIDTH: Final = 44
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: the comparison, its result, the target and whether it was reached."""

    what: str
    measured: str
    target: str = "-"
    verdict: str = "-"

    @classmethod
    def cost(cls, what: str, ratio: Ratio, at_most: float | None = None) -> Figure:
        """Say how many times the time of another contender ours takes: the less the better."""
        if at_most is None:
            return cls(what, _shown(ratio))
        return cls(what, _shown(ratio), f"at most {at_most:g}x", _verdict(ratio.median <= at_most))

    @classmethod
    def speed(cls, what: str, ratio: Ratio, at_least: float | None = None) -> Figure:
        """Say how many times as fast as another contender ours is: the more the better."""
        if at_least is None:
            return cls(what, _shown(ratio))
        return cls(
            what,
            _shown(ratio),
            f"at least {at_least:g}x",
            _verdict(ratio.median >= at_least),
        )

    @classmethod
    def missing(cls, what: str, detail: str, target: str = "-") -> Figure:
        """Return a figure that could not be measured, with the reason."""
        return cls(what, f"not measured: {detail}", target, "-")

    @classmethod
    def fact(cls, what: str, measured: str, wanted: str) -> Figure:
        """Say something that is so or not, where a ratio would make no sense."""
        return cls(what, measured, wanted, _verdict(measured == wanted))


def _shown(ratio: Ratio) -> str:
    return f"**{ratio.median:.2f}x** ({ratio.least:.2f} to {ratio.greatest:.2f})"


def _verdict(met: bool) -> str:  # noqa: FBT001  # the only argument
    return "met" if met else "**not met**"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The results of one benchmark module. `bars` are drawn in their order, in `unit`;
    `repetitions` says how often each part ran.
    """

    name: str
    title: str
    about: str
    repetitions: str
    figures: Sequence[Figure]
    bars: Mapping[str, float]
    unit: str

    @property
    def generator(self) -> str:
        """The command that measures this section again."""
        return f"python -m tools.benchmarks {self.name}"


def page(sections: Sequence[Section], effort: Effort, *, drawn: bool = False) -> str:
    """Return the whole page as Markdown; with bars of the absolute figures for a terminal, since
    only the ratios are worth keeping.
    """
    lines = [
        "# Performance",
        "",
        "Written by `python -m tools.benchmarks` (`nox -s bench`); do not edit.",
        *(
            ["", "**A quick run, which only proves that the benchmarks work. Do not quote it.**"]
            if effort.quick
            else []
        ),
        "",
        "Every figure without a unit is a ratio within one run. The contenders took turns on one "
        "machine, in a new order each round.",
        "The table shows the median of the rounds, and the least and the greatest. The server "
        "answers canned bytes on 127.0.0.1",
        "(`tools/benchmarks/server.py`), so the figures show the clients.",
        "",
        "| compared | ratio | target |",
        "|---|---|---|",
    ]
    lines += [
        f"| {figure.what} | {figure.measured} | {_judged(figure)} |"
        for section in sections
        for figure in section.figures
    ]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.about, ""]
        if drawn:
            lines += ["```", *_drawn(section), "```", ""]
        lines += [f"Generator: `{section.generator}`. {section.repetitions}"]
    lines += [
        "",
        "## The run",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in _circumstances(effort).items()),
    ]
    return "\n".join(lines) + "\n"


def _judged(figure: Figure) -> str:
    return figure.target if figure.verdict == "-" else f"{figure.target}: {figure.verdict}"


def _drawn(section: Section) -> list[str]:
    if not section.bars:
        return ["nothing was measured"]
    widest = max(map(len, section.bars))
    most = max(section.bars.values())
    values = {
        name: f"{value:,.2f}" if most < 100 else f"{value:,.0f}"
        for name, value in section.bars.items()
    }
    room = max(map(len, values.values()))
    lines = [
        f"{name:{widest}}  {values[name]:>{room}}  {_bar(value / most)}"
        for name, value in section.bars.items()
    ]
    return [section.unit, *lines]


def _bar(share: float) -> str:
    whole, eighths = divmod(max(1, round(share * _BAR_WIDTH * 8)), 8)
    return ("█" * whole + _EIGHTHS[eighths]).rstrip()


def _circumstances(effort: Effort) -> dict[str, str]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "seed of the order of turns": str(effort.seed),
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores, load "
        f"{' '.join(f'{load:.2f}' for load in os.getloadavg())} at the end",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}, asyncio's own "
        "event loop",
        **databases.versions(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        "packages where dj-stripe runs": ", ".join(
            f"{name} {version}" for name, version in _peers_versions().items()
        )
        or "none",
    }


def _peers_versions() -> dict[str, str]:
    """Return the versions in the environment that dj-stripe has for itself, if there is one."""
    packages = [str(folder) for folder in PEER.parent.glob("lib/python*/site-packages")]
    held = (
        {each.name: each.version for each in metadata.distributions(path=packages)}
        if packages
        else {}
    )
    return {name: held[name] for name in _PEERS_PACKAGES if name in held}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    root = Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--", "src", "tools/benchmarks/*.py")
    except (OSError, subprocess.CalledProcessError):
        return "unknown: not run from a git checkout"
    return (
        f"{commit}, with changes to src or the benchmarks that are not committed"
        if changed
        else commit
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown CPU"
