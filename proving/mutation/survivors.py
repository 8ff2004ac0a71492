"""The mutants that no test catches, and the document that argues each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DOCUMENT", "Survivor", "argued", "described", "equivalent"]

DOCUMENT: Final = Path(__file__).with_name("survivors.md")

_NOTHING: Final = "nothing"
_ITEM: Final = re.compile(
    r"- (?P<function>[\w.]+): (?P<was>`.*`|nothing) → (?P<becomes>`.*`|nothing)",
)


class Survivor(NamedTuple):
    """A mutant by its change, which stays the same when lines and mutants before it come and go."""

    function: str
    was: str
    becomes: str

    def __str__(self) -> str:
        """Return it as an item of the document."""
        return f"- {self.function}: {_quoted(self.was)} → {_quoted(self.becomes)}"


def described(mutant: str, diff: str) -> Survivor:
    """Return a mutant of mutmut, `tillgate.lifecycle.x_decide__mutmut_7`, by the unified difference
    that it makes.
    """
    function = mutant.partition("__mutmut_")[0].removeprefix("tillgate.").replace("x_", "", 1)
    if "ǁ" in function:
        module, class_name, method = function.split("ǁ")
        function = f"{module.removesuffix('.x')}.{class_name}.{method}"
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    was, becomes = (
        " ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return Survivor(function, was, becomes)


def argued(document: str) -> Iterable[Survivor]:
    """Yield the survivors that a document lists under an argument."""
    for line in document.splitlines():
        if item := _ITEM.fullmatch(line.strip()):
            yield Survivor(item["function"], _unquoted(item["was"]), _unquoted(item["becomes"]))


def equivalent(document: str) -> Iterable[Survivor]:
    """Yield those that act like the code, under headings that say so: no test can catch them."""
    for section in document.split("\n## ")[1:]:
        if section.startswith("Equivalent"):
            yield from argued(section)


def _quoted(code: str) -> str:
    return f"`{code}`" if code else _NOTHING


def _unquoted(text: str) -> str:
    return "" if text == _NOTHING else text[1:-1]
