"""`python -m tests.django.kept.write` writes the kept database: orders with an open review of every reason, made by real operations.

The file's name begins with the number of the migration that it fits. Before the first release the command writes the file anew; a released
file stays as it is, and later migrations must upgrade it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import django

FILE: Final = Path(__file__).parents[1] / "data" / "0001_reviews.json"


def main() -> int:
    """Write the file from a fresh database."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django.project"
    os.environ["TILLGATE_TEST_DATABASE"] = "sqlite"
    os.environ.setdefault("TILLGATE_TEST_NAME", "tillgate_kept")
    django.setup()
    from django.db import connection  # these need Django's models

    from tests.django.kept import filling

    name = connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        with filling.same_randomness():
            filling.fill()
        FILE.write_text(filling.serialized(), "utf-8")
    finally:
        connection.creation.destroy_test_db(name, verbosity=0)
    sys.stdout.write(f"wrote {FILE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
