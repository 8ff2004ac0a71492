"""Oscar's shipping app, with this shop's methods."""

from oscar.apps.shipping.apps import ShippingConfig as OscarShippingConfig


class ShippingConfig(OscarShippingConfig):  # type: ignore[misc]  # Oscar ships no types
    """In place of Oscar's own."""

    name = "example_shop.shipping"
