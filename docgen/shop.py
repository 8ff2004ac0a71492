"""The reference of `tillgate.shop`, from its signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from docgen.parts import ROOT, entry, replaced
from tillgate import shop

__all__ = ["GROUPS", "pages"]

PAGE: Final = ROOT / "docs" / "reference" / "shop.md"
GROUPS: Final = (
    "orders",
    "states",
    "payments",
    "refunds",
    "reviews",
    "remote",
    "staff",
    "web",
    "accounts",
    "settings",
    "checks",
    "fields",
    "http",
    "worker",
)
"""The modules of the package in the order of the page."""
_TARGETS: Final = {
    "InvalidRequest": "errors.md#invalidrequest",
    "ConfigurationError": "errors.md#configurationerror",
    "tillgate_describe_order": "hooks.md#tillgate_describe_order",
    "tillgate_order_unpaid": "hooks.md#tillgate_order_unpaid",
    "tillgate_deliver": "hooks.md#tillgate_deliver",
}


def pages() -> dict[Path, str]:
    """Return the page as it should be."""
    return {PAGE: replaced(PAGE.read_text("utf-8"), "shop", "make reference", "\n".join(_lines()))}


def _lines() -> Iterator[str]:
    targets = _TARGETS | {name: f"#{name.lower()}" for name in shop.__all__}
    for group in GROUPS:
        module = import_module(f"tillgate.shop.{group}")
        title, _, rest = (inspect.getdoc(module) or "").partition(":")
        yield from (f"## {title}", "", rest.strip()[:1].upper() + rest.strip()[1:], "")
        for name in shop.MODULES[group]:
            found = getattr(module, name)
            if isinstance(found, type) and issubclass(found, Enum):
                yield from entry(name, "\n".join(f'"{item.value}"' for item in found), _doc(found), targets)
            elif inspect.isroutine(found) or isinstance(found, type):
                yield from entry(name, _signature(name, found), _doc(found), targets)
            else:
                yield from entry(name, f"{name} = {_shown(found)}", "", targets)


def _doc(found: Any) -> str:
    return inspect.getdoc(found) or ""


def _shown(found: Any) -> str:
    return repr(found) if isinstance(found, str) else ", ".join(sorted(f'"{item}"' for item in found))


def _signature(name: str, found: Any) -> str:
    """Return a function as its source has it, a value's fields, or a class's name."""
    if isinstance(found, type) and dataclasses.is_dataclass(found):
        lines = [f"    {field.name}: {field.type}" for field in dataclasses.fields(found)]
        lines += [f"    {key}: {_returns(one)}  # computed" for key, one in _properties(found)]
        return "\n".join([name, *lines])
    if isinstance(found, type):
        return f"{name}({', '.join(base.__name__ for base in found.__bases__ if base is not object)})".replace("()", "")
    head, *_ = inspect.getsource(found).partition('"""')
    return head[head.index("def ") :].strip().removeprefix("def ").removesuffix(":")


def _properties(found: type) -> Iterator[tuple[str, property]]:
    return ((key, one) for key, one in vars(found).items() if isinstance(one, property))


def _returns(one: property) -> str:
    assert one.fget is not None
    return str(inspect.get_annotations(one.fget)["return"])
