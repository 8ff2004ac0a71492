"""System checks: `manage.py check` reports problems that keep a Saleor from being paid, with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from django.apps import apps
from django.conf import settings as project
from django.core import checks
from django.urls import NoReverseMatch, reverse

from tillgate.django.conf import get_settings as get_tillgate_settings
from tillgate.errors import ConfigurationError
from tillgate.wire.urls import is_https
from tillgate_saleor.conf import get_settings

__all__ = ["AREAS", "TAG"]

TAG: Final = "tillgate_saleor"

Found = Iterator[checks.CheckMessage]


def _error(number: int, message: str, hint: str) -> checks.Error:
    return checks.Error(message, hint=hint, id=f"tillgate_saleor.E{number:03}")


def _warning(number: int, message: str, hint: str) -> checks.Warning:
    return checks.Warning(message, hint=hint, id=f"tillgate_saleor.W{number:03}")


def check_apps() -> Found:
    """Whether Tillgate's own app is there, and the App has addresses."""
    if not apps.is_installed("tillgate.django"):
        yield _error(1, "Tillgate's own app is not installed.", 'Add "tillgate.django" to INSTALLED_APPS, before "tillgate_saleor".')
    try:
        reverse("tillgate_saleor:manifest")
    except NoReverseMatch:
        hint = 'Add path("saleor/", include("tillgate_saleor.urls")) to the project\'s urlpatterns.'
        yield _error(2, "The App has no address, so no Saleor can install it.", hint)


def check_settings() -> Found:
    """Whether TILLGATE_SALEOR can be read, and a Saleor may install the App and send its shoppers back."""
    try:
        settings = get_settings()
    except ConfigurationError as error:
        yield _error(3, str(error), "Correct TILLGATE_SALEOR in the project's settings, or the variables SALEOR_... of the service.")
        return
    if not settings.saleors:
        hint = 'Name it: TILLGATE_SALEOR = {"SALEORS": {"https://shop.example": {...}}}, or SALEOR_ORIGINS for the service.'
        yield _warning(1, "No Saleor may install the App.", hint)
    for origin, saleor in settings.saleors.items():
        if not saleor.storefronts:
            hint = 'Name them: "STOREFRONTS": ["https://www.shop.example"], or SALEOR_STOREFRONTS for the service.'
            yield _warning(2, f"Saleor {origin} has no storefront: shoppers stay on the service's own page after paying.", hint)
        if not is_https(origin) and not project.DEBUG:
            yield _warning(3, f"Saleor {origin} is not https: its token would be sent in the open.", "Give its https address.")


def check_channels() -> Found:
    """Whether the accounts and payment methods of the channels are there."""
    try:
        settings, tillgate = get_settings(), get_tillgate_settings()
    except ConfigurationError:
        return  # reported already
    for origin, saleor in settings.saleors.items():
        for slug, channel in saleor.channels.items():
            place = f"Channel {slug!r} of Saleor {origin}"
            if channel.account not in tillgate.accounts:
                hint = f"Add it to TILLGATE['ACCOUNTS'], which has: {', '.join(tillgate.accounts)}."
                yield _error(4, f"{place}: there is no account {channel.account!r}.", hint)
            if missing := [method.value for method in channel.payment_methods or () if method not in tillgate.payment_methods]:
                sentence = f"{place}: {', '.join(missing)} is not among TILLGATE['PAYMENT_METHODS']."
                yield _warning(4, sentence, "Add it there, or remove it here.")


AREAS: Final[Sequence[Callable[[], Found]]] = (check_apps, check_settings, check_channels)
"""All areas that the checks cover."""


@checks.register(TAG)
def run_checks(app_configs: Sequence[Any] | None, **_: Any) -> list[checks.CheckMessage]:
    """Check the settings and apps that a service for Saleor needs."""
    if app_configs is not None and not any(config.label == "tillgate_saleor" for config in app_configs):
        return []
    return [message for area in AREAS for message in area()]
