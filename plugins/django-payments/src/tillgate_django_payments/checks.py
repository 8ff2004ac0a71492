"""System checks: `manage.py check` reports problems that keep payments from being paid, with the line to add."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from django.apps import apps
from django.conf import settings as project
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import router
from payments import get_payment_model

from tillgate.django.conf import get_settings
from tillgate.errors import ConfigurationError

__all__ = ["AREAS", "TAG"]

TAG: Final = "tillgate_django_payments"

_STATIC_NAME: Final = re.compile(r"[a-z-]+", re.ASCII)
"""The variant names that the library's static addresses accept."""

Found = Iterator[checks.CheckMessage]


def _error(number: int, message: str, hint: str) -> checks.Error:
    return checks.Error(message, hint=hint, id=f"tillgate_django_payments.E{number:03}")


def _warning(number: int, message: str, hint: str) -> checks.Warning:
    return checks.Warning(message, hint=hint, id=f"tillgate_django_payments.W{number:03}")


def check_apps() -> Found:
    """Whether Tillgate's own app is there."""
    if not apps.is_installed("tillgate.django"):
        hint = 'Add "tillgate.django" to INSTALLED_APPS, before "tillgate_django_payments".'
        yield _error(1, "Tillgate's own app is not installed.", hint)


def check_model() -> Found:
    """Whether the shop's payments are found, and change in one transaction with Tillgate's rows."""
    try:
        model = get_payment_model()
    except (ImproperlyConfigured, LookupError) as error:
        yield _error(2, f"The shop's payments are not found: {error}", 'Set PAYMENT_MODEL = "app_label.Payment" to the shop\'s own model.')
        return
    if not apps.is_installed("tillgate.django"):
        return
    theirs, ours = router.db_for_write(model), router.db_for_write(apps.get_model("tillgate", "Order"))
    if theirs != ours:
        message = f"The shop's payments are in database {theirs!r} and Tillgate's rows in {ours!r}: they cannot change together."
        yield _error(3, message, "Let DATABASE_ROUTERS send both to one database.")


def check_variants() -> Found:
    """Whether there is a variant of ours, and whether each can be used."""
    if getattr(project, "PAYMENT_VARIANT_FACTORY", None) or not apps.is_installed("tillgate.django"):
        return
    from tillgate_django_payments.variants import PROVIDER, own_variants  # models cannot be imported before the apps are there

    ours = own_variants()
    if not ours:
        hint = f'Add one to PAYMENT_VARIANTS: "online": ("{PROVIDER}", {{}}) lets the shopper choose among the payment methods.'
        yield _error(4, "No variant is paid with Tillgate.", hint)
    for name, options in ours.items():
        yield from _check_variant(name, options)


def _check_variant(name: str, options: dict[str, Any]) -> Found:
    from tillgate_django_payments.provider import TillgateProvider  # for the same reason

    if not _STATIC_NAME.fullmatch(name):
        message = f"PAYMENT_VARIANTS[{name!r}]: the library's static addresses take only small letters and hyphens in a name."
        yield _warning(1, message, "Rename the variant, also in the payments that carry its name.")
    try:
        method = TillgateProvider(**options).method
    except (ConfigurationError, TypeError) as error:
        hint = 'Give {} or {"method": "alipay"}.'
        yield _error(5, f"PAYMENT_VARIANTS[{name!r}] cannot be used: {error}", hint)
        return
    try:
        offered = get_settings().payment_methods
    except ConfigurationError:
        return  # Tillgate's own checks report it
    if method and method not in offered:
        message = f"PAYMENT_VARIANTS[{name!r}]: {method} is not among TILLGATE['PAYMENT_METHODS'], so its shoppers must choose another."
        yield _warning(2, message, f"Add {method!r} to TILLGATE['PAYMENT_METHODS'], or remove the variant.")


AREAS: Final[Sequence[Callable[[], Found]]] = (check_apps, check_model, check_variants)
"""All areas that the checks cover."""


@checks.register(TAG)
def run_checks(app_configs: Sequence[Any] | None, **_: Any) -> list[checks.CheckMessage]:
    """Check the settings and apps that a shop on django-payments needs."""
    if app_configs is not None and not any(config.label == "tillgate_django_payments" for config in app_configs):
        return []
    return [message for area in AREAS for message in area()]
