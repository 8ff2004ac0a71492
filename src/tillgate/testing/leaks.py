"""A search for secrets in texts, in the spellings that a gateway could give them, and what every
logger says.
"""

from __future__ import annotations

import html
import logging
import re
from base64 import b64encode
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import md5
from typing import Any, Final
from urllib.parse import unquote

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


def digest(token: str) -> str:
    """Return the MD5 of a token, which can sign as well as the token itself (Authentication, step
    5).
    """
    return md5(token.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


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
    plain, hashed = (
        secret.encode("utf-8", "surrogatepass"),
        md5(secret.encode("utf-8", "surrogatepass"), usedforsecurity=False),
    )
    yield secret
    for value in (plain, hashed.hexdigest().encode(), hashed.digest()):
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
    """Yield a text, and what is left of it when escapes and percent signs are resolved, until none
    are left.
    """
    for _ in range(_DEEPEST):
        yield text
        plain = unquote(
            html.unescape(_ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), text)),
        )
        if plain == text:
            return
        text = plain


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
