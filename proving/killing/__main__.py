"""`python -m proving.killing --driver module:Class`: kill at every line, or at a seeded sample, and
judge.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

from proving.arguments import count, driver, ended_by_ctrl_c, module, read_late, results_file
from proving.killing.results import HELD, Part, Results, fingerprint, section
from proving.progress import Progress


@ended_by_ctrl_c()
def main() -> None:
    """Kill as asked, show the progress, and exit with status 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m proving.killing", description=__doc__)
    parser.add_argument("--driver", required=True, metavar="MODULE:CLASS", help="the shop's driver")
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME",
        help="kill at every line of this package, too",
    )
    parser.add_argument(
        "--sample",
        type=count,
        metavar="N",
        help="kill at N points of each act, drawn at random, not at all of them",
    )
    parser.add_argument(
        "--seed",
        type=int,
        help="of the sample; drawn from the source unless given, so that the same source has the "
        "same",
    )
    parser.add_argument(
        "--action",
        action="append",
        metavar="NAME",
        help="only this action; several are possible",
    )
    parser.add_argument(
        "--point",
        type=count,
        metavar="N",
        help="only this point, whatever is known of it",
    )
    parser.add_argument(
        "--part",
        type=_part,
        default=Part(),
        metavar="I/N",
        help="one of N parts of the work, on a database of its own",
    )
    parser.add_argument(
        "--results",
        type=results_file,
        default=Path("var/proofs/kill-lines.jsonl"),
        help="appended here (default: %(default)s)",
    )
    parser.add_argument(
        "--report",
        action="store_true",
        help="print what is known of this source in Markdown, and kill nothing",
    )
    options = parser.parse_args()

    names = ("tillgate", *options.package)
    packages = [read_late(parser, "--package", _directory, name) for name in names]
    source, commit = fingerprint(packages)
    results = Results(options.results, source, commit)
    if options.report:
        sys.stdout.write(section(results, names))
        return
    shop = read_late(parser, "--driver", driver, options.driver)
    logging.disable(logging.CRITICAL)

    from proving.killing.actions import ACTIONS
    from proving.killing.runs import HoldsNot, running

    if unknown := set(options.action or ()) - set(ACTIONS):
        parser.error(
            f"no act is named {', '.join(sorted(unknown))}; the acts are {', '.join(ACTIONS)}",
        )
    seed = (
        None
        if options.sample is None
        else int(source, 16)
        if options.seed is None
        else options.seed
    )
    began, progress, missed = time.monotonic(), Progress(), list[str]()
    try:
        with running(shop, packages, results, progress, options.part.suffix) as run:
            for action in [ACTIONS[name] for name in options.action or ACTIONS]:
                if not options.point:
                    run.walk(action, options.part, options.sample, seed)
                    continue
                result = run.kill_at(action, options.point)
                run.violations += [result] if result.outcome != HELD else []
                missed += [] if result.place else [action.name]
                end = (
                    f"killed at {result.place}"
                    if result.place
                    else f"over before point {options.point}, and so not killed: give less"
                )
                sys.stdout.write(
                    f"{action.name}, {end}, then {result.recovery}: {result.outcome}\n",
                )
    except HoldsNot as fault:
        progress.clear()
        sys.exit(f"{fault}: make the shop pass the conformance kit first")
    progress.clear()
    seconds = time.monotonic() - began
    drawn = f", seed {seed}" if seed is not None else ""
    sys.stdout.write(
        f"{run.database}: {run.kills} kills in {seconds:.0f} s{drawn}, source {source} of "
        f"{commit}: {len(run.violations)} violations\n",
    )
    for one in run.violations[:20]:
        sys.stdout.write(
            f"  --action {one.action} --point {one.point}, then {one.recovery}, at "
            f"{one.place or 'no place'}: {one.outcome}\n",
        )
    sys.exit(bool(run.violations or missed))


def _part(text: str) -> Part:
    number, _, of = text.partition("/")
    if number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of):
        return Part(int(number), int(of))
    raise argparse.ArgumentTypeError(f"{text!r} is no part: give 1/2 or 2/2")


def _directory(package: str) -> Path:
    if file := module(package).__file__:
        return Path(file).parent
    raise argparse.ArgumentTypeError(f"{package} is no package: it has no __init__.py")


if __name__ == "__main__":
    main()
