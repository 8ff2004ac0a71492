"""The generated parts of ARCHITECTURE.md: the map of the packages, the drawings of the machines and
the table of the review reasons.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tillgate import lifecycle
from tillgate.lifecycle import POLICIES, End, ReviewPolicy, ReviewReason
from tools.docgen.parts import ROOT, replaced

__all__ = ["MACHINES", "pages"]

PAGE: Final = ROOT / "ARCHITECTURE.md"
COMMAND: Final = "python -m tools.docgen architecture"
MACHINES: Final[Mapping[str, Mapping[Any, frozenset[Any]]]] = {
    "payment": lifecycle.PAYMENT_TRANSITIONS,
    "refund": lifecycle.REFUND_TRANSITIONS,
    "order": lifecycle.ORDER_TRANSITIONS,
    "outbox": lifecycle.OUTBOX_TRANSITIONS,
    "review": lifecycle.REVIEW_TRANSITIONS,
}
_SOURCE: Final = ROOT / "src"
_LAYERS: Final = "Imports run downwards"
_ROOMS: Final = "The rooms of the Django app"
_APART: Final = "tillgate.sandbox"


def pages() -> dict[Path, str]:
    """Return the page as it should be."""
    page = PAGE.read_text("utf-8")
    for name, lines in {
        "house": _house(),
        **{name: _machine(name) for name in MACHINES},
        "reviews": _reviews(),
    }.items():
        page = replaced(page, name, COMMAND, "\n".join(lines))
    return {PAGE: page}


def _house() -> Iterator[str]:
    """Yield a row for each module of the import contract, the highest first, with the first
    sentence of its docstring.
    """
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = {
        contract["name"]: contract["layers"]
        for contract in contracts
        if contract["type"] == "layers"
    }
    names, rooms = (
        [name for layer in layers[which] for name in re.split(r" [|:] ", layer)]
        for which in (_LAYERS, _ROOMS)
    )
    below = names.index("tillgate.django") + 1
    names[below:below] = rooms
    yield from ("| in `src/tillgate/` | purpose |", "|---|---|")
    for name in (*names, _APART):
        folder = _SOURCE / name.replace(".", "/")
        path = folder if folder.is_dir() else folder.with_suffix(".py")
        file = path / "__init__.py" if path.is_dir() else path
        shown = path.relative_to(_SOURCE / "tillgate").as_posix() + ("/" if path.is_dir() else "")
        yield f"| [`{shown}`]({path.relative_to(ROOT).as_posix()}) | {_first_sentence(file)} |"


def _first_sentence(file: Path) -> str:
    paragraph = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n\n")[0]
    line = " ".join(paragraph.split())
    return re.split(r"(?<=\.) (?=[A-Z])", line)[0]


def _machine(name: str) -> Iterator[str]:
    """Yield the drawing of a machine: an edge for each transition, from the first status to those
    that are final.
    """
    table = MACHINES[name]
    yield from (
        "```mermaid",
        "stateDiagram-v2",
        "    direction LR",
        f"    [*] --> {next(iter(table))}",
    )
    for old, following in table.items():
        yield from (f"    {old} --> {new}" for new in table if new in following)
    yield from (f"    {status} --> [*]" for status, following in table.items() if not following)
    yield "```"


def _reviews() -> Iterator[str]:
    """Yield the table of the reasons, those of one policy in one row, and the meanings of its last
    two columns.
    """
    groups: dict[ReviewPolicy, list[ReviewReason]] = {}
    for reason in ReviewReason:
        groups.setdefault(POLICIES[reason], []).append(reason)
    yield from (
        "| reason | scope | actions, in order | closes without staff at | more |",
        "|---|---|---|---|---|",
    )
    for policy, reasons in groups.items():
        ends = ", ".join(end for end in End if end in policy.ends)
        cells = (
            _code(reasons),
            policy.scope,
            _code(policy.actions),
            ends,
            ", ".join(_more(policy)),
        )
        yield f"| {' | '.join(cells)} |"
    yield from ("", "A review closes without staff at:", "")
    yield from (f"- *{value}*: {meaning}" for value, meaning in _meanings(End).items())


def _code(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _more(policy: ReviewPolicy) -> Iterator[str]:
    flags = {
        "reported_paid": "means paid",
        "blocks_refunds": "blocks refunds",
        "updates": "updated in place",
    }
    yield from (words for flag, words in flags.items() if getattr(policy, flag))
    if not policy.recommends:
        yield "recommends no action"


def _meanings(kind: type[StrEnum]) -> dict[str, str]:
    """Return the docstring below each member of an enumeration, by the member's value."""
    [body] = (
        node.body
        for node in ast.parse(inspect.getsource(kind)).body
        if isinstance(node, ast.ClassDef)
    )
    found = {}
    for member, text in pairwise(body):
        if (
            isinstance(member, ast.Assign)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            name = member.targets[0]
            assert isinstance(name, ast.Name)
            found[kind[name.id].value] = str(text.value.value)
    return found
