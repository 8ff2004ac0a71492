"""`python -m tests.fuzz.guided TARGET -runs=100000`: the targets without a database, led by the lines that an input reaches.

Needs atheris, which is no part of the development tools: `make fuzz-guided` builds an environment for it. Options with one hyphen are
libFuzzer's. A crash is kept in the folder that `-artifact_prefix=` names, and is repeated when its file is given.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["tillgate"]):
    from tests.fuzz.readers import readers

from tests.fuzz.inputs import FromBytes


def main() -> None:
    """Fuzz one target until libFuzzer has enough; its exit status tells what came of it."""
    known = {target.name: target for target in readers()}
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in known:
        sys.exit(f"there is no target {name!r}: {', '.join(known)}")
    target = known[name]

    def try_one(data: bytes) -> None:
        target.check(target.draw(FromBytes(data)))

    atheris.Setup(sys.argv, try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
