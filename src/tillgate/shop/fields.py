"""Models: exact fields, the manager for Tillgate's database, and the time by which Tillgate stamps rows."""

from __future__ import annotations

from datetime import datetime

from tillgate.django import clock
from tillgate.django.models import ExactField, MoneyField, OneDatabase

__all__ = ["ExactField", "MoneyField", "OneDatabase", "now"]


def now() -> datetime:
    """Return the present moment, as Tillgate stamps rows."""
    return clock.now()
