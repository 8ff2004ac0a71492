"""Variants: the entries of PAYMENT_VARIANTS, of which a payment carries one by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tillgate.errors import ConfigurationError
from tillgate.wire.messages import Vendor

__all__ = ["PROVIDER", "is_ours", "own_variants", "variant_for", "vendor_variants"]

PROVIDER: Final = "tillgate_django_payments.TillgateProvider"
"""What PAYMENT_VARIANTS names."""


def vendor_variants(vendors: Iterable[str] = tuple(Vendor)) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a variant for each vendor, named as the vendor is, with hyphens: `{"alipay-hk": (..., {"vendor": "alipay_hk"}), ...}`.

    The library's static addresses take only small letters and hyphens in a variant's name.
    """
    given = [vendors] if isinstance(vendors, str) else list(vendors)
    for vendor in given:
        if vendor not in set(Vendor):
            raise ConfigurationError("vendors", vendor, f"is not one of {', '.join(Vendor)}")
    return {vendor.replace("_", "-"): (PROVIDER, {"vendor": str(vendor)}) for vendor in given}


def own_variants() -> dict[str, dict[str, Any]]:
    """Return what PAYMENT_VARIANTS gives to those variants that are ours, by name; a project with a factory of its own uses none of it."""
    from django.conf import settings
    from django.utils.module_loading import import_string

    from tillgate_django_payments.provider import TillgateProvider

    found = {}
    given = {} if getattr(settings, "PAYMENT_VARIANT_FACTORY", None) else getattr(settings, "PAYMENT_VARIANTS", {})
    for name, (handler, options) in given.items():
        try:
            provider = import_string(handler)
        except ImportError:  # another provider's trouble, which is not ours to tell
            continue
        if isinstance(provider, type) and issubclass(provider, TillgateProvider):
            found[name] = options
    return found


def is_ours(row: Any) -> bool | None:
    """Tell whether the library comes to us with a payment, whose variant may have changed; None when it would come to nobody.

    Another provider may refuse its own settings, and a project's own factory a name that it does not know, with whatever they raise.
    """
    from payments.core import provider_factory

    from tillgate_django_payments.provider import TillgateProvider

    try:
        return isinstance(provider_factory(row.variant, row), TillgateProvider)
    except Exception:  # noqa: BLE001  # which keeps nobody's money from being booked
        return None


def variant_for(vendor: str) -> str | None:
    """Return the name of a variant of ours for what was paid with a vendor: the vendor's own, else one for all, else any."""
    ours = {name: options.get("vendor") for name, options in own_variants().items()}
    fitting = [name for wanted in (vendor, None) for name, fixed in ours.items() if fixed == wanted]
    return next(iter([*fitting, *ours]), None)
