"""Requests of a plugin: a transport for httpx that keeps to one deadline for the whole answer,
however slowly it arrives. Import it from `tillgate.shop.http`: `tillgate.shop` loads no httpx.
"""

from tillgate.transport import DeadlineTransport, keep_to

__all__ = ["DeadlineTransport", "keep_to"]
