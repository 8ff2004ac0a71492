"""Amounts as whole cents, read from text only: no float ever holds money here."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,2}))?", re.ASCII)


def cents_of(text: str) -> int | None:
    """Return the cents of a plain decimal with at most two decimals (unspecified behaviour 17), or None for anything else."""
    found = _PLAIN.fullmatch(text)
    if found is None:
        return None
    whole, part = found.groups()
    return int(whole) * 100 + int((part or "").ljust(2, "0"))


def text_of(cents: int) -> str:
    """Write cents the way the interface's examples do: with two decimals."""
    return f"{cents // 100}.{cents % 100:02d}"


def number_of(text: str) -> str:
    """Write an amount as JSON writes numbers: without leading zeros, which a merchant may have sent in text."""
    return re.sub(r"^0+(?=[0-9])", "", text)


def shown(cents: int) -> str:
    """Write cents for people, with separators between thousands."""
    return f"{cents // 100:,}.{cents % 100:02d}"
