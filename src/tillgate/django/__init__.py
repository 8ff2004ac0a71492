"""Tillgate as a Django app: payments that survive anything. Add `tillgate.django` to INSTALLED_APPS."""
