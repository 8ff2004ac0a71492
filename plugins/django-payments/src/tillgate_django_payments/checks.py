"""System checks: `manage.py check` reports problems that keep payments from being paid, with the
line to add.
"""

from __future__ import annotations

import re
from typing import Any, Final

from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured
from django.db import router
from payments import get_payment_model

from tillgate import ConfigurationError, shop
from tillgate_django_payments.provider import TillgateProvider
from tillgate_django_payments.variants import PROVIDER, own_variants

CHECKS: Final = shop.CheckSet("tillgate_django_payments")
_error, _warning = CHECKS.error, CHECKS.warning

_STATIC_NAME: Final = re.compile(r"[a-z-]+", re.ASCII)
"""The variant names that the library's static addresses accept."""


@CHECKS.area
def check_model() -> shop.Found:
    """Whether the shop's payments are found, and change in one transaction with Tillgate's rows."""
    try:
        model = get_payment_model()
    except (ImproperlyConfigured, LookupError) as error:
        yield _error(
            2,
            f"The shop's payments are not found: {error}",
            'Set PAYMENT_MODEL = "app_label.Payment" to the shop\'s own model.',
        )
        return
    theirs, ours = router.db_for_write(model), shop.database()
    if theirs != ours:
        message = (
            f"The shop's payments are in database {theirs!r} and Tillgate's rows in "
            f"{ours!r}: they cannot change together."
        )
        yield _error(3, message, "Let DATABASE_ROUTERS send both to one database.")


@CHECKS.area
def check_variants() -> shop.Found:
    """Whether there is a variant of ours, and whether each can be used."""
    if getattr(project, "PAYMENT_VARIANT_FACTORY", None):
        return
    ours = own_variants()
    if not ours:
        hint = (
            f'Add one to PAYMENT_VARIANTS: "online": ("{PROVIDER}", {{}}) lets the shopper '
            "choose among the payment methods."
        )
        yield _error(4, "No variant is paid with Tillgate.", hint)
    for name, options in ours.items():
        yield from _check_variant(name, options)


def _check_variant(name: str, options: dict[str, Any]) -> shop.Found:
    if not _STATIC_NAME.fullmatch(name):
        message = (
            f"PAYMENT_VARIANTS[{name!r}]: the library's static addresses take only small "
            "letters and hyphens in a name."
        )
        yield _warning(1, message, "Rename the variant, also in the payments that carry its name.")
    try:
        method = TillgateProvider(**options).method
    except (ConfigurationError, TypeError) as error:
        hint = 'Give {} or {"method": "alipay"}.'
        yield _error(5, f"PAYMENT_VARIANTS[{name!r}] cannot be used: {error}", hint)
        return
    try:
        offered = [one.code for one in shop.payment_methods()]
    except ConfigurationError:
        return  # Tillgate's own checks report it
    if method and method not in offered:
        message = (
            f"PAYMENT_VARIANTS[{name!r}]: {method} is not among "
            "TILLGATE['PAYMENT_METHODS'], so its shoppers must choose another."
        )
        hint = (
            f"Add {method!r} to TILLGATE['PAYMENT_METHODS'] and to the METHODS of the account, "
            "or remove the variant."
        )
        yield _warning(2, message, hint)
