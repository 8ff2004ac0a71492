"""Models: exact fields, the manager for the database of Tillgate, and the present time."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone

from tillgate.django.models import ExactField, MoneyField, OneDatabase

__all__ = ["ExactField", "MoneyField", "OneDatabase", "now"]


def now() -> datetime:
    """Return the present moment, as Tillgate stamps rows."""
    return timezone.now()
