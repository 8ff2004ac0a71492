"""Text that came from outside, made safe to keep and to show."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["described", "masked", "printable", "storable"]

_MD5_HEX = re.compile(r"[0-9a-fA-F]{32}")
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")
_LONGEST_SHOWN: Final = 300


def storable(text: str) -> str:
    """Return the text without what a database refuses.

    Half a surrogate pair cannot be encoded and PostgreSQL refuses NUL: nothing must fail to be stored for that. What stands in their place
    means nothing anywhere, as a question mark would in an address.
    """
    return _NOT_STORABLE.sub("\ufffd", text)


def masked(text: str) -> str:
    """Return the text, within a bound, with whatever may be a signature hidden.

    A gateway that complains about a signature may well print the one it wanted (I11).
    """
    return text if len(text) < 32 else _MD5_HEX.sub("***", text)[:_LONGEST_SHOWN]


def printable(text: str) -> str:
    """Return the text with its control characters escaped: what others say is shown by a terminal, and never obeyed."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def described(error: Exception) -> str:
    """Return what an exception of a foreign library says. It may quote what the gateway sent, and that may quote us."""
    return masked(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
