"""The reference of `tillgate.shop`, from its signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tools.docgen.parts import ROOT, linked, replaced

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
_LISTED: Final = frozenset(GROUPS[GROUPS.index("staff") :])
"""The modules of helpers: a line of a list for each, with the first sentence of its docstring."""
_ELSEWHERE: Final = {"ReviewReason": "[its values](lifecycle.md#review)"}
"""Choices whose values a table explains."""
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
    targets = _TARGETS | {
        name: f"#{name.lower()}"
        for group in GROUPS
        if group not in _LISTED
        for name in import_module(f"tillgate.shop.{group}").__all__
    }
    for group in GROUPS:
        module = import_module(f"tillgate.shop.{group}")
        title, _, rest = (inspect.getdoc(module) or "").partition(":")
        yield from (f"## {title}", "", rest.strip()[:1].upper() + rest.strip()[1:], "")
        for name in module.__all__:
            found = getattr(module, name)
            if group in _LISTED:
                first = re.split(r"(?<=\.)\s", " ".join(_paragraphs(found)[:1]), maxsplit=1)[0]
                yield linked(f"- {_shown(name, found)}: {first}".removesuffix(": "), targets)
                continue
            yield from (f"### {name}", "", _shown(name, found), "")
            for paragraph in _paragraphs(found):
                yield from (linked(paragraph, targets), "")
        if group in _LISTED:
            yield ""


def _paragraphs(found: Any) -> list[str]:
    """Return what stands on the page of a docstring; a constant has none of its own."""
    return _doc(found).split("\n\n") if inspect.isroutine(found) or isinstance(found, type) else []


def _doc(found: Any) -> str:
    return inspect.getdoc(found) or ""


def _shown(name: str, found: Any) -> str:
    """Return how a name is used, in one paragraph: a call, fields, values."""
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if isinstance(found, type) and issubclass(found, Enum):
        return _listed(item.value for item in found)
    if isinstance(found, type) and dataclasses.is_dataclass(found):
        computed = [_typed(key, _returns(one)) for key, one in _properties(found)]
        fields = _listed(_typed(field.name, str(field.type)) for field in dataclasses.fields(found))
        return f"Fields: {fields}" + (f"; computed: {_listed(computed)}" if computed else "")
    if isinstance(found, type):
        return f"`{name}({', '.join(base.__name__ for base in found.__bases__ if base is not object)})`".replace(
            "()",
            "",
        )
    if inspect.isroutine(found):
        return f"`{name}{_signature(found)}`"
    if isinstance(found, frozenset):
        return _listed(sorted(found))
    return (
        f"`{name}`: `"
        + (repr(found) if isinstance(found, str) else re.sub(r"[a-z.]+\.(?=[A-Z])", "", str(found)))
        + "`"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _typed(name: str, kind: str) -> str:
    return name if kind == "str" else f"{name}: {kind}"


def _signature(found: Any) -> str:
    """Return a function as its source has it, without the types that the page takes for granted."""
    head, *_ = inspect.getsource(found).partition('"""')
    call = (
        " ".join(head[head.index("(", head.index("def ")) :].split())
        .removesuffix(":")
        .removesuffix(" -> None")
    )
    call = re.sub(r",? \)", ")", call.replace("( ", "("))
    return re.sub(r": str(?=[,)])", "", call.replace(": str = ", "="))


def _properties(found: type) -> Iterator[tuple[str, property]]:
    return ((key, one) for key, one in vars(found).items() if isinstance(one, property))


def _returns(one: property) -> str:
    assert one.fget is not None
    return str(inspect.get_annotations(one.fget)["return"])
