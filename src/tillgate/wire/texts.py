"""Text from outside, made safe to store and to show."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["described", "masked", "printable", "storable"]

_MD5_HEX = re.compile(r"[0-9a-fA-F]{32}")
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")
_LONGEST_SHOWN: Final = 300


def storable(text: str) -> str:
    """Return the text with U+FFFD for the characters that a database refuses: NUL and half a surrogate pair."""
    return _NOT_STORABLE.sub("\ufffd", text)


def masked(text: str) -> str:
    """Return the text, cut to a bound, without any possible signature: a gateway may print the one that it expected (I11)."""
    return text if len(text) < 32 else _MD5_HEX.sub("***", text)[:_LONGEST_SHOWN]


def printable(text: str) -> str:
    """Return the text with its control characters escaped, so that a terminal shows foreign text and never obeys it."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def described(error: Exception) -> str:
    """Return the text of a foreign library's exception. It may quote the gateway's answer, which may quote Tillgate's request."""
    return masked(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
