"""Addresses that cross the wire: absolute, http or https, without any part that could smuggle a
header or a user name.
"""

from __future__ import annotations

import ipaddress
import re

__all__ = ["is_https", "is_public_address", "is_web_address", "without_user"]

# No user name, no macro, and no host that a resolver would fail on. Braces are allowed after the
# host, since a callback address carries macros. Everything else outside RFC 3986 must arrive
# percent-encoded. The pattern reads the address, because urlsplit forgives too much.
_NAME = r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?"
_HOST = rf"(?P<host>(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>{_NAME}))(?::(?P<port>[0-9]{{1,5}}))?)"
_ADDRESS = re.compile(
    rf"(?i:https?)://{_HOST}(?:[/?#][A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%{{}}]*)?",
    re.ASCII,
)


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


def is_public_address(address: str) -> bool:
    """Return whether an IP address is one of the internet, and not of this machine or of a private
    network.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = _inner_address(ip) or ip
    return ip.is_global and not ip.is_multicast


# A host or a translator on the way unwraps the IPv4 address in these, so that one decides.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE = ipaddress.IPv6Network("::/96")


def _inner_address(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if ip in _NAT64 or ip in _IPV4_COMPATIBLE:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


def without_user(value: object) -> object:
    """Return a refused address as an error may show it: without the user name and password before
    its `@`.
    """
    return value.rpartition("@")[2] if isinstance(value, str) else value
