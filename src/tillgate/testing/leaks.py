"""A search for secrets in recorded files that does not rely on the scrubbing.

It reads every file as text, and in cassettes also the decoded requests and answers.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import yaml

from tillgate.sandbox import PUBLISHED_TEST_TOKEN
from tillgate.testing.bodies import named_like, read_form, read_json, signed_with
from tillgate.testing.scrubbing import MERCHANT, REPLAY_BASE_URL, SHORTEST_TOKEN, SIGNATURE, WRONG_SIGNATURE, digest, spellings

_HEX: Final = re.compile(r"[0-9a-fA-F]{32,}")
_HARMLESS_HEADERS: Final = frozenset({"content-type", "retry-after"})
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Leak:
    """A secret, or a possible one, in a file. It never holds the secret itself."""

    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def find_leaks(folder: Path | str, *, secrets: Collection[str] = (), environment: Mapping[str, str] = os.environ) -> list[Leak]:
    """Return the secrets in the files under a folder; an empty list is the good result.

    These count as leaks:

    - the given secrets, the published test token and the environment's TILLGATE_TOKEN, each with its MD5 and in any spelling
    - every run of 32 or more hex digits that is not an answer's signature made with the published token
    - a merchantNo, a request's verifySign or a header that scrubbing would have replaced
    - requests to another address than the placeholder

    A missing folder raises `FileNotFoundError`: a search without files would always succeed.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder} is not a folder, so nothing in it can be searched")
    known = {*secrets, PUBLISHED_TEST_TOKEN, environment.get("TILLGATE_TOKEN", "")} - {""}
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return [Leak(path, what) for path in files for what in leaks_in(path.read_text("utf-8", errors="replace"), secrets=known)]


def leaks_in(text: str, *, secrets: Collection[str] = ()) -> list[str]:
    """Return the kinds of secrets in the text of one cassette, each once."""
    cassette = _cassette(text)
    allowed = {signature for answer in _bodies(cassette, "response") for signature in signed_with(read_json(answer), PUBLISHED_TEST_TOKEN)}
    found: dict[str, None] = {}
    if holds_secret(text, secrets):
        found["a known token or its MD5"] = None
    for layer in _layers(text, _DEEPEST):
        if set(_HEX.findall(layer)) - allowed:
            found["32 or more hex digits that are no recomputed signature"] = None
    for what in _out_of_place(cassette):
        found[what] = None
    return list(found)


def holds_secret(text: str, secrets: Collection[str]) -> bool:
    """Return whether a text holds one of the secrets or its MD5, in any spelling."""
    sought = [_sought(value) for secret in secrets for value in (secret, digest(secret))]
    return any(pattern.search(layer) for layer in _layers(text, _DEEPEST) for pattern in sought)


@contextmanager
def everything_logged() -> Iterator[list[str]]:
    """Collect the records of every logger at every level, with tracebacks and all other attributes."""
    lines: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend((self.format(record), repr(record.__dict__)))

    ear, root = Ear(), logging.getLogger()
    loggers: list[logging.Logger] = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    before: list[tuple[Any, int, bool]] = [(one, one.level, one.propagate) for one in [root, *loggers]]
    for one in loggers:
        one.setLevel(logging.NOTSET)
        one.propagate = True
    root.setLevel(logging.DEBUG)
    root.addHandler(ear)
    try:
        yield lines
    finally:
        root.removeHandler(ear)
        for one, level, propagates in before:
            one.setLevel(level)
            one.propagate = propagates


def _sought(secret: str) -> re.Pattern[str]:
    spelt = "|".join(re.escape(spelling) for spelling in spellings(secret))
    return re.compile(spelt if len(secret) >= SHORTEST_TOKEN else rf"(?<!\w)(?:{spelt})(?!\w)", re.IGNORECASE)


def _cassette(text: str) -> Mapping[str, Any]:
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _parts(cassette: Mapping[str, Any], side: str) -> Iterator[Mapping[str, Any]]:
    interactions = cassette.get("interactions")
    for interaction in interactions if isinstance(interactions, list) else ():
        part = interaction.get(side) if isinstance(interaction, dict) else None
        if isinstance(part, dict):
            yield part


def _bodies(cassette: Mapping[str, Any], side: str) -> Iterator[str]:
    for part in _parts(cassette, side):
        body = part.get("body")
        content = body.get("string") if isinstance(body, dict) else body
        yield content.decode("latin-1") if isinstance(content, bytes) else str(content or "")


def _layers(value: Any, depth: int) -> Iterator[str]:
    """Yield every text inside a value, and its contents after unquoting or after reading it as YAML, JSON or a form."""
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _layers(name, depth)
            yield from _layers(member, depth)
    elif isinstance(value, list):
        for member in value:
            yield from _layers(member, depth)
    elif isinstance(value, str):
        yield value
        if depth:
            yield from _inside(value, depth - 1)


def _inside(text: str, depth: int) -> Iterator[str]:
    if "%" in text and unquote(text) != text:
        yield from _layers(unquote(text), depth)
    structured = read_json(text)
    if structured is None and "\n" in text:
        structured = _cassette(text)  # the scalars of YAML may be folded over lines or spelt in base64
    if structured:
        yield from _layers(structured, depth)


def _out_of_place(cassette: Mapping[str, Any]) -> Iterator[str]:
    for call in _parts(cassette, "request"):
        if not str(call.get("uri", "")).startswith(f"{REPLAY_BASE_URL}/"):
            yield "a request to another address than the placeholder"
        query = str(call.get("uri", "")).partition("?")[2]
        body = next(_bodies({"interactions": [{"request": call}]}, "request"), "")
        members = [*read_form(query), *read_form(body), *named_like(read_json(body), ("merchantNo", "verifySign"))]
        yield from _strangers(members, (SIGNATURE,))
    for body in _bodies(cassette, "response"):
        signed = signed_with(read_json(body), PUBLISHED_TEST_TOKEN)
        yield from _strangers(named_like(read_json(body), ("merchantNo", "verifySign")), (WRONG_SIGNATURE, SIGNATURE, *signed))
    for side in ("request", "response"):
        for part in _parts(cassette, side):
            for name in part.get("headers") or ():
                if str(name).lower() not in _HARMLESS_HEADERS:
                    yield f"the header {name}"


def _strangers(members: Any, signatures: Collection[str]) -> Iterator[str]:
    for name, value in members:
        if name == "merchantNo" and value not in ("", MERCHANT):
            yield "a merchantNo"
        if name == "verifySign" and value not in ("", *signatures):
            yield "a verifySign that no published token gives"
