"""The reference of `tillgate.shop`: a line for each name, from its signature and the first sentence
of its docstring. The whole docstrings are on the site's page of every public name.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
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
_ELSEWHERE: Final = {"ReviewReason": "[its values](lifecycle.md#review)"}
"""Choices whose values a table explains."""
_PARAGRAPH: Final = "\n\n"
_TARGETS: Final = {
    "InvalidRequest": "errors.md#invalidrequest",
    "ConfigurationError": "errors.md#configurationerror",
    "tillgate_describe_order": "hooks.md#tillgate_describe_order",
    "tillgate_order_unpaid": "hooks.md#tillgate_order_unpaid",
    "tillgate_deliver": "hooks.md#tillgate_deliver",
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
    for group in GROUPS:
        module = import_module(f"tillgate.shop.{group}")
        title, _, rest = (inspect.getdoc(module) or "").partition(":")
        first = first_sentence(rest)
        yield from (f"## {title}", "", first[:1].upper() + first[1:], "")
        for name in module.__all__:
            found = getattr(module, name)
            yield linked(f"- {_shown(name, found)}{_effect(found)}", _TARGETS)
        yield ""


def _effect(found: Any) -> str:
    """Return what stands on the page of a docstring; a constant has none of its own."""
    if not (inspect.isroutine(found) or isinstance(found, type)):
        return ""
    return f": {first_sentence((inspect.getdoc(found) or '').partition(_PARAGRAPH)[0])}"


def _shown(name: str, found: Any) -> str:
    """Return how a name is used: a call, or the name with its fields or values."""
    if name in _ELSEWHERE:
        return f"`{name}`, {_ELSEWHERE[name]}"
    if isinstance(found, type) and issubclass(found, Enum):
        return f"`{name}` ({_listed(item.value for item in found)})"
    if isinstance(found, type) and dataclasses.is_dataclass(found):
        fields = [field.name for field in dataclasses.fields(found)]
        computed = [key for key, one in vars(found).items() if isinstance(one, property)]
        return f"`{name}` ({_listed([*fields, *computed])})"
    if isinstance(found, type):
        return f"`{name}`"
    if inspect.isroutine(found):
        return f"`{name}{_signature(found)}`"
    if isinstance(found, frozenset):
        return f"`{name}` ({_listed(sorted(found))})"
    return f"`{name}`: `{found!r}`" if isinstance(found, str) else f"`{name}`"


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
