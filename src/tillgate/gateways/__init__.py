"""What the author of a gateway plugin builds on: the profile of a gateway with its options.

docs/how-to/write-a-gateway-plugin.md is the guide, and docs/reference/profile.md the reference.
"""

from tillgate.wire.profile import GatewayProfile, Option

__all__ = ["GatewayProfile", "Option"]
