"""The scaffold of `tillgate new-plugin`: a plugin that passes the conformance kit unchanged, for
its author to adapt step by step.

The templates are files of `string.Template`. The folders `template`, for a shop's plugin, and
`gateway_template` have the layout of the plugin's folder, and their paths hold placeholders too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final

from tillgate.errors import InvalidRequest
from tillgate.hooks.manager import ADAPTER_NAME, ENTRY_POINT_GROUP, IMPORTED_NAME

__all__ = ["Scaffold", "write_plugin"]

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST: Final = 40
"""Names become names of files, classes and columns; the name of every known framework is
shorter.
"""
_OURS: Final = ("django-payments", "oscar", "pretix", "saleor")
"""The plugins for shops that Tillgate publishes: another package of one of these names would hide
it.
"""
_SHOP: Final = Path(__file__).parent / "template"
_GATEWAY: Final = Path(__file__).parent / "gateway_template"
_SUFFIX: Final = ".tmpl"
"""The suffix hides the templates from tools that look for Python."""


@dataclass(frozen=True, slots=True)
class Scaffold:
    """The result: the folder, and its files as paths within."""

    folder: Path
    files: tuple[str, ...]


def write_plugin(name: str, into: Path, *, is_gateway: bool = False) -> Scaffold:
    """Write the plugin of a name, for a shop or a gateway, to a new folder `tillgate-NAME`; on
    failure raise `InvalidRequest` and write nothing.
    """
    _check(name)
    if not into.is_dir():
        raise InvalidRequest("into", str(into), "is not a folder: make it first, or name another")
    folder = into / f"tillgate-{name}"
    words = {
        "name": name,
        "distribution": folder.name,
        "package": folder.name.replace("-", "_"),
        "class_name": "".join(part.capitalize() for part in name.split("-")),
    }
    root = _GATEWAY if is_gateway else _SHOP
    templates = {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in root.rglob(f"*{_SUFFIX}")
    }
    texts = {
        Template(path.removesuffix(_SUFFIX)).substitute(words): Template(text).substitute(words)
        for path, text in templates.items()
    }
    try:
        folder.mkdir()  # one atomic step: it fails if the folder exists
        for path, text in texts.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
    except FileExistsError:
        raise InvalidRequest(
            "name",
            name,
            f"is taken, {folder} exists: remove it, or choose another name or --into",
        ) from None
    except OSError as error:
        raise InvalidRequest(
            "into",
            str(into),
            f"cannot be written to, {error.strerror}: what is in {folder} is not whole",
        ) from error
    return Scaffold(folder, tuple(sorted(texts)))


def _check(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        better = "-".join(re.findall(r"[a-z0-9]+", name.lower()))
        hint = (
            f"; how about {better}" if _NAME.fullmatch(better) and len(better) <= _LONGEST else ""
        )
        raise InvalidRequest(
            "name",
            name,
            "must be small letters, digits and single hyphens, a letter first, up to "
            f"{_LONGEST}{hint}",
        )
    if name.startswith("tillgate-"):
        raise InvalidRequest(
            "name",
            name,
            f"gets its tillgate- by itself: give {name.removeprefix('tillgate-')}",
        )
    if name == ADAPTER_NAME:
        raise InvalidRequest(
            "name",
            name,
            "is the built-in plugin that speaks with the gateway: choose another",
        )
    if name == IMPORTED_NAME:
        raise InvalidRequest(
            "name",
            name,
            "is the built-in owner of imported orders, beside which no other is loaded: choose "
            "another",
        )
    if name in _OURS:
        raise InvalidRequest(
            "name",
            name,
            f"is a plugin of Tillgate's own: install tillgate-{name}, or choose another",
        )
    package = f"tillgate_{name.replace('-', '_')}"
    if metadata.entry_points(group=ENTRY_POINT_GROUP, name=name) or find_spec(package):
        raise InvalidRequest(
            "name",
            name,
            "is a plugin that is installed here, and orders belong to a plugin by its name: "
            "choose another",
        )
