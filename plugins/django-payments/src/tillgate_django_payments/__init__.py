"""Tillgate for django-payments: one provider, for a shop that lets shoppers choose the payment
method here or on a page of its own.

The import works without settings and apps: settings build their variants with it, and Tillgate's
command line loads its plugins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tillgate_django_payments.variants import PROVIDER, method_variants

if TYPE_CHECKING:
    from tillgate_django_payments.provider import TillgateProvider

__all__ = ["PROVIDER", "TillgateProvider", "method_variants"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "TillgateProvider":
        # the library reads settings when it is imported
        from tillgate_django_payments.provider import (
            TillgateProvider,
        )

        return TillgateProvider
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
