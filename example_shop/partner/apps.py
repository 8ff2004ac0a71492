"""Oscar's partner app, with this shop's prices."""

from oscar.apps.partner.apps import PartnerConfig as OscarPartnerConfig


class PartnerConfig(OscarPartnerConfig):  # type: ignore[misc]  # Oscar ships no types
    """In place of Oscar's own."""

    name = "example_shop.partner"
