"""`python -m proving.fuzz --inputs 20000 --seed 1`: fuzz everything that comes from outside, and
print the counts and the outcome.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import django

from proving.arguments import ended_by_ctrl_c
from proving.fuzz.results import Results
from proving.fuzz.rounds import Fault, Round, run, target_names
from proving.fuzz.targets import ROUND
from tillgate.errors import ConfigurationError
from tillgate.testing.databases import name_of_database

_NOTED_EVERY = 50
"""Seeds after which results are noted, so an interrupted run loses little."""
_MOST_SHOWN = 5


def _table(met: dict[str, Counter[str]]) -> Iterator[str]:
    for name, counts in met.items():
        said = ", ".join(f"{what} {count:,}" for what, count in counts.most_common(7))
        yield f"  {name:26} {sum(counts.values()):>11,}   {said}"


def _database() -> str:
    try:
        return name_of_database()
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error


def _target(_: click.Context, __: click.Parameter, name: str) -> str:
    """Refuse a target that there is not."""
    if name:
        _database()  # the settings need it
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proving.fuzz.settings")
        django.setup()
        click.Choice(target_names()).convert(name, None, None)
    return name


@click.command()
@click.option(
    "--inputs",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="how many inputs, in rounds of a thousand; each round is a seed",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="the first seed",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default=True,
)
@click.option("--target", "only", default="", callback=_target, help="one target only, by its name")
@click.option(
    "--results",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="note what was done there, and leave out what is noted already",
)
@ended_by_ctrl_c()
def main(inputs: int, seed: int, processes: int, only: str, file: Path | None) -> None:
    """Fuzz every byte that comes from outside. Exit status 1 says that something was found."""
    database = _database()
    results = Results(file, database) if file else None
    seeds = list(range(seed, seed + -(-inputs // ROUND)))
    earlier = results.seeds() & set(seeds) if results else set()
    left = [one for one in seeds if one not in earlier]
    began, met, faults, noted = (
        time.monotonic(),
        dict[str, Counter[str]](),
        list[Fault](),
        list[Round](),
    )

    def note() -> None:
        if results and noted and not only:
            together: dict[str, Counter[str]] = {}
            for one in noted:
                for name, counts in one.met.items():
                    together.setdefault(name, Counter()).update(counts)
            results.add(
                [one.seed for one in noted],
                together,
                sum(len(one.faults) for one in noted),
            )
            noted.clear()

    try:
        for one in run(left, min(processes, len(left)), only):
            for name, counts in one.met.items():
                met.setdefault(name, Counter()).update(counts)
            faults += one.faults
            noted.append(one)
            if len(noted) >= _NOTED_EVERY:
                note()
                count = sum(sum(counts.values()) for counts in met.values())
                click.echo(
                    f"{count:,} inputs, {count / (time.monotonic() - began):,.0f} a second, "
                    f"{len(faults)} found",
                    err=True,
                )
    finally:
        note()
    seconds, count = time.monotonic() - began, sum(sum(counts.values()) for counts in met.values())
    for fault in faults[:_MOST_SHOWN]:
        click.echo(f"\n{fault}")
    click.echo(
        f"{count:,} inputs on {database}, seeds {seeds[0]} to {seeds[-1]}, {count / seconds:,.0f} "
        "a second",
    )
    if results:
        click.echo(
            f"{sum(line['inputs'] for line in results.lines()):,} inputs noted in {file} for this "
            "commit and database",
        )
    click.echo("\n".join(_table(met)))
    click.echo(f"{len(faults)} found")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
