"""verifySign: the MD5 signature of the interface (Authentication, steps 1 to 6).

The two signing examples disagree about empty parameters. Tillgate sends none, and checks both
readings (unspecified behaviour 1).
"""

from __future__ import annotations

import functools
import hmac
from collections.abc import Mapping
from hashlib import md5
from typing import Any

from tillgate.errors import InvalidRequest

__all__ = ["SIGNATURE", "sign", "steps", "verify"]

SIGNATURE = "verifySign"


@functools.lru_cache(maxsize=64)
def _token_digest(token: str) -> str:
    # Step 5 hashes the token itself each time; an account signs thousands of requests with one
    # token.
    return md5(token.encode(), usedforsecurity=False).hexdigest()


def sign(parameters: Mapping[str, str], token: str) -> str:
    """Return verifySign, 32 lower-case hex digits, of the parameters.

    The signature leaves out a verifySign among the parameters (step 1) and empty parameters (step
    3). Values are the exact texts on the wire.
    """
    if SIGNATURE in parameters:
        parameters = {name: value for name, value in parameters.items() if name != SIGNATURE}
    try:
        # Concatenation, unlike formatting, raises TypeError for a value that is not text.
        return _digest(
            "&".join(
                [
                    name + "=" + value
                    for name in sorted(parameters)
                    if (value := parameters[name]) != ""
                ],
            ),
            token,
        )
    except (TypeError, UnicodeEncodeError):
        del token  # error reports print local variables (I11)
    raise _fault(parameters)


def verify(parameters: Mapping[str, str], token: str, signature: str | None = None) -> bool:
    """Return, in constant time, whether a signature belongs to the parameters under a reading of
    step 3.

    A third reading leaves out "0" too, as the PHP module of the public service does. The signature
    is the parameters' own verifySign unless the caller passes one. No signature gives False, and so
    does invalid Unicode.
    """
    given = parameters.get(SIGNATURE) if signature is None else signature
    if not given:
        return False
    claimed = given.encode("utf-8", "surrogatepass")
    everything = sorted(pair for pair in parameters.items() if pair[0] != SIGNATURE)
    readings = (
        everything,
        [pair for pair in everything if pair[1] != ""],
        [pair for pair in everything if pair[1] not in ("", "0")],
    )
    try:
        matches = [
            hmac.compare_digest(_digest("&".join(map("=".join, reading)), token).encode(), claimed)
            for reading in readings
        ]
    except UnicodeEncodeError:
        return False
    return any(matches)


def steps(parameters: Mapping[str, str], token: str) -> dict[str, str]:
    """Return the signature's steps in order with their intermediate texts, the token's digest
    masked, for people to compare.
    """
    kept = {name: value for name, value in parameters.items() if value != "" and name != SIGNATURE}
    left_out = sorted(set(parameters) - set(kept))
    joined = "&".join(map("=".join, sorted(kept.items())))
    return {
        "left_out": ", ".join(left_out) or "none",
        "sorted": ", ".join(sorted(kept)),
        "joined": joined,
        "with_token": f"{joined}&{'*' * 32}",
        "signature": sign(parameters, token),
    }


def _digest(text: str, token: str) -> str:
    return md5(f"{text}&{_token_digest(token)}".encode(), usedforsecurity=False).hexdigest()


def _fault(parameters: Mapping[Any, Any]) -> InvalidRequest:
    for name, value in parameters.items():
        if not isinstance(name, str) or not isinstance(value, str):
            return InvalidRequest(str(name), value, "is not text: sign the texts of the request")
    return InvalidRequest(
        "parameters",
        ", ".join(parameters),
        "hold text that is not valid Unicode",
    )
