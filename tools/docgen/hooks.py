"""The reference of the hooks: a line for each, from its parameters and the opening of its docstring
in `tillgate.hooks.hookspecs`. The site's page of every public name has the whole docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tillgate import errors
from tillgate.hooks import hookspecs, values
from tools.docgen.parts import ROOT, first_sentence, linked, replaced

__all__ = ["pages"]

PAGE: Final = ROOT / "docs" / "reference" / "hooks.md"
_SIDE: Final = re.compile(r"^# (.+?) -{9,}$")
_HOOK: Final = re.compile(r"^def (tillgate_\w+)\(")


def pages() -> dict[Path, str]:
    """Return the page as it should be."""
    return {
        PAGE: replaced(
            PAGE.read_text("utf-8"),
            "hooks",
            "python -m tools.docgen reference",
            "\n".join(_lines()),
        ),
    }


def _lines() -> Iterator[str]:
    for line in inspect.getsource(hookspecs).splitlines():
        if side := _SIDE.match(line):
            yield from ("", f"## {side[1]}", "")
        elif hook := _HOOK.match(line):
            yield _entry(hook[1])


def _entry(name: str) -> str:
    hook = getattr(hookspecs, name)
    targets = {name: f"errors.md#{name.lower()}" for name in errors.__all__}
    targets |= {name: f"#{name.lower()}" for name in values.__all__}
    targets |= {f"Gateway.{name}": "gateway.md" for name in ("pay", "query", "refund")}
    targets |= {"ORDER_UNPAID_AFTER_MINUTES": "settings.md"}
    parameters = ", ".join(inspect.signature(hook).parameters)
    return linked(f"- `{name}({parameters})`: {_opening(inspect.getdoc(hook) or '')}", targets)


def _opening(docstring: str) -> str:
    """Return the first paragraph and, of the second, the first sentence: when the hook is called."""
    first, *others = docstring.split("\n\n")
    called = [re.split(r"[:;] ", first_sentence(other), maxsplit=1)[0] for other in others[:1]]
    return " ".join([" ".join(first.split()), *(f"{one.rstrip('.')}." for one in called)])
