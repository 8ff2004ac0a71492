"""`python -m tools.benchmarks [--quick] [--page PATH] [name ...]`: measure and write the page."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import Final

from tools.benchmarks import report
from tools.benchmarks.measure import Effort

BENCHMARKS: Final = (
    "sign",
    "pay",
    "pay_async",
    "imports",
    "notifications",
    "working",
    "effects",
    "sale",
    "staff",
)
"""The modules of this package that measure, in the order of the page."""

_PAGE = Path(__file__).with_name("performance.md")


def main() -> None:
    """Run the benchmarks named, or all. After a whole run write tools/benchmarks/performance.md,
    or the page asked for; else print it.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"what to measure: {', '.join(BENCHMARKS)}; all unless named",
    )
    parser.add_argument("--quick", action="store_true", help="only prove that the benchmarks work")
    parser.add_argument(
        "--page",
        type=Path,
        help="write here; a whole run writes tools/benchmarks/performance.md, any other prints",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=Effort().seed,
        help="of the order of turns (default: %(default)s)",
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is named {', '.join(sorted(unknown))}")
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # everything here is on loopback
    effort = Effort(quick=options.quick, seed=options.seed)
    names = options.names or BENCHMARKS
    sections = [importlib.import_module(f"tools.benchmarks.{name}").run(effort) for name in names]
    path = options.page or (None if options.quick or options.names else _PAGE)
    text = report.page(sections, effort, drawn=path is None)
    if path:
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}", file=sys.stderr)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
