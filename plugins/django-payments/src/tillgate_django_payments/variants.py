"""Variants: the entries of PAYMENT_VARIANTS. Each payment names one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django.conf import settings
from django.utils.module_loading import import_string

from tillgate import Method, PaymentMethod

PLUGIN: Final = "django-payments"
"""The plugin's name, which Tillgate's rows carry."""
PROVIDER: Final = "tillgate_django_payments.provider.TillgateProvider"
"""The path of the provider in PAYMENT_VARIANTS."""


def method_variants(
    methods: Iterable[str] = tuple(PaymentMethod),
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a variant for each payment method, as in `{"alipay-hk": (..., {"method":
    "alipay_hk"}), ...}`.

    The library's static addresses take only small letters and hyphens in a variant's name.
    """
    given = [methods] if isinstance(methods, str) else list(methods)
    codes = [Method(code=method).code for method in given]  # raises where one is no code
    return {code.replace("_", "-"): (PROVIDER, {"method": str(code)}) for code in codes}


def own_variants() -> dict[str, dict[str, Any]]:
    """Return the options of Tillgate's variants in PAYMENT_VARIANTS, by name; a project with its
    own factory does not use them.
    """
    found = {}
    given = (
        {}
        if getattr(settings, "PAYMENT_VARIANT_FACTORY", None)
        else getattr(settings, "PAYMENT_VARIANTS", {})
    )
    for name, (handler, options) in given.items():
        try:
            provider = import_string(handler)
        except ImportError:  # an error of another provider, which this plugin does not report
            continue
        if getattr(provider, "pays_with_tillgate", False):
            found[name] = options
    return found


def is_ours(row: Any) -> bool | None:
    """Tell whether the library uses Tillgate for a payment with its present variant; None if it
    uses no provider.

    Another provider may reject its own settings, and a project's own factory may reject an unknown
    name, with any exception.
    """
    from payments.core import provider_factory  # imported late: it reads the settings

    try:
        return bool(getattr(provider_factory(row.variant, row), "pays_with_tillgate", False))
    except Exception:  # noqa: BLE001  # the shop's own code may raise anything
        return None


def variant_for(method: str) -> str | None:
    """Return the name of Tillgate's variant for a payment method: the method's own, else one for
    all methods, else any.
    """
    ours = {name: options.get("method") for name, options in own_variants().items()}
    fitting = [name for wanted in (method, None) for name, fixed in ours.items() if fixed == wanted]
    return next(iter([*fitting, *ours]), None)
