"""Play a seed as always, and once more with every query compiled again and compared with the
remembered one.
"""

from __future__ import annotations

from functools import partial
from unittest import mock

import django
from django.core.management import call_command


def main() -> None:
    """Raise when a remembered query differs from Django's."""
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    from django.db.models.sql.compiler import SQLCompiler

    from proving.simulation import stand_ins, world
    from proving.simulation.compiling import compiled_once
    from tests.smallest_shop.driver import SmallestShopDriver

    compile_it, compiled = SQLCompiler.as_sql, 0

    def counting(compiler: SQLCompiler, *arguments: bool) -> object:
        nonlocal compiled
        compiled += 1
        return compile_it(compiler, *arguments)

    # compiled_once() stands before it
    SQLCompiler.as_sql = counting  # type: ignore[assignment, method-assign]
    remembering = world.simulate(SmallestShopDriver(), 11, 80)
    once, compiled = compiled, 0
    with mock.patch.object(stand_ins, "compiled_once", partial(compiled_once, compared_every=1)):
        comparing = world.simulate(SmallestShopDriver(), 11, 80)
    assert remembering.digest == comparing.digest
    assert compiled > 2 * once, (once, compiled)


if __name__ == "__main__":
    main()
