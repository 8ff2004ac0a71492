"""System checks: `manage.py check` reports problems that keep a Saleor from being paid, with the
remedy.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from django.conf import settings as project
from django.urls import NoReverseMatch, reverse

from tillgate import ConfigurationError
from tillgate.shop import CheckSet, Found, payment_methods
from tillgate_saleor.conf import get_settings

CHECKS: Final = CheckSet("tillgate_saleor")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@CHECKS.area
def check_apps() -> Found:
    """Whether the App has addresses."""
    try:
        reverse("tillgate_saleor:manifest")
    except NoReverseMatch:
        hint = 'Add path("saleor/", include("tillgate_saleor.urls")) to the project\'s urlpatterns.'
        yield CHECKS.error(2, "The App has no address, so no Saleor can install it.", hint)


@CHECKS.area
def check_settings() -> Found:
    """Whether TILLGATE_SALEOR can be read, and a Saleor may install the App and send its shoppers
    back.
    """
    try:
        settings = get_settings()
    except ConfigurationError as error:
        hint = (
            'Set TILLGATE_SALEOR = {"SALEORS": {"https://shop.example": {...}}}, or the '
            "variables SALEOR_... of the service."
        )
        yield CHECKS.error(3, str(error), hint)
        return
    if not settings.saleors:
        hint = (
            'Name it: TILLGATE_SALEOR = {"SALEORS": {"https://shop.example": {...}}}, or '
            "SALEOR_ORIGINS for the service."
        )
        yield CHECKS.warning(1, "No Saleor may install the App.", hint)
    for origin, saleor in settings.saleors.items():
        if not saleor.storefronts:
            hint = (
                'Name them: "STOREFRONTS": ["https://www.shop.example"], or SALEOR_STOREFRONTS '
                "for the service."
            )
            yield CHECKS.warning(
                2,
                f"Saleor {origin} has no storefront: shoppers stay on the service's own page "
                "after paying.",
                hint,
            )
        is_here = urlsplit(origin).hostname in _LOOPBACK  # the token does not leave the machine
        if not origin.startswith("https:") and not is_here and not project.DEBUG:
            yield CHECKS.warning(
                3,
                f"Saleor {origin} is not https: its token would be sent in the open.",
                "Give its https address.",
            )


@CHECKS.area
def check_channels() -> Found:
    """Whether the accounts and payment methods of the channels are there."""
    try:
        settings = get_settings()
    except ConfigurationError:
        return  # reported already
    for origin, saleor in settings.saleors.items():
        for slug, channel in saleor.channels.items():
            place = f"Channel {slug!r} of Saleor {origin}"
            try:
                offered = {method.code for method in payment_methods(channel.account)}
            except ConfigurationError as error:
                yield CHECKS.error(
                    4,
                    f"{place}: {error}.",
                    'Add the account there, or leave ACCOUNT out for the account "default".',
                )
                continue
            if missing := [
                method for method in channel.payment_methods or () if method not in offered
            ]:
                sentence = (
                    f"{place}: {', '.join(missing)} is not among the account's methods and "
                    "TILLGATE['PAYMENT_METHODS']."
                )
                yield CHECKS.warning(4, sentence, "Add it there, or remove it here.")
