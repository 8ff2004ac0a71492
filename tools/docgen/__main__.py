"""`python -m tools.docgen` with architecture, reference, reliability, conformance,
conformance-stripe, conformance-payu, coverage or versions; the last five run tests.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys

import django

from tools.docgen import architecture, hooks, parts, reliability


def main() -> int:
    """Write the pages; 1 when a scenario failed, which the pages say too."""
    parser = argparse.ArgumentParser(prog="python -m tools.docgen", description=__doc__)
    parser.add_argument(
        "part",
        choices=[
            "architecture",
            "reference",
            "reliability",
            "conformance",
            "conformance-stripe",
            "conformance-payu",
            "coverage",
            "versions",
        ],
    )
    parser.add_argument(
        "plugins",
        nargs="*",
        metavar="PLUGIN",
        help="the shops to run the conformance kit on; all unless named",
    )
    parser.add_argument(
        "--leave-out",
        action="append",
        default=[],
        metavar="PATH",
        help="tests that coverage does not run",
    )
    parser.add_argument(
        "--proven",
        metavar="COMMIT",
        help="the commit, or the commits with spaces, of the last `python -m proving all`",
    )
    options = parser.parse_args()
    if options.part == "architecture":
        parts.write(architecture.pages())
        return 0
    if options.part == "reliability":
        summary = reliability.summarised(reliability.read_summary())
        if options.proven:
            summary = reliability.proven(
                summary,
                options.proven,
                datetime.datetime.now(datetime.UTC).date(),
            )
        parts.write(
            {reliability.SUMMARY: reliability.as_text(summary), **reliability.pages(summary)},
        )
        return 0
    if options.part == "coverage":
        from tools.docgen import coverage  # it needs tillgate.testing

        failed = coverage.run(options.plugins, options.leave_out)
        parts.write(coverage.pages())
        print(f"tests failed: {', '.join(failed)}" if failed else "all passed", file=sys.stderr)
        return 1 if failed else 0
    if options.part == "versions":
        from tools.docgen import versions  # it needs tillgate.testing

        failed = versions.run(options.plugins)
        parts.write(versions.pages())
        print(
            f"not all samples passed: {', '.join(failed)}" if failed else "all samples passed",
            file=sys.stderr,
        )
        return 1 if failed else 0
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django.project")
    django.setup()
    from tools.docgen import conformance, gateway_shops, shop  # they need Django's models

    if options.part == "reference":
        parts.write(hooks.pages() | shop.pages())
        return 0
    gateway = options.part.removeprefix("conformance-")
    if gateway in gateway_shops.GATEWAYS:
        failed = gateway_shops.run(gateway_shops.GATEWAYS[gateway], options.plugins)
        print(
            f"not all scenarios held: {', '.join(failed)}"
            if failed
            else "all that could be played held",
            file=sys.stderr,
        )
        return 1 if failed else 0
    suites = {suite.plugin: suite for suite in conformance.suites()}
    if unknown := set(options.plugins) - set(suites):
        parser.error(
            f"no conformance tests of {', '.join(sorted(unknown))}; there are those of "
            f"{', '.join(suites)}",
        )
    failed = conformance.run([suites[name] for name in options.plugins or suites])
    parts.write(conformance.pages(conformance.read_reports()))
    if failed:
        print(f"not all scenarios held: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
