"""Find circles of imports in src and in the plugins: `python -m tools.circles`.

A circle of imports at module level is an error. An import inside a function can hide a circle: each
of those is an error too, unless `HIDDEN` gives its reason. Imports for type checkers alone, and the
packages above an imported module, do not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["HIDDEN", "Import", "circles", "hidden", "imports_of", "main"]

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = (ROOT / "src", *sorted(ROOT.glob("plugins/*/src")))

HIDDEN: Final[Mapping[tuple[str, str], str]] = {}
"""The imports inside functions that close a circle, each with its reason."""


class Import(NamedTuple):
    """One module imports another, at module level or inside a function."""

    source: str
    target: str
    line: int
    is_inside_function: bool


def imports_of(folders: Iterable[Path]) -> list[Import]:
    """Return the imports of the modules in these folders among each other."""
    modules = {_name(path, folder): path for folder in folders for path in folder.rglob("*.py")}
    return [
        Import(name, target, line, inside)
        for name, path in modules.items()
        for imported, line, inside in _imported(ast.parse(path.read_text("utf-8")), inside=False)
        if (target := _known(imported, modules)) not in {None, name}
    ]


def _name(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.AST, *, inside: bool) -> Iterator[tuple[str, int, bool]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((one.name, node.lineno, inside) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            # ruff forbids relative imports
            yield from ((f"{node.module}.{one.name}", node.lineno, inside) for one in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from _imported(other, inside=inside)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imported(node, inside=inside or is_function)


def _known(imported: str, modules: Mapping[str, Path]) -> str | None:
    """Return the module that is imported: `a.b` for the name c of `from a.b import c`."""
    if imported in modules:
        return imported
    package = imported.rpartition(".")[0]
    return package if package in modules else None


def circles(imports: Iterable[Import]) -> list[list[str]]:
    """Return one circle after another; each is reported with its last import taken away."""
    targets: dict[str, set[str]] = {}
    for one in imports:
        targets.setdefault(one.source, set()).add(one.target)
    found = []
    while True:
        try:
            TopologicalSorter(targets).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]  # graphlib follows the imports backwards
            found.append(circle)
            targets[circle[-2]].discard(circle[-1])
        else:
            return found


def hidden(imports: Iterable[Import]) -> list[Import]:
    """Return the imports inside functions that close a circle."""
    imports = list(imports)
    outside = {(one.source, one.target) for one in imports if not one.is_inside_function}
    targets: dict[str, set[str]] = {}
    for one in imports:
        targets.setdefault(one.source, set()).add(one.target)
    return [
        one
        for one in imports
        if one.is_inside_function
        and (one.source, one.target) not in outside
        and _reaches(one.target, one.source, targets)
    ]


def _reaches(start: str, end: str, targets: Mapping[str, set[str]]) -> bool:
    seen, waiting = set(), [start]
    while waiting:
        module = waiting.pop()
        if module == end:
            return True
        if module not in seen:
            seen.add(module)
            waiting += targets.get(module, ())
    return False


def main(folders: Iterable[Path] = ROOMS) -> int:
    """Print the circles, and return 1 where there is one without a reason."""
    imports = imports_of(folders)
    at_module_level = [one for one in imports if not one.is_inside_function]
    faults = [f"a circle of imports: {' -> '.join(one)}" for one in circles(at_module_level)]
    closing = hidden(imports)
    faults += [
        f"{one.source}:{one.line} imports {one.target} inside a function, which hides a circle"
        for one in closing
        if (one.source, one.target) not in HIDDEN
    ]
    faults += [
        f"HIDDEN names {source} -> {target}, which closes no circle: take it out"
        for source, target in HIDDEN.keys() - {(one.source, one.target) for one in closing}
    ]
    print(*faults or [f"no circle among {len(imports)} imports"], sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
