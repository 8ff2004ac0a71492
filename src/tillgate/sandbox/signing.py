"""Signatures as "Authentication" describes them, in code of their own: two independent readings
that agree prove more than one.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import lru_cache
from hashlib import md5

FIELD = "verifySign"


@lru_cache(maxsize=256)
def _digest(token: str) -> str:
    return md5(token.encode(), usedforsecurity=False).hexdigest()


def signature(parameters: Mapping[str, str], token: str, *, keep_empty: bool = False) -> str:
    """Return the signature of `parameters`; `keep_empty` selects one of the two readings of
    unspecified behaviour 1.
    """
    parts = [
        f"{name}={value}"
        for name, value in sorted(parameters.items())
        if name != FIELD and (keep_empty or value)
    ]
    parts.append(_digest(token))
    return md5("&".join(parts).encode(), usedforsecurity=False).hexdigest()


def matches(parameters: Mapping[str, str], token: str, *, empty_parameters: str = "either") -> bool:
    """Return in constant time whether `parameters` carry a right signature under the chosen reading
    of unspecified behaviour 1.
    """
    given = parameters.get(FIELD, "").encode()
    readings = {"skip": (False,), "keep": (True,), "either": (False, True)}[empty_parameters]
    return any(
        hmac.compare_digest(given, signature(parameters, token, keep_empty=keep).encode())
        for keep in readings
    )


def wrong(parameters: Mapping[str, str], token: str) -> str:
    """Return a signature of the right shape that cannot be right: another token makes it."""
    return signature(parameters, f"not {token}")
