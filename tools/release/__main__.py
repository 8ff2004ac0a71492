"""`make release` builds all archives into dist/, checks them, tries them in clean environments, and
lists what a person may publish.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.release import trials
from tools.release.archives import ROOT, build, distributions, faults


def main() -> int:
    """Return 0 when everything is as it should be."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="where the archives go")
    parser.add_argument(
        "--only",
        nargs="*",
        choices=[*trials.TRIALS, "nothing"],
        help="the trials; all unless named",
    )
    parser.add_argument(
        "--home",
        default="",
        help="the public address of the repository, to which the packages' pages link",
    )
    options = parser.parse_args()
    home = options.home.rstrip("/")
    if home and not home.startswith("https://"):
        parser.error("HOME_URL must be an https address, such as https://github.com/OWNER/tillgate")
    into, ours = options.into.resolve(), distributions()
    versions = {one.name: one.version for one in ours}
    if len(set(versions.values())) > 1:
        return _failed([f"the distributions have unequal versions: {versions}"])
    into.mkdir(parents=True, exist_ok=True)
    for old in into.iterdir():
        if old.name.startswith("tillgate") and old.name.endswith((".whl", ".tar.gz")):
            old.unlink()
    for one in ours:
        _say(f"building {one.name} {one.version}")
        build(one, into, home)
    archives = [path for one in ours for path in (one.wheel(into), one.sdist(into))]
    _say("checking the archives")
    found = [f"{one.name}: {fault}" for one in ours for fault in faults(one, into, home)]
    wheels = [str(path) for path in archives if path.suffix == ".whl"]
    ignored = ["--ignore", "W004"]  # migrations begin with a digit
    for command in (
        ["twine", "check", "--strict", *map(str, archives)],
        ["check_wheel_contents", *ignored, *wheels],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        found += [done.stdout + done.stderr] if done.returncode else []
    if found:
        return _failed(found)
    for name, trial in trials.TRIALS.items():
        if options.only and name not in options.only:
            continue
        with tempfile.TemporaryDirectory(prefix=f"tillgate-release-{name}-") as folder:
            try:
                for told in trial(trials.Place(Path(folder).resolve(), into)):
                    _say(f"{name}: {told}")
            except trials.TrialProblem as problem:
                return _failed([f"{name}: {problem}"])
    if not home:
        _say(
            "\nthe packages' pages have no links and pictures: "
            "HOME_URL=https://github.com/OWNER/tillgate would give them",
        )
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    _say(f"\nto publish, from commit {commit}:")
    for path in archives:
        _say(
            f"{path.stat().st_size:>9,} bytes  sha256 "
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}",
        )
    _say("\nNothing was published: CONTRIBUTING.md says how a person does it.")
    return 0


def _failed(found: list[str]) -> int:
    _say("\n".join(["not fit to be published:", *found]))
    return 1


def _say(text: str) -> None:
    print(text, flush=True)  # this is a program that prints


if __name__ == "__main__":
    sys.exit(main())
