"""`python -m tillgate.testing.killing --driver module:Class`: kill at every line, or at a seeded sample, and judge."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

import django

import tillgate
from tillgate.testing.killing.results import HELD, Part, Results, fingerprint, section


def main() -> None:
    """Kill as asked, show the progress, and exit with status 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tillgate.testing.killing", description=__doc__)
    parser.add_argument("--driver", required=True, metavar="MODULE:CLASS", help="the shop's driver")
    parser.add_argument("--package", action="append", default=[], metavar="NAME", help="kill at every line of this package, too")
    parser.add_argument("--sample", type=int, metavar="N", help="kill at N points of each act, drawn at random, not at all of them")
    parser.add_argument("--seed", type=int, help="of the sample; drawn from the source unless given, so that the same source has the same")
    parser.add_argument("--act", action="append", metavar="NAME", help="only this act; several are possible")
    parser.add_argument("--point", type=int, metavar="N", help="only this point, whatever is known of it")
    parser.add_argument("--part", type=_part, default=Part(), metavar="I/N", help="one of N parts of the work, on a database of its own")
    parser.add_argument("--results", type=Path, default=Path("var/proofs/kill-lines.jsonl"), help="appended here (default: %(default)s)")
    parser.add_argument("--report", action="store_true", help="print what is known of this source in Markdown, and kill nothing")
    options = parser.parse_args()

    names = ("tillgate", *options.package)
    packages = [_directory(name) for name in names]
    source, commit = fingerprint(packages)
    results = Results(options.results, source, commit)
    if options.report:
        sys.stdout.write(section(results, names))
        return
    django.setup()
    logging.disable(logging.CRITICAL)

    from tillgate.testing.killing.acts import ACTS
    from tillgate.testing.killing.runs import running

    if unknown := set(options.act or ()) - set(ACTS):
        parser.error(f"no act is named {', '.join(sorted(unknown))}; the acts are {', '.join(ACTS)}")
    module, _, name = options.driver.partition(":")
    driver = getattr(importlib.import_module(module), name)()
    seed = None if options.sample is None else int(source, 16) if options.seed is None else options.seed
    began = time.monotonic()
    with running(driver, packages, results, _progress(), options.part.suffix) as run:
        for act in [ACTS[name] for name in options.act or ACTS]:
            if options.point:
                result = run.kill_at(act, options.point)
                sys.stdout.write(f"{act.name}, killed at {result.place or 'no place'}, then {result.recovery}: {result.outcome}\n")
                run.violations += [result] if result.outcome != HELD else []
            else:
                run.walk(act, options.part, options.sample, seed)
    seconds = time.monotonic() - began
    drawn = f", seed {seed}" if seed is not None else ""
    sys.stdout.write(
        f"{run.database}: {run.kills} kills in {seconds:.0f} s{drawn}, source {source} of {commit}: {len(run.violations)} violations\n"
    )
    for one in run.violations[:20]:
        sys.stdout.write(f"  --act {one.act} --point {one.point}, then {one.recovery}, at {one.place or 'no place'}: {one.outcome}\n")
    sys.exit(bool(run.violations))


def _part(text: str) -> Part:
    number, _, of = text.partition("/")
    if number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of):
        return Part(int(number), int(of))
    raise argparse.ArgumentTypeError(f"{text!r} is no part: give 1/2 or 2/2")


def _directory(package: str) -> Path:
    file = tillgate.__file__ if package == "tillgate" else importlib.import_module(package).__file__
    assert file
    return Path(file).parent


def _progress() -> Callable[[str], None]:
    """Return what says how far it is: all the time on a terminal, now and then elsewhere."""
    last = time.monotonic()

    def say(line: str) -> None:
        nonlocal last
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{line}")
        elif time.monotonic() - last > 10:
            last = time.monotonic()
            sys.stderr.write(f"{line}\n")

    return say


if __name__ == "__main__":
    main()
