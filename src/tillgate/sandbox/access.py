"""Access to the developer's pages and the control API: this machine alone, unless the options open
them to the public.

Bound to loopback is not enough. A web page in the developer's browser can name this server under a
host of its own (DNS rebinding) and can send it forms across sites, and a tunnel can bring strangers
in. So the Host header must be loopback's, writing needs JSON and no foreign Origin, and a request
that came through a proxy counts as public. A stranger can choose the address of a notification. The
sandbox marks its own requests and refuses them, so that no notification becomes a command.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from starlette.requests import Request

NOTIFICATION_AGENT = "payment-gateway-sandbox"
"""The User-Agent of every notification: the sandbox recognises its own requests by it."""

_PROXIED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True, slots=True)
class Access:
    """The rule for one server: whether it listens to more than loopback, and whether the public may
    control it.
    """

    public: bool = False
    control_public: bool = False

    def may_look(self, request: Request) -> bool:
        """Return whether this request may see the developer's pages."""
        if request.headers.get("user-agent") == NOTIFICATION_AGENT:
            return False
        if self.control_public:
            return True
        client = request.client.host if request.client else "127.0.0.1"
        proxied = any(name in request.headers for name in _PROXIED)
        return (
            is_loopback(client)
            and not self.public
            and not proxied
            and is_loopback(_parts(f"//{request.headers.get('host', '')}").hostname or "")
        )

    def may_act(self, request: Request) -> bool:
        """Return whether this request may change something. A browser cannot send such JSON across
        sites without a preflight request.
        """
        if not self.may_look(request):
            return False
        origin = request.headers.get("origin")
        return origin is None or _parts(origin).netloc == request.headers.get("host")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address means this machine and nothing else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parts(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
