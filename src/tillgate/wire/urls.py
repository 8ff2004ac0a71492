"""Addresses that cross the wire: absolute, http or https, without any part that could smuggle a header or a user name."""

from __future__ import annotations

import ipaddress
import re

__all__ = ["is_https", "is_web_address", "without_user"]

# No user name, no macro, and no host that a resolver would fail on. Braces are allowed after the host, since a callback address
# carries macros. Everything else outside RFC 3986 must arrive percent-encoded. The pattern reads the address, because urlsplit
# forgives too much.
_NAME = r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?"
_HOST = rf"(?P<host>(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>{_NAME}))(?::(?P<port>[0-9]{{1,5}}))?)"
_ADDRESS = re.compile(rf"(?i:https?)://{_HOST}(?:[/?#][A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%{{}}]*)?", re.ASCII)


def is_web_address(text: object) -> bool:
    """Return whether the text is an absolute http(s) address with a host, without credentials."""
    address = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
    if not address:
        return False
    host, ipv6, name, port = address.groups()
    if len(host) > 255 or (port and not 0 < int(port) < 65536):
        return False
    try:
        if ipv6:
            ipaddress.IPv6Address(ipv6)
        elif name.rpartition(".")[2].isdigit():
            ipaddress.IPv4Address(name)
        elif "xn--" in name.lower():
            name.encode().decode("idna")
    except ValueError:
        return False
    return True


def is_https(text: str) -> bool:
    """Return whether an address is https."""
    return text[:8].lower() == "https://"


def without_user(value: object) -> object:
    """Return a refused address as an error may show it: without the user name and password before its `@`."""
    return value.rpartition("@")[2] if isinstance(value, str) else value
