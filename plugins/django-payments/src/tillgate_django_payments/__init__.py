"""Tillgate for django-payments: one provider, for a shop that lets shoppers choose the payment
method here or on a page of its own.

The import works without settings and apps, since settings build their variants with it.
"""

from tillgate_django_payments.variants import PROVIDER, method_variants

__all__ = ["PROVIDER", "method_variants"]

__version__ = "0.1.0"
