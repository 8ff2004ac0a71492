"""Models: exact fields, the manager for Tillgate's database, and the time by which Tillgate stamps rows."""

from tillgate.django.clock import now
from tillgate.django.models import ExactField, MoneyField, OneDatabase

__all__ = ["ExactField", "MoneyField", "OneDatabase", "now"]
