"""Bodies for display: short, one parameter a line, and without signatures."""

from __future__ import annotations

import re

_BETWEEN = re.compile(r'&|(?<=,)(?=")')
_SIGNATURE = re.compile(r"(verifySign\"?\s*(?:=|:)\s*\"?)([0-9A-Za-z]{1,4})[0-9A-Za-z]*")
_LONGEST = 4000


def shown(body: bytes) -> str:
    """Return a body for people to read, as it was sent but for line breaks between parameters, each
    verifySign cut to its first characters.
    """
    text = body.decode("utf-8", "replace")
    if "<" not in text:
        text = _BETWEEN.sub("\n", text)
    return _SIGNATURE.sub(r"\1\2…", text)[:_LONGEST]
