"""Macros: placeholders in the callback address that the gateway replaces (Create payment;
unspecified behaviour 10).

The values are hints, and Tillgate never trusts them (I7).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, quote, unquote_plus, urlsplit, urlunsplit

from tillgate.errors import InvalidRequest
from tillgate.wire.dialects import REFERENCE
from tillgate.wire.urls import is_web_address

__all__ = ["callback_url", "read_callback"]

_PLACEHOLDER = re.compile(r"\{[A-Za-z_]*\}", re.ASCII)
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


def callback_url(address: str, macros: Sequence[str] = REFERENCE.macros) -> str:
    """Return the address with one `name={name}` for each macro added to the shop's own query.

    The shop's query is percent-encoded, braces included, so that the gateway never takes a shop's
    value for a macro. A parameter with the name of a macro raises `InvalidRequest`, because the
    gateway's value would be indistinguishable from it.
    """
    placeholders = {f"{{{name}}}": name for name in macros}
    try:
        parts = urlsplit(address)
        pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
        own = [
            (_quoted(name), value if value in placeholders else _quoted(value))
            for name, _, value in pairs
        ]
        path = quote(_STRAY_PERCENT.sub("%25", parts.path), safe="/%:@!$&'()*+,;=~-._")
        fragment = quote(_STRAY_PERCENT.sub("%25", parts.fragment), safe="/%?:@!$&'()*+,;=~-._")
    except ValueError:
        raise InvalidRequest(
            "callback_url",
            address,
            "is not an absolute http(s) address in UTF-8",
        ) from None
    ours = [(name, placeholder) for placeholder, name in placeholders.items()]
    for name, value in own:
        if name in macros and (name, value) not in ours:
            raise InvalidRequest(
                "callback_url",
                address,
                f"gives {name} a value of its own, and the service answers under that name",
            )
    query = "&".join(
        f"{name}={value}" for name, value in own + [pair for pair in ours if pair not in own]
    )
    built = urlunsplit(parts._replace(path=path or "/", query=query, fragment=fragment))
    if not is_web_address(built):
        raise InvalidRequest("callback_url", address, "is not an absolute http(s) address")
    return built


def _quoted(text: str) -> str:
    return quote(unquote_plus(text, errors="strict"), safe="")


def read_callback(
    query: str | Mapping[str, str],
    macros: Sequence[str] = REFERENCE.macros,
) -> dict[str, str | None]:
    """Return the value of each macro, None if it is absent, empty or still a placeholder, from a
    query string or mapping; never raise.
    """
    values = (
        dict(parse_qsl(query, keep_blank_values=True, errors="replace"))
        if isinstance(query, str)
        else query
    )
    return {name: _given(values.get(name)) for name in macros}


def _given(value: str | None) -> str | None:
    return None if not value or _PLACEHOLDER.fullmatch(value) else value
