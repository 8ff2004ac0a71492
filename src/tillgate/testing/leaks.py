"""A search for secrets in recorded files, in the spellings that a gateway could give them.

It does not rely on the scrubbing: it reads the finished file as text. Of cassettes it also names
the changes that scrubbing would have made.
"""

from __future__ import annotations

import html
import logging
import os
import re
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import yaml
from vcr.serialize import deserialize
from vcr.serializers import yamlserializer

from tillgate.account import Account
from tillgate.sandbox import PUBLISHED_MERCHANT_NO, PUBLISHED_TEST_TOKEN
from tillgate.testing.scrubbing import REPLAY_BASE_URL, Scrubber, read_json

_HEX: Final = re.compile(r"[0-9a-fA-F]{32,}")
_ESCAPE: Final = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_PIECE: Final = 12
"""So many letters and digits in a row of a secret are a leak: half a token is as good as a hint to
the rest.
"""

_SHORTEST_TOKEN: Final = 8
"""A shorter token, which no gateway issues but a test may use, is searched for as a whole word: "t"
is in every address.
"""

_DEEPEST: Final = 4
NOT_A_CASSETTE: Final = (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError)
"""The errors of YAML and vcrpy over a file that is no cassette."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A secret, or a possible one, in a file. It never holds the secret itself."""

    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def find_leaks(
    folder: Path | str,
    *,
    secrets: Collection[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> list[Leak]:
    """Return the secrets in the files under a folder; an empty list is the good result.

    These count as leaks:

    - the given secrets, the published test token and the environment's TILLGATE_TOKEN, each with
      its MD5: as they are, in hex or base64, with escapes or percent signs, whole or 12 characters
      of them
    - every run of 32 or more hex digits that is not an answer's signature made with the published
      token
    - every part of a cassette that scrubbing would change

    A missing folder raises `FileNotFoundError`: a search without files would always succeed.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder} is not a folder, so nothing in it can be searched")
    known = {*secrets, PUBLISHED_TEST_TOKEN, environment.get("TILLGATE_TOKEN", "")} - {""}
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return [
        Leak(path, what)
        for path in files
        for what in leaks_in(path.read_text("utf-8", errors="replace"), secrets=known)
    ]


def leaks_in(text: str, *, secrets: Collection[str] = ()) -> list[str]:
    """Return the kinds of secrets in the text of one file, each once."""
    found: dict[str, None] = {}
    if holds_secret(text, secrets):
        found["a known token or its MD5"] = None
    scrubbed, changed = _scrubbed_again(text)
    if {run for layer in _layers(text) for run in _HEX.findall(layer)} - set(
        _HEX.findall(scrubbed),
    ):
        found["32 or more hex digits that are no recomputed signature"] = None
    return [*found, *dict.fromkeys(changed)]


def holds_secret(text: str, secrets: Collection[str]) -> bool:
    """Return whether a text holds one of the secrets or its MD5, in any spelling, or a piece of
    one.
    """
    pieces = {
        piece
        for secret in secrets
        for spelling in _spellings(secret)
        for piece in _pieces(spelling)
    }
    words = [re.escape(secret) for secret in secrets if len(_letters(secret)) < _SHORTEST_TOKEN]
    word = re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE) if words else None
    short = [piece for piece in pieces if len(piece) < _PIECE]
    for layer in _layers(text):
        letters = _letters(layer)
        if (
            not pieces.isdisjoint(_pieces(letters))
            or any(piece in letters for piece in short)
            or (word and word.search(layer))
        ):
            return True
    return False


def _spellings(secret: str) -> Iterator[str]:
    plain, digest = (
        secret.encode("utf-8", "surrogatepass"),
        md5(secret.encode("utf-8", "surrogatepass"), usedforsecurity=False),
    )
    yield secret
    for value in (plain, digest.hexdigest().encode(), digest.digest()):
        yield value.hex()
        # base64 depends on where in a group of three bytes the secret begins
        for shift, skipped in enumerate((0, 2, 3)):
            yield b64encode(bytes(shift) + value).decode()[skipped : (shift + len(value)) * 8 // 6]


def _letters(text: str) -> str:
    """Return the letters and digits: line breaks, backslashes and separators may be anywhere in a
    secret.
    """
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _pieces(text: str) -> set[str]:
    letters = _letters(text)
    if len(letters) < _PIECE:
        return {letters} if len(letters) >= _SHORTEST_TOKEN else set()
    return {letters[start : start + _PIECE] for start in range(len(letters) - _PIECE + 1)}


def _layers(text: str) -> Iterator[str]:
    """Yield a text, and the text with escapes and percent signs resolved, until none are left."""
    for _ in range(_DEEPEST):
        yield text
        plain = unquote(
            html.unescape(_ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), text)),
        )
        if plain == text:
            return
        text = plain


def _scrubbed_again(text: str) -> tuple[str, list[str]]:
    """Return a cassette's parts as scrubbing writes them, and the names of the parts that it
    changes.
    """
    try:
        requests, responses, *_ = deserialize(text, yamlserializer)
        parts = list(_compared(requests, responses))
    except (*NOT_A_CASSETTE, RecursionError):
        return "", []
    return str([after for _, _, after in parts]), [
        f"{name} as scrubbing does not write it" for name, was, after in parts if was != after
    ]


def _compared(requests: list[Any], responses: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    scrubber = Scrubber(
        Account(
            base_url=REPLAY_BASE_URL,
            merchant_no=PUBLISHED_MERCHANT_NO,
            token=PUBLISHED_TEST_TOKEN,
        ),
    )
    for was, after in ((one, scrubber.request(one)) for one in requests):
        if after is None:
            yield "a request to another address", was.uri, None
            continue
        yield "a request's address", was.uri, after.uri
        yield "a request's header", _names(was.headers), _names(after.headers)
        yield "a request's body", _body(was.body), _body(after.body)
    for was, after in ((one, scrubber.response(one)) for one in responses):
        yield "an answer's status", was["status"], after["status"]
        yield "an answer's header", _names(was["headers"]), _names(after["headers"])
        yield "an answer's body", _body(was["body"].get("string")), _body(after["body"]["string"])


def _names(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {
        str(name).lower(): value if isinstance(value, list) else [value]
        for name, value in headers.items()
    }


def _body(body: bytes | str | None) -> Any:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body or ""
    return text if (found := read_json(text)) is None else found


@contextmanager
def everything_logged() -> Iterator[list[str]]:
    """Collect the records of every logger at every level, with tracebacks and all other
    attributes.
    """
    lines: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend((self.format(record), repr(record.__dict__)))

    ear, root = Ear(), logging.getLogger()
    loggers: list[logging.Logger] = [
        one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)
    ]
    before: list[tuple[Any, int, bool]] = [
        (one, one.level, one.propagate) for one in [root, *loggers]
    ]
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
