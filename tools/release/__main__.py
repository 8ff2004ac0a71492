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
from tools.release.archives import ROOT, Distribution, build, distributions, faults


def main() -> int:
    """Return 0 when everything is as it should be."""
    options = _options()
    home = options.home.rstrip("/")
    into, ours = options.into.resolve(), distributions()
    archives = [path for one in ours for path in (one.wheel(into), one.sdist(into))]
    are_there = all(path.exists() for path in archives)
    if are_there and options.only and "nothing" not in options.only:
        _say(f"trying what lies in {into}; without TRIALS everything is built anew")
    elif found := _built(ours, into, home):
        return _failed(found)
    chosen = [name for name in trials.TRIALS if not options.only or name in options.only]
    if failed := [name for name in chosen if not _held(name, into, options.patience)]:
        return _failed([f'once it works: make release TRIALS="{" ".join(failed)}"'])
    if not home:
        _say(
            "\nthe packages' pages have no links and pictures: "
            "HOME_URL=https://github.com/OWNER/tillgate would give them",
        )
    if options.only:
        _say("\nonly a release with all trials lists what to publish")
    else:
        _tell(archives)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="where the archives go")
    parser.add_argument(
        "--only",
        nargs="*",
        choices=[*trials.TRIALS, "nothing"],
        help="the trials, of the archives that are there; all, of new archives, unless named; "
        "`nothing` builds alone",
    )
    parser.add_argument(
        "--home",
        default="",
        help="the public address of the repository, to which the packages' pages link",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        help="how many times as long a trial waits, on a busy machine",
    )
    options = parser.parse_args()
    if options.home and not options.home.startswith("https://"):
        parser.error("HOME_URL must be an https address, such as https://github.com/OWNER/tillgate")
    return options


def _built(ours: list[Distribution], into: Path, home: str) -> list[str]:
    """Build and check the archives, and return their faults."""
    versions = {one.name: one.version for one in ours}
    if len(set(versions.values())) > 1:
        return [f"the distributions have unequal versions: {versions}"]
    into.mkdir(parents=True, exist_ok=True)
    for old in into.iterdir():
        if old.name.startswith("tillgate") and old.name.endswith((".whl", ".tar.gz")):
            old.unlink()
    for one in ours:
        _say(f"building {one.name} {one.version}")
        build(one, into, home)
    _say("checking the archives")
    found = [f"{one.name}: {fault}" for one in ours for fault in faults(one, into, home)]
    return found + _checked([path for one in ours for path in (one.wheel(into), one.sdist(into))])


def _checked(archives: list[Path]) -> list[str]:
    """Return what twine and check-wheel-contents find in the archives."""
    # migrations begin with a digit, and two templates may have the same text
    ignored = ["--ignore", "W002,W004"]
    wheels = [str(path) for path in archives if path.suffix == ".whl"]
    found = []
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
    return found


def _held(name: str, archives: Path, patience: float) -> bool:
    """Run a trial, and tell whether everything in it worked."""
    with tempfile.TemporaryDirectory(prefix=f"tillgate-release-{name}-") as folder:
        place = trials.Place(Path(folder).resolve(), archives, trials.Limits().times(patience))
        try:
            for told in trials.TRIALS[name](place):
                _say(f"{name}: {told}")
        except trials.TrialProblem as problem:
            _say(f"{name}: {problem}")
            return False
    return True


def _tell(archives: list[Path]) -> None:
    """List what a person may publish."""
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


def _failed(found: list[str]) -> int:
    _say("\n".join(["not fit to be published:", *found]))
    return 1


def _say(text: str) -> None:
    print(text, flush=True)  # this is a program that prints


if __name__ == "__main__":
    sys.exit(main())
