"""The reference of `tillgate.shop`: a line for each name that most plugins need, with the first
clause of its docstring, and a table of the helpers. The site's page of every public name has the
whole docstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tools.docgen.parts import ROOT, first_sentence, linked, replaced

__all__ = ["GROUPS", "pages"]

PAGE: Final = ROOT / "docs" / "reference" / "shop.md"
GROUPS: Final = (
    "registration",
    "orders",
    "states",
    "payments",
    "refunds",
    "reviews",
    "shipping",
    "summaries",
    "finding",
    "remote",
    "staff",
    "personal",
    "web",
    "accounts",
    "settings",
    "checks",
    "fields",
    "http",
    "worker",
)
"""The modules of the package in the order of the page."""
_HELPERS: Final = frozenset(GROUPS[GROUPS.index("staff") :])
"""The modules that the page lists by names alone, in one table."""
_ELSEWHERE: Final = {"ReviewReason": "[its values](lifecycle.md#review)"}
"""Choices with values that a table explains."""
_PARAGRAPH: Final = "\n\n"
_TARGETS: Final = {
    "InvalidRequest": "errors.md#invalidrequest",
    "ConfigurationError": "errors.md#configurationerror",
    "tillgate_describe_order": "hooks.md#the-shops-side",
    "tillgate_order_unpaid": "hooks.md#the-shops-side",
    "tillgate_deliver": "hooks.md#the-shops-side",
}


def pages() -> dict[Path, str]:
    """Return the page as it should be."""
    return {
        PAGE: replaced(
            PAGE.read_text("utf-8"),
            "shop",
            "python -m tools.docgen reference",
            "\n".join(_lines()),
        ),
    }


def _lines() -> Iterator[str]:
    helpers = ["## Helpers", "", "| names | for |", "|---|---|"]
    for group in GROUPS:
        module = import_module(f"tillgate.shop.{group}")
        title, _, rest = (inspect.getdoc(module) or "").partition(":")
        if group in _HELPERS:
            names = ", ".join(f"`{name}`" for name in module.__all__)
            helpers.append(f"| {names} | {title}: {first_sentence(rest)} |")
            continue
        yield from (f"## {title}", "")
        for name in module.__all__:
            found = getattr(module, name)
            yield linked(f"- {_shown(name, found)}{_effect(found)}", _TARGETS)
        yield ""
    yield from helpers


def _effect(found: Any) -> str:
    """Return the first clause of a docstring; a constant has none of its own."""
    if not (inspect.isroutine(found) or isinstance(found, type)):
        return ""
    sentence = first_sentence((inspect.getdoc(found) or "").partition(_PARAGRAPH)[0])
    return f": {re.split(r'[:;] ', sentence, maxsplit=1)[0].rstrip('.')}"


def _shown(name: str, found: Any) -> str:
    """Return how a name is used: a call, or the name with the values of a choice."""
    if inspect.isroutine(found):
        return f"`{name}{_signature(found)}`"
    if isinstance(found, type) and issubclass(found, Enum) and name not in _ELSEWHERE:
        return f"`{name}` ({_listed(item.value for item in found)})"
    return f"`{name}`" + (f", {_ELSEWHERE[name]}" if name in _ELSEWHERE else "")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _signature(found: Any) -> str:
    """Return the parameters of a function with their defaults, without types."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    assert isinstance(function, ast.FunctionDef)
    for node in ast.walk(function.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    return f"({ast.unparse(function.args)})".replace("'", '"')
