"""The style and the scripts of the shopper's pages, read once; their addresses contain a hash of
the content, for browsers' caches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from django.urls import reverse

_FOLDER: Final = Path(__file__).parent / "web"


@dataclass(frozen=True, slots=True)
class _Asset:
    text: str
    content_type: str
    mark: str


def _read(name: str, content_type: str) -> _Asset:
    text = (_FOLDER / name).read_text("utf-8")
    return _Asset(
        text,
        f"{content_type}; charset=utf-8",
        hashlib.sha256(text.encode()).hexdigest()[:12],
    )


ASSETS: Final[Mapping[str, _Asset]] = MappingProxyType(
    {
        "pages.css": _read("pages.css", "text/css"),
        "choose.js": _read("choose.js", "text/javascript"),
        "poll.js": _read("poll.js", "text/javascript"),
    },
)


def asset_url(name: str) -> str:
    """Return the address of the style or a script."""
    return f"{reverse('tillgate:asset', args=[name])}?{ASSETS[name].mark}"
