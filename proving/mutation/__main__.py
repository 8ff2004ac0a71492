"""`python -m proving mutation`: do the tests fail for a change of the code? mutmut changes a copy
in one place, and runs the tests that come by.

The results stay in `mutants/`, so a run may be stopped and started again: it tries again only
functions that have changed since, and mutants that had survived. Survivors must be argued in
proving/mutation/survivors.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from proving.mutation.survivors import DOCUMENT, Survivor, argued, described, equivalent
from tillgate.testing.report import source_commit

ROOT: Final = Path(__file__).parents[2]
WANTED: Final = 0.95
_KILLED: Final = ("killed", "timeout", "segfault")
_UNKNOWN: Final = ("not checked", "check was interrupted by user")


@dataclass
class Module:
    """The outcome of one module's mutants."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    survivors: list[tuple[str, Survivor]] = field(default_factory=list)
    """Its name in mutmut, and its change."""

    @property
    def is_tried(self) -> bool:
        """Whether all of its mutants were tried."""
        return not any(self.counts[status] for status in _UNKNOWN)

    @property
    def noticed(self) -> int:
        """How many of its mutants were noticed."""
        return sum(self.counts[status] for status in _KILLED)

    def equivalent(self, document: str) -> int:
        """Return how many of its survivors act like the code, by the document."""
        known = set(equivalent(document))
        return sum(survivor in known for _, survivor in self.survivors)

    def score(self, document: str) -> float:
        """Return how many of the mutants that can be noticed were noticed, from 0 to 1."""
        return self.noticed / (self.counts.total() - self.equivalent(document))


def main() -> int:
    """Try the mutants, and print the outcome; 1 when a survivor has no argument, or too many
    survive.
    """
    parser = argparse.ArgumentParser(
        "python -m proving mutation",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument(
        "--only",
        default="",
        help="try these, again if they were tried, and no others: 'tillgate.wire.signing.*'",
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="append a line of JSON for each module that was tried whole",
    )
    given = parser.parse_args()
    os.chdir(ROOT)  # where mutmut finds its settings and keeps its copy
    before = [name for module in _modules() for name, _ in module.survivors]
    _mutmut(*given.only.split())
    if before and not given.only:
        _mutmut(*before)
    modules, document = list(_modules()), DOCUMENT.read_text("utf-8")
    for module in modules:
        said = f"{module.score(document):6.1%}" if module.is_tried else "stopped"
        _say(
            f"{said}  {module.name}: "
            f"{', '.join(f'{count} {status}' for status, count in module.counts.most_common())}",
        )
    tried = [module for module in modules if module.is_tried]
    if given.results:
        _note(given.results, tried, document)
    return _judge(tried, document)


def _mutmut(*names: str) -> None:
    environment = {**os.environ, "TILLGATE_TEST_DATABASE": "sqlite"}
    environment.setdefault("TILLGATE_TEST_NAME", "tillgate_mutation")
    command = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", "1", *names]
    subprocess.run(command, env=environment, check=True)


def _modules() -> Iterator[Module]:
    """Yield the results so far of the modules that have mutants."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    for path in sorted(walk_mutatable_files()):
        mutants: Any = SourceFileMutationData(path=path)
        mutants.load()
        module = Module(".".join(path.with_suffix("").parts[1:]))
        for name, exit_code in mutants.exit_code_by_key.items():
            status = status_by_exit_code[exit_code]
            module.counts[status] += 1
            if status not in (*_KILLED, *_UNKNOWN):
                module.survivors.append(
                    (name, described(name, get_diff_for_mutant(name, path=path))),
                )
        if module.counts:
            yield module


def _note(file: Path, modules: list[Module], document: str) -> None:
    versions = {
        "python": platform.python_version(),
        "django": version("django"),
        "mutmut": version("mutmut"),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        for module in modules:
            counts = {
                "killed": module.counts["killed"] + module.counts["segfault"],
                "timeouts": module.counts["timeout"],
            }
            line = {
                "commit": source_commit(ROOT),
                **versions,
                "module": module.name,
                "mutants": module.counts.total(),
                **counts,
            }
            survived = {
                "survived": len(module.survivors),
                "equivalent": module.equivalent(document),
            }
            lines.write(json.dumps({**line, **survived}) + "\n")


def _judge(modules: list[Module], document: str) -> int:
    known = set(argued(document))
    found = {survivor for module in modules for _, survivor in module.survivors}
    missing = sorted(found - known)
    ours = tuple(f"{module.name.removeprefix('tillgate.')}." for module in modules)
    gone = sorted(survivor for survivor in known - found if survivor.function.startswith(ours))
    for survivors, what in (
        (missing, "survive without an argument"),
        (gone, "are argued and do not survive"),
    ):
        if survivors:
            _say(
                "\n".join(
                    [
                        "",
                        f"{len(survivors)} mutants {what} in {DOCUMENT.relative_to(ROOT)}:",
                        *map(str, survivors),
                    ],
                ),
            )
    poor = [module.name for module in modules if module.score(document) < WANTED]
    if poor:
        _say(f"\nLess than {WANTED:.0%}: {', '.join(poor)}")
    return 1 if missing or gone or poor else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
