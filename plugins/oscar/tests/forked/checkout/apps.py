"""A shop's fork of `checkout`, made as Oscar's documentation says."""

from oscar.apps.checkout.apps import CheckoutConfig as OscarsConfig


class CheckoutConfig(OscarsConfig):  # type: ignore[misc]
    name = "tests.forked.checkout"
