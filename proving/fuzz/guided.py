"""`python -m proving fuzz-guided TARGET -runs=100000`: the targets without a database, led by the
lines that an input reaches.

Needs atheris, which is no part of the development tools: `nox -s fuzz` builds an environment for
it. Options with one hyphen are libFuzzer's. A crash is kept in artefacts/fuzz/, and is repeated
when its file is given.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import atheris

with atheris.instrument_imports(include=["tillgate"]):
    from proving.fuzz.readers import readers

from proving.fuzz.inputs import FromBytes

_FOLDER: Final = Path("artefacts/fuzz")
_USUAL: Final = (
    "-runs=100000",
    "-seed=1",
    "-max_len=4096",
    "-len_control=0",
    "-verbosity=0",
    "-print_final_stats=1",
)


def main() -> None:
    """Fuzz one target until libFuzzer has enough; its exit status is the outcome."""
    known = {target.name: target for target in readers()}
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in known:
        sys.exit(f"there is no target {name!r}: {', '.join(known)}")
    target = known[name]

    def try_one(data: bytes) -> None:
        target.check(target.draw(FromBytes(data)))

    _FOLDER.mkdir(parents=True, exist_ok=True)
    # libFuzzer takes the last of two equal options.
    atheris.Setup([sys.argv[0], *_USUAL, f"-artifact_prefix={_FOLDER}/", *sys.argv[1:]], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
