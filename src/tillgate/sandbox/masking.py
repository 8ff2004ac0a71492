"""Bodies for display: pretty, short, and without signatures."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl

from .requests import Bare

_SIGNATURE = re.compile(r"(verifySign\"?\s*(?:=|:)\s*\"?)([0-9A-Za-z]{1,4})[0-9A-Za-z]*")
_LONGEST = 4000


def shown(body: bytes) -> str:
    """Return a body for people to read, one parameter a line, each verifySign cut to its first
    characters.
    """
    text = body.decode("utf-8", "replace")
    return _SIGNATURE.sub(r"\1\2…", _pretty(text))[:_LONGEST]


def _pretty(text: str) -> str:
    try:
        found = json.loads(text, parse_float=Bare, parse_int=Bare)
        if isinstance(found, (dict, list)):
            return "\n".join(_lines(found))
    except (ValueError, RecursionError):
        pass
    if "=" in text and not any(character in text for character in " <\n"):
        address, mark, query = text.rpartition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        return "\n".join(
            [*([address + mark] if address else []), *(f"{name}={value}" for name, value in pairs)],
        )
    return text


def _lines(value: object, indent: str = "") -> list[str]:
    if isinstance(value, dict):
        lines = []
        for name, member in value.items():
            if isinstance(member, (dict, list)):
                lines += [f"{indent}{name}:", *_lines(member, indent + "  ")]
            else:
                lines.append(f"{indent}{name}: {_scalar(member)}")
        return lines
    if isinstance(value, list):
        return [line for member in value for line in ["-", *_lines(member, indent + "  ")]]
    return [f"{indent}{_scalar(value)}"]


def _scalar(value: object) -> str:
    return str(value) if isinstance(value, Bare) else json.dumps(value, ensure_ascii=False)
