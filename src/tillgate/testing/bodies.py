"""Bodies: JSON and forms as they stood on the wire, and the signatures in answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from tillgate.money import WireNumber, json_decoder
from tillgate.wire import signing


def read_form(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a form or query string, or nothing when it is not plainly one."""
    try:
        return parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict") if text else []
    except ValueError:
        return []


def read_json(text: str) -> Any:
    """Return a JSON object or array with its numbers as their texts, or None when it is anything else or says a name twice."""
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name comes twice, which would be lost")
    return members


_DECODER = json_decoder(_members)


def write_json(value: Any, indent: str = "") -> str:
    """Write JSON one member a line, its numbers as they stood on the wire."""
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        members = (f"{inner}{_json_text(name)}: {write_json(member, inner)}" for name, member in value.items())
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(inner + write_json(member, inner) for member in value) + f"\n{indent}]"
    if isinstance(value, WireNumber):
        return value.text
    return _json_text(value)


def _json_text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)  # half a surrogate pair has no other spelling
    return text


def named_like(value: Any, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every name and text of these names, at any depth."""
    if isinstance(value, dict):
        for name, member in value.items():
            if name in names and isinstance(member, str | WireNumber):
                yield name, member.text if isinstance(member, WireNumber) else member
            yield from named_like(member, names)
    elif isinstance(value, list):
        for member in value:
            yield from named_like(member, names)


def signed_with(envelope: Any, token: str) -> set[str]:
    """Return the signatures in an answer that the token makes."""
    if not isinstance(envelope, dict):
        return set()
    claims = {claim for place in places(envelope) if isinstance(claim := place.get(signing.SIGNATURE), str)}
    return {claim for claim in claims if any(signing.verify(reading, token, claim) for reading in signed_readings(envelope))}


def places(envelope: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of an answer that can carry its signature: the envelope and its result."""
    yield envelope
    if isinstance(envelope.get("result"), dict):
        yield envelope["result"]


def signed_readings(envelope: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the fields that an answer's signature can cover: all its plain fields, or those of its result alone.

    "The algorithm for checking response signatures is not shown" (Authentication), so the client tries both.
    """
    inner = [_wire_texts(place) for place in places(envelope)]
    yield {name: text for texts in inner for name, text in texts.items()}
    yield inner[-1]


def _wire_texts(members: Mapping[str, Any]) -> dict[str, str]:
    texts = {}
    for name, value in members.items():
        if isinstance(value, bool):
            texts[name] = "true" if value else "false"
        elif isinstance(value, str):
            texts[name] = value.encode("utf-8", "replace").decode()
        elif isinstance(value, WireNumber):
            texts[name] = value.text
    return texts
