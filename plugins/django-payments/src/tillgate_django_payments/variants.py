"""Variants: the entries of PAYMENT_VARIANTS, of which a payment carries one by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tillgate.errors import ConfigurationError
from tillgate.wire.messages import PaymentMethod

__all__ = ["PROVIDER", "is_ours", "method_variants", "own_variants", "variant_for"]

PROVIDER: Final = "tillgate_django_payments.TillgateProvider"
"""What PAYMENT_VARIANTS names."""


def method_variants(methods: Iterable[str] = tuple(PaymentMethod)) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a variant for each payment method, as in `{"alipay-hk": (..., {"method": "alipay_hk"}), ...}`.

    The library's static addresses take only small letters and hyphens in a variant's name.
    """
    given = [methods] if isinstance(methods, str) else list(methods)
    for method in given:
        if method not in set(PaymentMethod):
            raise ConfigurationError("methods", method, f"is not one of {', '.join(PaymentMethod)}")
    return {method.replace("_", "-"): (PROVIDER, {"method": str(method)}) for method in given}


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
    except Exception:  # noqa: BLE001  # the shop's own code may raise anything
        return None


def variant_for(method: str) -> str | None:
    """Return the name of a variant of ours for what was paid with a method: the method's own, else one for all, else any."""
    ours = {name: options.get("method") for name, options in own_variants().items()}
    fitting = [name for wanted in (method, None) for name, fixed in ours.items() if fixed == wanted]
    return next(iter([*fitting, *ours]), None)
