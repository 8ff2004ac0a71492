"""`python -m tests.django.kept.write` writes the kept database: orders with an open review of every
reason, made by real operations.

The operations run on each database, and must leave the same rows on all three; the file is written
only then. Its name begins with the number of the migration that it fits. Before the first release
the command rewrites the file; a released file stays as it is, and later migrations must upgrade it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import django

from tools.benchmarks import databases

FILE: Final = Path(__file__).parents[1] / "data" / "0001_reviews.json"


def main() -> int:
    """Write the file if every database has the same rows."""
    if sys.argv[1:] == ["rows"]:
        sys.stdout.write(_rows())
        return 0
    for missing in filter(None, map(databases.why_not, databases.NAMES)):
        sys.stderr.write(f"nothing was written: {missing}\n")
        return 1
    first, *others = databases.NAMES
    rows = _rows_of(first)
    for database in others:
        if _rows_of(database) != rows:
            sys.stderr.write(
                f"nothing was written: the rows on {database} are not those on {first}\n",
            )
            return 1
    FILE.write_text(rows, "utf-8")
    sys.stdout.write(f"wrote {FILE.name}: the same rows on {', '.join(databases.NAMES)}\n")
    return 0


def _rows_of(database: str) -> str:
    """Return the rows that the operations leave on a database, in a process of its own, since the
    settings name one database.
    """
    environment = {
        "TILLGATE_TEST_NAME": "tillgate_kept",
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.django.project",
        "TILLGATE_TEST_DATABASE": database,
    }
    command = [sys.executable, "-m", "tests.django.kept.write", "rows"]
    return subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=True,
    ).stdout


def _rows() -> str:
    django.setup()
    from django.db import connection  # these need Django's models

    from tests.django.kept import filling

    name = connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        with filling.same_everywhere():
            filling.fill()
        return filling.serialized(FILE.name.partition("_")[0])
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)


if __name__ == "__main__":
    sys.exit(main())
